// What this browser alone keeps about the runs below a directory: columns, order, grouping.

import { remember, remembered } from "./dom.js";

export const viewKey = (root) => `runs ${root}`;

export function readView(root) {
  let kept = {};
  try {
    kept = JSON.parse(remembered(viewKey(root), "{}"));
  } catch {
    // another program of this address wrote it
  }
  const { columns = [], sort = "", isDown = false, group = "" } = kept;
  return { columns, sort, isDown, group };
}

export function keepView(root, view) {
  remember(viewKey(root), JSON.stringify(view));
}
