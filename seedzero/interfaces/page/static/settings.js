// All settings of a run, the given ones first, then by their marks.

import { get } from "./api.js";
import { el, notice, table } from "./dom.js";

export async function settingsPage(main, run) {
  const box = el("div", {});
  const search = el("input", { type: "search", placeholder: "find a setting", "aria-label": "find a setting", input: () => draw() });
  main.replaceChildren(el("div", { class: "tools" }, search), box);
  let rows = [];
  function draw() {
    const text = search.value.toLowerCase();
    const shown = rows.filter(([name, value]) => `${name}=${value}`.toLowerCase().includes(text));
    box.replaceChildren(table(["setting", "value", "given by the user", "mark"], shown, new Set(), "settings", true));
  }
  try {
    const { settings } = await get("api/run", { run });
    const given = new Set(Object.keys(settings.given));
    const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
    const all = Object.entries(settings.config).map(([name, value]) => [name, text(value), given.has(name) ? "yes" : "", settings.marks[name] ?? ""]);
    const place = (row) => (row[2] ? -1 : ["start here", "usual", "", "advanced"].indexOf(row[3]));
    rows = [["preset", settings.preset, "", ""], ...all.sort((one, other) => place(one) - place(other))];
    draw();
  } catch (error) {
    notice(error.message);
  }
  return { close: () => {} };
}
