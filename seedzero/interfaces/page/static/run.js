// A run: its state, and its curves.

import { whole } from "./api.js";
import { controls } from "./controls.js";
import { Curves } from "./curves.js";
import { about, aside, el, notice, stateMark } from "./dom.js";
import { charts, counted, duration, localTime, number, short, word } from "./format.js";

export async function runPage(main, run) {
  const facts = el("dl", { class: "figures" }, describe(EMPTY));
  const reason = el("p", { class: "reason" });
  const box = el("div", { class: "all" });
  const picker = el("div", { class: "picker" });
  const search = el("input", { type: "search", placeholder: "find a metric", "aria-label": "find a metric", input: () => filter() });
  const curves = new Curves(box, [run], (_, name) => word(name), (summary) => tell(summary), (found) => learn(found));
  const show = (range = null) => curves.show(panels(), range).catch(notice);
  const details = el("details", { class: "more" }, el("summary", {}, "more metrics"), search, picker);
  let names = [];
  const chosen = new Set();

  main.replaceChildren(facts, reason, el("div", { class: "tools right" }, controls({ axis: () => show(), smoothing: () => curves.repaint(), whole: () => show() })), box, details);

  function tell(found) {
    facts.replaceChildren(...describe(found));
    reason.textContent = found.reason;
    about(found, "curves");
  }

  function panels() {
    return [...charts(names), ...[...chosen].map((name) => ({ title: name.replaceAll("_", " "), metrics: [name], group: "Chosen", height: 130 }))];
  }

  // Shows metrics that begin later, as losses and returns do.
  function learn(found) {
    const added = found.filter((name) => !names.includes(name));
    if (!added.length) return;
    names = [...names, ...added].sort();
    picker.append(...added.map(choose));
    filter();
    show(curves.range);
  }

  function filter() {
    const text = search.value.toLowerCase();
    for (const label of picker.children) label.hidden = !label.textContent.toLowerCase().includes(text);
  }

  function choose(name) {
    const input = el("input", { type: "checkbox", change: () => (input.checked ? chosen.add(name) : chosen.delete(name), show(curves.range)) });
    return el("label", {}, input, name);
  }

  let isOver = false;
  const page = { close: () => ((isOver = true), curves.close()), repaint: () => curves.repaint() };
  (async () => {
    const found = await whole("api/run", { run }, () => !isOver, tell);
    if (!found) return;
    names = found.metrics;
    if (found.damaged) main.append(aside(`${counted(found.damaged, "damaged line")} of metrics.jsonl left out`));
    if (!names.length) {
      box.replaceChildren(aside(`no metrics in ${found.run_dir} yet. A training writes them: `, el("code", {}, `seedzero train --run_dir=${found.run_dir}`)));
      page.timer = setTimeout(() => isOver || window.dispatchEvent(new Event("hashchange")), 3000);
      return;
    }
    picker.replaceChildren(...names.map(choose));
    await show();
  })().catch((error) => isOver || notice(error));
  return page;
}

const EMPTY = { state: "…", reason: "", environment: "", agent: "", seconds: null, done: null, eta_seconds: null };

// The row of figures; small: what a figure means.
function describe(run) {
  const bar = () => el("progress", { max: 1, value: run.done, "aria-label": "used budget" });
  const left = run.eta_seconds === null ? "" : `${duration(run.eta_seconds)} left`;
  const { update, env_steps: steps } = run.best ?? {};
  const best = update === undefined ? "best evaluation" : `update ${number(update)}${steps ? `; ${number(steps)} steps` : ""}`;
  const rows = [
    ["state", stateMark(run), localTime(run.time), true],
    ["environment", run.environment || "–", "", true],
    ["agent", run.agent || "–", "", true],
    ["score", number(run.last_evaluation), "last evaluation"],
    ["best", number(run.best_evaluation), best],
    ["steps", short(run.env_steps), run.updates ? `${number(run.env_steps)}; ${number(run.updates)} updates` : ""],
    ["speed", number(run.env_steps_per_second, 3), "steps/s"],
    ["age", duration(run.seconds), run.done === null ? "no budget" : [bar(), ` ${left || `${Math.floor(100 * run.done)} % of the budget`}`], true],
  ];
  return rows.map(([name, value, small, isText]) => el("div", {}, el("dt", {}, name), el("dd", { class: isText ? "text" : null }, value, el("small", {}, small))));
}
