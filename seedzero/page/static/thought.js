// A step thought over again.

import { el } from "./dom.js";

export function thoughtPanel() {
  return { element: el("div", {}), moved: () => {}, think: () => {} };
}
