// Shows the page that the address names: #/, #/run?run=NAME, #/compare?run=A&run=B, #/league, #/settings, #/records,
// #/record?run=NAME&record=FILE&step=N, #/runtime, #/game?run=NAME&environment=N, #/log, #/play.

import { get } from "./api.js";
import { comparePage } from "./compare.js";
import { el, notice, remember, remembered, showLeague } from "./dom.js";
import { gamePage } from "./game.js";
import { leaguePage } from "./league.js";
import { logPage } from "./log.js";
import { playPage } from "./play.js";
import { recordPage } from "./record.js";
import { recordsPage } from "./records.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";
import { runtimePage } from "./runtime.js";
import { settingsPage } from "./settings.js";

const OF_A_RUN = {
  run: runPage, league: leaguePage, settings: settingsPage, records: recordsPage, record: recordPage, runtime: runtimePage, game: gamePage, log: logPage,
};
const TITLES = { run: "curves", runtime: "runtime", game: "game", records: "records", log: "log", settings: "settings", league: "league" };
let page = null;
let opened = 0; // pages so far

async function show() {
  if (page) page.close();
  page = null;
  const number = ++opened;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = new URLSearchParams(query);
  const runs = parameters.getAll("run");
  const main = document.getElementById("main");
  const kind = path in OF_A_RUN && runs.length ? path : path === "compare" && runs.length ? "compare" : path === "play" ? "play" : "";
  notice("");
  document.getElementById("crumbs").replaceChildren(...(kind in OF_A_RUN ? crumbs(kind, runs[0]) : []));
  document.title = kind ? `${runs.join(", ") || kind} · seedzero` : "seedzero";
  if (number > 1) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  if (["runtime", "game"].includes(kind)) get("api/run", { run: runs[0] }).then((found) => showLeague(found.has_league), () => {});
  const place = el("div", {}, el("p", {}, "reading…")); // where a page draws that the user has left, nobody sees it
  main.replaceChildren(place);
  const found = await makePage(kind, place, runs, parameters);
  if (number === opened) page = found;
  else found.close();
}

function makePage(kind, place, runs, parameters) {
  if (kind === "play") return playPage(place);
  if (kind === "compare") return comparePage(place, runs, parameters);
  return kind ? OF_A_RUN[kind](place, runs[0], parameters) : runsPage(place);
}

function crumbs(kind, run) {
  return Object.entries(TITLES).map(([name, text]) =>
    el("a", { class: `${name}-link`, href: `#/${name}?${new URLSearchParams({ run })}`, "aria-current": name === kind || (name === "records" && kind === "record") ? "page" : null }, text),
  );
}

const THEMES = ["", "light", "dark"];
const button = document.getElementById("theme");
function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.textContent = `theme: ${theme || "system"}`;
  if (page && page.repaint) page.repaint();
}
button.addEventListener("click", () => {
  const next = THEMES[(THEMES.indexOf(remembered("theme", "")) + 1) % THEMES.length];
  remember("theme", next);
  applyTheme(next);
});
applyTheme(document.documentElement.dataset.theme || "");
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page && page.repaint && page.repaint());
window.addEventListener("hashchange", show);
show();
