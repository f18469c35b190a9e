// The table of runs: filtered, sorted, grouped over seeds, with columns of chosen settings.

import { Refused, get } from "./api.js";
import { MAX_RUNS, compareAddress } from "./compare.js";
import { aside, el, notice, remember, remembered, stateMark } from "./dom.js";
import { counted, duration, localTime, number } from "./format.js";
import { groupRows, matches, runRows, shownValue, sorted } from "./rows.js";

const EVERY_MILLISECONDS = 5000;
const MAX_COLUMNS = 16;
const COLUMNS = [["title", "run"], ["environment", "environment"], ["agent", "agent"], ["env_steps", "steps"], ["last_evaluation", "last"], ["best_evaluation", "best"], ["state", "state"], ["eta_seconds", "left"], ["time", "newest row"]];
const NUMERIC = new Set(["env_steps", "last_evaluation", "best_evaluation"]);
const NARROW = new Set(["title", "last_evaluation", "best_evaluation", "state"]); // columns of a phone
const GROUPS = [["", "each run"], ["seeds", "mean over seeds"], ["columns", "mean by the columns"]];

// What this browser alone keeps about the runs below a directory: columns, order, grouping.
const viewKey = (root) => `runs ${root}`;

function readView(root) {
  let kept = {};
  try {
    kept = JSON.parse(remembered(viewKey(root), "{}"));
  } catch {
    // another program of this address wrote it
  }
  const { columns = [], sort = "", isDown = false, group = "" } = kept;
  return { columns, sort, isDown, group };
}

