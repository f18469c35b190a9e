// Several runs in one plot, or the means of their groups.

import { whole } from "./api.js";
import { controls } from "./controls.js";
import { Curves } from "./curves.js";
import { el, notice, stateMark, table } from "./dom.js";
import { counted, number } from "./format.js";
import { Means } from "./means.js";

const FIRST = ["evaluation_mean_return", "episode_return", "loss"];
const MAX_OPEN = 12; // settings that are shown at once
export const MAX_RUNS = [16, 64]; // of curves of their own, and of means

export function compareAddress(runs, isGrouped, by) {
  return `#/compare?${new URLSearchParams([...runs.map((run) => ["run", run]), ...(isGrouped ? [["group", 1]] : []), ...by.map((name) => ["by", name])])}`;
}

export async function comparePage(main, runs, parameters) {
  const [isGrouped, by] = [parameters.has("group"), parameters.getAll("by")];
  const kept = [...new Set(runs)].slice(0, MAX_RUNS[isGrouped ? 1 : 0]);
  const rest = kept.length < new Set(runs).size ? `the first ${kept.length} of ${new Set(runs).size} runs` : "";
  const box = el("div", { class: "panels wide" });
  const metric = el("select", { change: () => show() });
  const told = el("ul", { class: "plain faint" });
  const list = el("div");
  const say = (texts) => told.replaceChildren(...texts.map((text) => el("li", {}, text)));
  const curves = isGrouped ? new Means(box, kept, by, say) : new Curves(box, kept, (run) => run, undefined, (found) => offer(found));
  const panels = () => [{ title: titleOf(metric.value), metrics: [metric.value], height: 420 }];
  const other = el("a", { class: "button", href: compareAddress(kept, !isGrouped, by) }, isGrouped ? "each run" : "mean over seeds");
  const show = () => curves.show(panels()).catch(notice);
  main.replaceChildren(el("div", { class: "tools" }, el("label", {}, "metric ", metric), controls({ axis: show, smoothing: () => curves.repaint(), whole: show }), other, rest), box, told, list);
  function offer(found) {
    const known = new Set([...metric.options].map((one) => one.value));
    metric.append(...found.filter((name) => !known.has(name)).map((name) => el("option", { value: name }, titleOf(name))));
  }

  let isOver = false;
  (async () => {
    const metrics = new Set();
    const summaries = [];
    for (const run of kept) {
      const found = await whole("api/run", { run }, () => !isOver);
      if (!found) return;
      found.metrics.forEach((name) => metrics.add(name));
      summaries.push(found);
      curves.isLive ||= ["trains", "stands still"].includes(found.state);
    }
    list.replaceChildren(...scores(summaries));
    const sorted = [...FIRST.filter((name) => metrics.has(name)), ...[...metrics].filter((name) => !FIRST.includes(name)).sort()];
    offer(sorted);
    if (sorted.length) await show();
    else notice("these runs have no metrics yet");
  })().catch((error) => isOver || notice(error));
  return { close: () => ((isOver = true), curves.close()), repaint: () => curves.repaint() };
}

const titleOf = (name) => ({ evaluation_mean_return: "return, evaluation", episode_return: "return, training" })[name] ?? name.replaceAll("_", " ");

// The runs with their scores, and the settings in which they differ, the seed last.
function scores(runs) {
  const configs = runs.map((run) => ({ preset: run.settings.preset, ...run.settings.config }));
  const isSeed = (name) => Number(name === "run.seed");
  const names = [...new Set(configs.flatMap(Object.keys))].filter((name) => new Set(configs.map((one) => JSON.stringify(one[name]))).size > 1).sort((one, other) => isSeed(one) - isSeed(other));
  const rows = runs.map((run) => [el("a", { href: `#/run?${new URLSearchParams({ run: run.run })}` }, run.run), number(run.last_evaluation), number(run.best_evaluation), number(run.env_steps), stateMark(run)]);
  const values = names.map((name) => [el("code", {}, name), ...configs.map((one) => String(one[name] ?? "–"))]);
  const title = names.length ? `${counted(names.length, "setting")} in which they differ` : "no setting differs";
  const differing = el("details", { class: "panel more", open: names.length <= MAX_OPEN }, el("summary", {}, title), names.length ? table(["setting", ...runs.map((run) => run.run)], values, new Set(), title, true) : "");
  return [el("section", { class: "panel more" }, el("h2", {}, "Scores"), table(["run", "score", "best", "steps", "state"], rows, new Set([1, 2, 3]), "runs", true)), differing];
}
