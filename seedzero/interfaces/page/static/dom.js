// Makes elements. Texts become text nodes and never HTML: names and reasons come from runs.

export const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => filled(document.createElementNS(document.querySelector("svg").namespaceURI, tag), attributes, children);

function filled(element, attributes = {}, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function button(text, label, click) {
  return el("button", { "aria-label": label, title: label, click }, text);
}

export const aside = (...content) => el("p", { class: "faint" }, ...content);

// Shows in a place that an answer takes time, after three seconds also why; returns the answer.
export function waiting(place, text, answer) {
  const [began, passed] = [performance.now(), el("span", { "aria-live": "off" })];
  const tell = (seconds) => (passed.textContent = `${seconds} s${seconds < 3 ? "" : "; at first it compiles, which may take a minute"} `);
  const timer = setInterval(() => tell(Math.round((performance.now() - began) / 1000)), 1000);
  place.replaceChildren(`${text}… `, passed, el("progress", { "aria-label": text }));
  return answer.finally(() => clearInterval(timer));
}

export function panel(title, ...content) {
  return el("section", { class: "panel" }, el("h2", {}, title), content);
}

// A part that folds, as this browser left it.
export function fold(title, ...content) {
  const key = `folded ${title}`;
  const details = el("details", { class: "group", open: !remembered(key, ""), toggle: () => remember(key, details.open ? "" : "1") }, el("summary", {}, title), content);
  return details;
}

// Takes keys outside fields and plots, and in the slider; returns what ends it.
export function onKeys(slider, keys) {
  const press = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    if (event.target.closest("input, select, button, a, summary, [role=tree], .plot") && event.target !== slider) return;
    event.preventDefault();
    keys[event.key]();
  };
  document.addEventListener("keydown", press);
  return () => document.removeEventListener("keydown", press);
}

// Rows of a description list.
export function pairs(rows) {
  return rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

// Fills a table's body; rows: lists of texts or elements. numeric: columns that are flush right.
export function table(heads, rows, numeric = new Set(), caption = "", isTall = false) {
  const kind = (place) => (numeric.has(place) ? "number" : null);
  return el(
    "div",
    { class: isTall ? "scroll tall" : "scroll", tabindex: 0, role: "region", "aria-label": caption || "table" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, heads.map((head, place) => (head ? el("th", { scope: "col", class: kind(place) }, head) : el("td"))))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, place) => el("td", { class: kind(place) }, cell))))),
    ),
  );
}

// Shows a text, or an error's.
export function notice(told) {
  const [place, text] = [document.getElementById("notice"), told.message ?? told];
  if (place.textContent !== text) place.textContent = text;
}

// Names what is shown, also in the tab.
export function heading(text, view = "") {
  document.querySelector("h1").textContent = text;
  document.title = [text, view, "seedzero"].filter(Boolean).join(" · ");
}

export function stateMark(run) {
  return el("span", { class: `state ${run.state.replaceAll(" ", "-")}`, title: run.reason }, run.state);
}

// What stands on every view of a run; most runs have no league.
export function about(run, view) {
  heading(run.run === "." ? run.name : run.run, view);
  const facts = view === "curves" ? [] : [stateMark(run), el("span", {}, run.environment), el("span", {}, run.agent)]; // curves have figures
  document.getElementById("about").replaceChildren(...facts);
  for (const link of document.querySelectorAll("#crumbs .league-link")) link.hidden = !run.has_league;
}

// Keeps a choice of this browser.
export function remembered(name, fallback) {
  try {
    return localStorage.getItem(name) ?? fallback;
  } catch {
    return fallback;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // without storage the choice lasts as long as the page
  }
}
