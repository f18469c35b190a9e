// Shows the page that the address names, such as #/run?run=NAME or #/compare?run=A&run=B.

import { get } from "./api.js";
import { comparePage } from "./compare.js";
import { about, el, heading, notice, remember, remembered } from "./dom.js";
import { counted } from "./format.js";
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

const OF_A_RUN = { run: runPage, league: leaguePage, settings: settingsPage, records: recordsPage, record: recordPage, runtime: runtimePage, game: gamePage, log: logPage };
const TITLES = { run: "curves", runtime: "runtime", game: "game", records: "records", log: "log", settings: "settings", league: "league" };
let page = null;
let opened = 0; // pages so far

async function show() {
  page?.close();
  page = null;
  const number = ++opened;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parameters = new URLSearchParams(query);
  const runs = parameters.getAll("run");
  const main = document.getElementById("main");
  const kind = path === "play" || (runs.length && (path === "compare" || path in OF_A_RUN)) ? path : "";
  notice("");
  document.getElementById("crumbs").replaceChildren(...crumbs(kind, runs[0]));
  document.getElementById("about").replaceChildren();
  const view = TITLES[kind === "record" ? "records" : kind] ?? "";
  heading({ compare: `${counted(new Set(runs).size, "run")} compared`, play: "Play", "": "Runs" }[kind] ?? (runs[0] === "." ? "" : runs[0]), view);
  if (view) get("api/run", { run: runs[0] }).then((found) => number === opened && about(found, view), () => {});
  if (number > 1) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
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
  const isCurrent = (name) => name === kind || (name === "records" && kind === "record");
  const back = kind && run !== "." ? [el("a", { href: "#/" }, "‹ all runs")] : [];
  if (!(kind in OF_A_RUN)) return back;
  return back.concat(Object.entries(TITLES).map(([name, text]) =>
    el("a", { class: `${name}-link`, hidden: name === "league" && !isCurrent(name), href: `#/${name}?${new URLSearchParams({ run })}`, "aria-current": isCurrent(name) ? "page" : null }, text),
  ));
}

const THEMES = { "": "◐", light: "☀", dark: "☾" };
const button = document.getElementById("theme");
function showTheme(theme) {
  window.applyTheme(theme);
  button.textContent = THEMES[theme];
  button.title = `theme: ${theme || "system"}`;
  button.setAttribute("aria-label", button.title);
  page?.repaint?.();
}
const theme = () => (remembered("theme", "") in THEMES ? remembered("theme", "") : "");
button.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  remember("theme", names[(names.indexOf(theme()) + 1) % names.length]);
  showTheme(theme());
});
showTheme(theme());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showTheme(theme()));
window.addEventListener("hashchange", show);
show();
