// A run: its state, and its curves.

import { get } from "./api.js";
import { controls } from "./controls.js";
import { Curves } from "./curves.js";
import { el, notice, showLeague } from "./dom.js";
import { counted, duration, groups, number } from "./format.js";

export async function runPage(main, run) {
  const facts = el("dl", { class: "facts" }, describe(EMPTY));
  const reason = el("p", { class: "reason" });
  const box = el("div", { class: "panels" });
  const picker = el("div", { class: "picker" });
  const search = el("input", { type: "search", placeholder: "find a metric", "aria-label": "find a metric", input: () => filter() });
  const curves = new Curves(box, [run], (_, name) => name, (summary) => tell(summary), (found) => learn(found));
  const show = (range = null) => curves.show(panels(), range).catch((error) => notice(error.message));
  const details = el("details", { class: "more" }, el("summary", {}, "more metrics"), search, picker);
  let names = [];
  const chosen = new Set();

  main.replaceChildren(
    el("h1", {}, run === "." ? "Run" : run),
    facts,
    reason,
    el("div", { class: "tools" }, controls({ axis: () => show(), smoothing: () => curves.repaint(), whole: () => show() })),
    box,
    details,
  );

  function tell(found) {
    facts.replaceChildren(...describe(found));
    reason.textContent = found.reason;
    showLeague(found.has_league);
  }

  function panels() {
    return [...groups(names).map(([title, metrics]) => ({ title, metrics })), ...[...chosen].map((name) => ({ title: name, metrics: [name] }))];
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
    for (;;) {
      const found = await get("api/run", { run });
      if (isOver) return;
      tell(found);
      if (found.read === 1) {
        names = found.metrics;
        if (found.damaged) main.append(el("p", { class: "faint" }, `${counted(found.damaged, "damaged line")} of metrics.jsonl left out`));
        break;
      }
      notice(`reading ${run}: ${Math.floor(100 * found.read)} %`);
    }
    if (!names.length) {
      notice("the run has no rows of metrics yet; the page looks again");
      page.timer = setTimeout(() => isOver || window.dispatchEvent(new Event("hashchange")), 3000);
      return;
    }
    picker.replaceChildren(...names.map(choose));
    await show();
  })().catch((error) => isOver || notice(error.message));
  return page;
}

const EMPTY = { state: "…", reason: "", done: null, eta_seconds: null };

function describe(run) {
  const state = el("span", { class: `state ${run.state.replaceAll(" ", "-")}` }, run.state);
  const bar = run.done === null ? "none" : el("span", {}, el("progress", { max: 1, value: run.done, "aria-label": "used budget" }), ` ${Math.floor(100 * run.done)} %`);
  const rows = [
    ["state", state],
    ["environment", run.environment || "–"],
    ["agent", run.agent || "–"],
    ["steps", number(run.env_steps)],
    ["updates", number(run.updates)],
    ["steps/s", number(run.env_steps_per_second, 3)],
    ["last evaluation", number(run.last_evaluation)],
    ["best evaluation", number(run.best_evaluation)],
    ["budget", bar],
    ["time left", run.eta_seconds === null ? "–" : duration(run.eta_seconds)],
  ];
  return rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

