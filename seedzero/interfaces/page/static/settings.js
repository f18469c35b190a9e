// All settings of a run by section, those that the user gave first, by their marks, with meaning and the preset's other value.

import { get } from "./api.js";
import { el, notice, panel, table } from "./dom.js";
import { counted } from "./format.js";

const MARKS = ["start here", "usual", "", "advanced"];
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export async function settingsPage(main, run) {
  const box = el("div", { class: "league" });
  const told = el("span", { class: "faint" });
  const search = el("input", { type: "search", placeholder: "find a setting", "aria-label": "find a setting", input: () => draw() });
  main.replaceChildren(el("div", { class: "tools" }, search, told), box);
  let found = { settings: [] };
  function draw() {
    const words = search.value.toLowerCase();
    const shown = found.settings.filter((one) => `${one.name}=${text(one.value)} ${one.help}`.toLowerCase().includes(words));
    const groups = Map.groupBy(shown, (one) => (one.is_given ? "You set" : one.name.split(".")[0]));
    const titles = [...groups.keys()].sort((one, other) => Number(other === "You set") - Number(one === "You set"));
    box.replaceChildren(...titles.map((title) => panel(title, table(["setting", "value", "preset", "mark", "meaning"], groups.get(title).map(row), new Set(), title, true))));
  }
  try {
    found = await get("api/settings", { run });
    found.settings.sort((one, other) => MARKS.indexOf(one.mark) - MARKS.indexOf(other.mark));
    const others = found.settings.filter((one) => one.usual !== null).length;
    told.textContent = `preset ${found.preset || "unknown"}; ${counted(others, "value")} of this run differ from it`;
    draw();
  } catch (error) {
    notice(error.message);
  }
  return { close: () => {} };
}

function row({ name, value, unit, usual, mark, help }) {
  const shown = el("span", { class: usual === null ? null : "taken" }, `${text(value) || "–"} ${unit}`);
  return [el("code", {}, name), shown, usual === null ? "" : el("span", { class: "faint" }, text(usual) || "–"), mark, help];
}
