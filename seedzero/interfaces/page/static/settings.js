// All settings of a run by section, those that the user gave first, by their marks, with meaning and the preset's other value.

import { get } from "./api.js";
import { el, notice, panel, table } from "./dom.js";
import { number } from "./format.js";

const FIRST = ["You set", "Other values than in the preset, not set by you"];
const MARKS = ["start here", "usual", "", "advanced"];
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export async function settingsPage(main, run) {
  const box = el("div", { class: "league settings" });
  const told = el("span", { class: "faint" });
  const search = el("input", { type: "search", placeholder: "find a setting", "aria-label": "find a setting", input: () => draw() });
  main.replaceChildren(el("div", { class: "tools" }, search, told), box);
  let found = { settings: [] };
  function draw() {
    const words = search.value.toLowerCase();
    const shown = found.settings.filter((one) => `${one.name}=${text(one.value)} ${one.help}`.toLowerCase().includes(words));
    const groups = Map.groupBy(shown, (one) => (one.is_given ? FIRST[0] : one.usual !== null ? FIRST[1] : one.name.split(".")[0]));
    const titles = [...new Set([...FIRST, ...groups.keys()])].filter((title) => groups.has(title));
    const rows = (title) => table(["setting", "value", "preset", "mark", "meaning"], groups.get(title).map(row), new Set(), title, true);
    box.replaceChildren(...titles.map((title) => (title === FIRST[1] ? el("details", { class: "panel", open: words !== "" }, el("summary", {}, `${title}: ${number(groups.get(title).length)}`), rows(title)) : panel(title, rows(title)))));
  }
  try {
    found = await get("api/settings", { run });
    found.settings.sort((one, other) => MARKS.indexOf(one.mark) - MARKS.indexOf(other.mark));
    told.textContent = `preset ${found.preset || "unknown"}`;
    draw();
  } catch (error) {
    notice(error);
  }
  return { close: () => {} };
}

function row({ name, value, unit, usual, mark, help }) {
  const shown = el("span", { class: usual === null ? null : "taken" }, `${text(value) || "–"} ${unit}`);
  return [el("code", {}, name), shown, usual === null ? "" : el("span", { class: "faint" }, text(usual) || "–"), mark, help];
}
