// The list of runs.

import { get } from "./api.js";
import { el, notice } from "./dom.js";
import { counted, duration, number } from "./format.js";

const EVERY_MILLISECONDS = 5000;
const HEADS = ["", "run", "environment", "agent", "steps", "last", "best", "state", "left", "newest row (UTC)"];
const NUMERIC = new Set([4, 5, 6]);

export function runsPage(main) {
  const chosen = new Set();
  const link = el("a", { class: "button", href: "#/" }, "compare");
  const body = el("tbody", {});
  const place = el("p", { class: "faint" }, "reading…");
  const heads = HEADS.map((head, column) => el("th", { scope: "col", class: NUMERIC.has(column) ? "number" : null }, head || el("span", { class: "hidden" }, "compare")));
  main.replaceChildren(
    el("h1", {}, "Runs"),
    el("div", { class: "tools" }, link, el("span", { class: "faint" }, "choose two or more")),
    el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "runs" }, el("table", { class: "runs" }, el("thead", {}, el("tr", {}, heads)), body)),
    place,
  );
  let timer = null;
  let isOver = false;

  function update() {
    const isReady = chosen.size > 1;
    link.setAttribute("aria-disabled", String(!isReady));
    link.href = isReady ? `#/compare?${new URLSearchParams([...chosen].map((run) => ["run", run]))}` : "#/";
  }

  function row(run) {
    const box = el("input", {
      type: "checkbox", "aria-label": `compare ${run.run}`, "data-run": run.run,
      change: () => (box.checked ? chosen.add(run.run) : chosen.delete(run.run), update()),
    });
    box.checked = chosen.has(run.run);
    const left = run.eta_seconds === null ? "–" : duration(run.eta_seconds);
    return el(
      "tr",
      {},
      el("td", {}, box),
      el("td", {}, el("a", { href: `#/run?${new URLSearchParams({ run: run.run })}` }, run.run === "." ? run.name : run.run), el("span", { class: "phone faint" }, `${run.environment}, ${run.agent}`)),
      el("td", {}, run.environment || "–"),
      el("td", {}, run.agent || "–"),
      ...[run.env_steps, run.last_evaluation, run.best_evaluation].map((value) => el("td", { class: "number" }, number(value))),
      el("td", {}, el("span", { class: `state ${run.state.replaceAll(" ", "-")}`, title: run.reason }, run.state)),
      el("td", {}, left),
      el("td", { class: "faint" }, run.time.replace("T", " ").slice(0, 16) || "–"),
    );
  }

  let shown = "";
  async function read() {
    if (!document.hidden) {
      try {
        const found = await get("api/runs");
        if (isOver) return;
        notice("");
        const text = JSON.stringify(found.runs);
        if (text !== shown) {
          const focused = document.activeElement?.dataset?.run;
          body.replaceChildren(...found.runs.map(row));
          if (focused !== undefined) [...body.querySelectorAll("input")].find((box) => box.dataset.run === focused)?.focus();
        }
        shown = text;
        const most = found.runs.length >= found.most ? `; only ${found.most} are shown, give a directory with fewer` : "";
        place.textContent = found.runs.length ? `${counted(found.runs.length, "run")} below ${found.root}${most}` : `no run below ${found.root} yet: seedzero train --preset=catch begins one`;
      } catch (error) {
        if (!isOver) notice(`the server does not answer: ${error.message}`);
      }
    }
    if (!isOver) timer = setTimeout(read, EVERY_MILLISECONDS);
  }
  update();
  read();
  return { close: () => ((isOver = true), clearTimeout(timer)) };
}
