// Makes elements. Texts become text nodes and never HTML: names and reasons come from runs.

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function button(text, label, click) {
  return el("button", { type: "button", "aria-label": label, title: label, click }, text);
}

export function panel(title, ...content) {
  return el("section", { class: "panel" }, el("h2", {}, title), content);
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
      el("thead", {}, el("tr", {}, heads.map((head, place) => (head ? el("th", { scope: "col", class: kind(place) }, head) : el("td", {}))))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, place) => el("td", { class: kind(place) }, cell))))),
    ),
  );
}

export function notice(text) {
  const place = document.getElementById("notice");
  if (place.textContent !== text) place.textContent = text;
}

// Shows or hides the way to the league: most runs have none.
export function showLeague(isThere) {
  for (const link of document.querySelectorAll("#crumbs .league-link")) link.hidden = !isThere;
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
