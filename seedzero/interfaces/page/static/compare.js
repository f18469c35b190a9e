// Several runs in one plot, or the means of their groups.

import { get } from "./api.js";
import { controls } from "./controls.js";
import { Curves } from "./curves.js";
import { el, notice } from "./dom.js";
import { counted } from "./format.js";
import { Means } from "./means.js";

const FIRST = ["evaluation_mean_return", "episode_return", "loss"];
export const MAX_RUNS = [16, 64]; // of curves of their own, and of means

export function compareAddress(runs, isGrouped, by) {
  return `#/compare?${new URLSearchParams([...runs.map((run) => ["run", run]), ...(isGrouped ? [["group", 1]] : []), ...by.map((name) => ["by", name])])}`;
}

export async function comparePage(main, runs, parameters) {
  const [isGrouped, by] = [parameters.has("group"), parameters.getAll("by")];
  const kept = [...new Set(runs)].slice(0, MAX_RUNS[isGrouped ? 1 : 0]);
  const rest = kept.length < new Set(runs).size ? `, the first of ${new Set(runs).size}` : "";
  const box = el("div", { class: "panels wide" });
  const metric = el("select", { change: () => show() });
  const told = el("ul", { class: "plain faint" });
  const list = el("ul", { class: "plain" });
  const say = (texts) => told.replaceChildren(...texts.map((text) => el("li", {}, text)));
  const curves = isGrouped ? new Means(box, kept, by, say) : new Curves(box, kept, (run) => run, undefined, (found) => offer(found));
  const panels = () => [{ title: metric.value, metrics: [metric.value] }];
  const other = el("a", { class: "button", href: compareAddress(kept, !isGrouped, by) }, isGrouped ? "each run" : "mean over seeds");
  const show = () => curves.show(panels()).catch((error) => notice(error.message));
  main.replaceChildren(
    el("h1", {}, `${counted(kept.length, "run")} compared${rest}`),
    el("div", { class: "tools" }, el("label", {}, "metric ", metric), controls({ axis: show, smoothing: () => curves.repaint(), whole: show }), other),
    box,
    told,
    list,
  );
  function offer(found) {
    const known = new Set([...metric.options].map((one) => one.value));
    metric.append(...found.filter((name) => !known.has(name)).map((name) => el("option", { value: name }, name)));
  }

  let isOver = false;
  (async () => {
    const metrics = new Set();
    for (const run of kept) {
      for (;;) {
        const found = await get("api/run", { run });
        if (isOver) return;
        if (found.read === 1) {
          found.metrics.forEach((name) => metrics.add(name));
          curves.isLive ||= ["trains", "stands still"].includes(found.state);
          break;
        }
        notice(`reading ${run}: ${Math.floor(100 * found.read)} %`);
      }
    }
    list.replaceChildren(...kept.map((run) => el("li", {}, el("a", { href: `#/run?${new URLSearchParams({ run })}` }, run))));
    const sorted = [...FIRST.filter((name) => metrics.has(name)), ...[...metrics].filter((name) => !FIRST.includes(name)).sort()];
    offer(sorted);
    if (sorted.length) await show();
    else notice("these runs have no metrics yet");
  })().catch((error) => isOver || notice(error.message));
  return { close: () => ((isOver = true), curves.close()), repaint: () => curves.repaint() };
}