export function runsPage(main) {
  const chosen = new Set();
  const opened = new Set();
  let view = readView("");
  let [found, timer, isOver] = [null, null, false];

  const link = el("a", { class: "button", href: "#/" }, "compare");
  const told = el("span", { class: "faint" });
  const search = el("input", { type: "search", placeholder: "words, NAME=VALUE", "aria-label": "filter runs", input: () => draw() });
  const group = el("select", { disabled: true, change: () => change({ group: group.value }, true) }, GROUPS.map(([value, text]) => el("option", { value }, text)));
  const picker = el("div", { class: "picker" });
  const heads = el("tr");
  const body = el("tbody");
  const place = aside("reading…");
  main.replaceChildren(
    el("div", { class: "tools" }, search, el("label", {}, "show ", group), link, told),
    el("details", { class: "more" }, el("summary", {}, "columns of settings that differ"), picker),
    el("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "runs" }, el("table", { class: "runs" }, el("thead", {}, heads), body)),
    place,
  );

  // Keeps a choice of this browser; isAsked: the server must be asked again.
  function change(values, isAsked = false) {
    Object.assign(view, values);
    remember(viewKey(found.root), JSON.stringify(view));
    if (!isAsked) return draw();
    place.textContent = "reading…";
    read();
  }

  function sort(name) {
    const isDown = view.sort === name ? !view.isDown : NUMERIC.has(name) || name === "time";
    change({ sort: name, isDown });
  }

  // Returns the settings that group the runs; the mean is over seeds.
  function by() {
    return view.group === "columns" ? view.columns.filter((name) => name !== "run.seed") : [];
  }

  function tools() {
    const most = MAX_RUNS[view.group ? 1 : 0];
    const isReady = chosen.size >= (view.group ? 1 : 2) && chosen.size <= most;
    link.ariaDisabled = !isReady;
    link.href = isReady ? compareAddress([...chosen], Boolean(view.group), by()) : "#/";
    told.textContent = chosen.size > most ? `one plot has at most ${most} runs` : chosen.size ? `${counted(chosen.size, "run")} chosen` : view.group ? "choose groups" : "choose two or more";
  }

  function head([name, text]) {
    const order = view.sort === name ? (view.isDown ? "descending" : "ascending") : null;
    const arrow = order ? (view.isDown ? " ▾" : " ▴") : "";
    return el("th", { scope: "col", class: kind(name), "aria-sort": order }, el("button", { "data-focus": `sort ${name}`, click: () => sort(name) }, `${text}${arrow}`));
  }

  function kind(name) {
    return [NUMERIC.has(name) ? "number" : "", NARROW.has(name) ? "" : "wide"].join(" ").trim() || null;
  }

  function row(one) {
    const names = (one.rows ?? [one]).map((run) => run.run);
    const box = el("input", { type: "checkbox", "aria-label": `choose ${one.title}`, "data-focus": `choose ${one.run}`, change: () => (names.forEach((name) => (box.checked ? chosen.add(name) : chosen.delete(name))), tools()) });
    box.checked = names.every((name) => chosen.has(name));
    const interval = (mean, half) => (half ? ` (${number(mean - half)} to ${number(mean + half)})` : "");
    const figure = (name) => `${number(one[name])}${interval(one[name], one.half[name])}`;
    return el(
      "tr",
      {},
      el("td", {}, box),
      el("td", {}, one.rows ? members(one) : runLink(one), el("span", { class: "phone faint" }, `${one.environment}, ${one.agent}`)),
      ...view.columns.map((name) => el("td", { class: "wide" }, shownValue(one.settings[name]))),
      el("td", { class: "wide" }, one.environment || "–"),
      el("td", { class: "wide" }, one.agent || "–"),
      ...[...NUMERIC].map((name) => el("td", { class: kind(name) }, figure(name))),
      el("td", {}, stateMark(one)),
      el("td", { class: "wide" }, one.eta_seconds === null ? "–" : duration(one.eta_seconds)),
      el("td", { class: "wide faint" }, localTime(one.time) || "–"),
    );
  }

  function runLink(one) {
    return el("a", { href: `#/run?${new URLSearchParams({ run: one.run })}`, title: one.run }, one.title);
  }

  function members(one) {
    const lines = one.rows.map((run) => el("li", {}, runLink(run), ` ${number(run.last_evaluation)}`));
    const details = el("details", { open: opened.has(one.run), toggle: () => (details.open ? opened.add(one.run) : opened.delete(one.run)) }, el("summary", { "data-focus": `open ${one.run}` }, `${one.title} (${counted(one.rows.length, "run")})`), el("ul", { class: "plain" }, lines));
    return details;
  }

  function choice(name) {
    const box = el("input", { type: "checkbox", "data-focus": `column ${name}`, change: () => change({ columns: box.checked ? [...view.columns, name].slice(-MAX_COLUMNS) : view.columns.filter((one) => one !== name) }, true) });
    box.checked = view.columns.includes(name);
    return el("label", {}, box, name);
  }

  function draw() {
    if (!found) return;
    group.disabled = false;
    const focused = document.activeElement?.dataset?.focus;
    const kept = runRows(found.runs).filter((one) => matches(one, search.value));
    const rows = sorted(view.group && found.groups ? groupRows(kept, found) : kept, view.sort, view.isDown);
    heads.replaceChildren(el("th", { scope: "col" }, el("span", { class: "hidden" }, "choose")), ...[COLUMNS[0], ...view.columns.map((name) => [name, name]), ...COLUMNS.slice(1)].map(head));
    body.replaceChildren(...rows.map(row));
    picker.replaceChildren(...[...new Set([...view.columns, ...found.differing])].map(choice));
    group.value = view.group;
    if (focused !== undefined) [...main.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === focused)?.focus();
    const most = found.runs.length >= found.most ? `; only ${found.most} are shown, give a directory with fewer` : "";
    const rest = kept.length < found.runs.length ? `, ${number(kept.length)} of them here` : "";
    const left = Object.entries(found.left_out ?? {}).map(([run, reason]) => `; without a group: ${run}, ${reason}`)[0] ?? "";
    place.textContent = found.runs.length ? `${counted(found.runs.length, "run")} below ${found.root}${rest}${most}${left}` : `no run below ${found.root} yet: seedzero train --preset=catch begins one`;
    tools();
  }

  let newest = 0; // question
  let shown = "";
  async function read() {
    clearTimeout(timer);
    const asked = ++newest;
    if (!document.hidden) {
      try {
        const answer = await get("api/runs", [...view.columns.map((name) => ["column", name]), ...by().map((name) => ["by", name]), ...(view.group ? [["groups", 1]] : [])]);
        if (isOver || asked !== newest) return;
        notice("");
        const only = answer.runs.length === 1 ? answer.runs[0].run : "";
        if (only === "." || (only && !location.hash)) return location.replace(`#/run?${new URLSearchParams({ run: only })}`);
        const isFirst = found === null;
        found = answer;
        if (isFirst) view = readView(found.root);
        if (isFirst && (view.columns.length || view.group)) return await read();
        const text = JSON.stringify(answer);
        if (text !== shown || place.textContent === "reading…") draw();
        shown = text;
      } catch (error) {
        if (!isOver) notice(`the server does not answer: ${error.message}`);
        if (error instanceof Refused) view.group = ""; // a kept column may be no setting any more
      }
    }
    if (!isOver && asked === newest) timer = setTimeout(read, EVERY_MILLISECONDS);
  }
  // Another tab of this browser has kept something.
  function reread(event) {
    if (!found || event.key !== viewKey(found.root)) return;
    view = readView(found.root);
    shown = "";
    read();
  }
  window.addEventListener("storage", reread);
  tools();
  read();
  return { close: () => ((isOver = true), clearTimeout(timer), window.removeEventListener("storage", reread)) };
}
