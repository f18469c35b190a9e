// Several runs in one plot.

import { get } from "./api.js";
import { controls } from "./controls.js";
import { Curves } from "./curves.js";
import { el, notice } from "./dom.js";
import { counted } from "./format.js";

const FIRST = ["evaluation_mean_return", "episode_return", "loss"];
const MAX_RUNS = 16;

export async function comparePage(main, runs) {
  const kept = [...new Set(runs)].slice(0, MAX_RUNS);
  const box = el("div", { class: "panels wide" });
  const metric = el("select", { change: () => show() });
  const curves = new Curves(box, kept, (run) => run);
  const panels = () => [{ title: metric.value, metrics: [metric.value] }];
  const show = () => curves.show(panels()).catch((error) => notice(error.message));
  main.replaceChildren(
    el("h1", {}, `${counted(kept.length, "run")} compared`),
    el("div", { class: "tools" }, el("label", {}, "metric ", metric), controls({ axis: show, smoothing: () => curves.repaint(), whole: show })),
    box,
    el("ul", { class: "plain" }, kept.map((run) => el("li", {}, el("a", { href: `#/run?${new URLSearchParams({ run })}` }, run)))),
  );
  let isOver = false;
  (async () => {
    const names = new Set();
    for (const run of kept) {
      for (;;) {
        const found = await get("api/run", { run });
        if (isOver) return;
        if (found.read === 1) {
          found.metrics.forEach((name) => names.add(name));
          break;
        }
        notice(`reading ${run}: ${Math.floor(100 * found.read)} %`);
      }
    }
    const sorted = [...FIRST.filter((name) => names.has(name)), ...[...names].filter((name) => !FIRST.includes(name)).sort()];
    metric.replaceChildren(...sorted.map((name) => el("option", { value: name }, name)));
    if (sorted.length) await show();
    else notice("these runs have no metrics yet");
  })().catch((error) => isOver || notice(error.message));
  return { close: () => ((isOver = true), curves.close()), repaint: () => curves.repaint() };
}
