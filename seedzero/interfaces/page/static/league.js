// The league of a run: win rates, ratings, lineage, decisions, NashConv and matches.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { el, notice, table } from "./dom.js";
import { counted, number } from "./format.js";

const EVERY_MILLISECONDS = 10000;

export async function leaguePage(main, run) {
  const head = el("p", { class: "faint" }, "reading…");
  const box = el("div", { class: "league" });
  main.replaceChildren(head, box);
  let charts = [];
  let timer = null;
  let isOver = false;
  let shown = "";

  function draw(league) {
    charts.forEach((chart) => chart.close());
    charts = [];
    const plots = [["NashConv by the judge", curves(league.judged)], ["Matches in each interval", matches(league.matches)]];
    const panels = plots.filter(([, found]) => found.length).map(([title, found]) => {
      const chart = new Chart(title, { x: "env_steps", zoomed: (range) => chart.show(found, range) });
      charts.push(chart);
      return [chart, found];
    });
    head.textContent = league.error || `after ${counted(league.update, "update")} and ${counted(league.env_steps, "step")}, of the newest checkpoint`;
    box.replaceChildren(
      ...(league.error ? [] : [heatmap(league.win_rates), ratings(league), ...nash(league, run), lineage(league.lineage)]),
      ...panels.map(([chart]) => chart.element),
      decisions(league.decisions),
    );
    panels.forEach(([chart, found]) => chart.show(found));
  }

  async function read() {
    if (!document.hidden) {
      try {
        const league = await get("api/league", { run });
        if (isOver) return;
        notice("");
        const text = JSON.stringify(league);
        if (text !== shown && !box.contains(document.activeElement)) {
          draw(league);
          shown = text;
        }
      } catch (error) {
        if (isOver) return;
        notice(error.message);
      }
    }
    timer = setTimeout(read, EVERY_MILLISECONDS);
  }
  read();
  const close = () => {
    isOver = true;
    clearTimeout(timer);
    charts.forEach((chart) => chart.close());
  };
  return { close, repaint: () => charts.forEach((chart) => chart.plot && chart.draw()) };
}

function curves(judged) {
  return Object.entries(judged).map(([label, [x, y]]) => ({ label, x, y, dots: true }));
}

function matches({ x, ...types }) {
  return Object.entries(types).map(([label, y]) => ({ label, x, y }));
}

// Red loses, blue wins, grey never met; the text of a square tells its players, rate, games and mean return.
// shares: mean returns from the smallest, 0, to the largest, 1, where these are the scores of matches.
function heatmap({ names, rates, games, returns, shares, num_players: numPlayers }) {
  const told = el("p", { class: "told", "aria-live": "polite" }, "point at a square, or move with the arrow keys");
  const cells = [];
  const tell = (row, column) => {
    const rate = rates[row][column];
    const rest = rate === null ? "no match" : `${rate.toFixed(3)} in ${counted(games[row][column], "game")}, mean return ${number(returns[row][column])}`;
    told.textContent = `${names[row]} against ${names[column]}: ${rest}`;
  };
  const cell = (row, column) => {
    const rate = (shares ?? rates)[row][column];
    const shown = () => (shares ? number(returns[row][column], 2) : String(Math.round(100 * rate)));
    const square = el("td", {
      tabindex: row || column ? -1 : 0, class: rate === null ? "square unmet" : `square ${rate > 0.5 ? "won" : "lost"}`,
      focus: () => tell(row, column), mouseenter: () => tell(row, column), keydown: (event) => move(event, row, column),
    }, names.length <= 16 && rate !== null ? shown() : "");
    if (rate !== null) square.style.setProperty("--share", `${Math.round(200 * Math.abs(rate - 0.5))}%`);
    return square;
  };
  function move(event, row, column) {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const next = steps && cells[row + steps[0]]?.[column + steps[1]];
    if (!next) return;
    event.preventDefault();
    cells[row][column].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
  names.forEach((_, row) => cells.push(names.map((__, column) => cell(row, column))));
  const heads = el("thead", {}, el("tr", {}, el("td", {}), names.map((name) => el("th", { scope: "col" }, el("span", {}, name)))));
  const left = names.length < numPlayers ? `; ${names.length} of ${numPlayers} players` : "";
  return el(
    "section",
    { class: "panel" },
    el("h2", {}, `${shares ? "Mean returns" : "Win rates"} of rows against columns${left}`),
    told,
    el("div", { class: "scroll" }, el("table", { class: "heat" }, heads, el("tbody", {}, cells.map((line, row) => el("tr", {}, el("th", { scope: "row" }, names[row]), line))))),
  );
}

function ratings({ ratings: points, games }) {
  const rows = Object.entries(points).sort((one, other) => other[1] - one[1]);
  const [low, high] = [Math.min(...rows.map((row) => row[1])), Math.max(...rows.map((row) => row[1]))];
  const bar = (value) => el("meter", { min: low, max: high > low ? high : low + 1, value, "aria-hidden": "true" });
  const shown = rows.map(([name, value]) => [name, bar(value), `${value > 0 ? "+" : ""}${value.toFixed(0)}`, number(games[name])]);
  return el("section", { class: "panel" }, el("h2", {}, "Elo"), table(["player", "", "rating", "games"], shown, new Set([2, 3]), "ratings"));
}

// The judge's numbers, once `seedzero league nash` has been called: an exact judgement takes minutes of a process.
function nash({ nash: found, has_seats: hasSeats }, run) {
  if (!found && !hasSeats) return [];
  const rows = found ? Object.entries(found.mixtures).map(([name, value]) => [name, value.toFixed(4)]) : [];
  const command = `seedzero league nash --run_dir=${run === "." ? "DIR" : `DIR/${run}`}`;
  const hint = el("p", { class: "faint" }, found ? `after ${counted(found.update, "update")}; 0 is an equilibrium; anew by ` : "not judged yet; judge the players by ", el("code", {}, command));
  return [el("section", { class: "panel" }, el("h2", {}, "NashConv"), ...(found ? [table(["mixture", "NashConv"], rows, new Set([1]), "NashConv")] : []), hint)];
}

function lineage(players) {
  const line = (event) => {
    const names = { add: `added as ${event.source}`, reset: `reset ${event.number} to ${event.source}`, retire: "retired" };
    const name = names[event.event] || event.player;
    const rest = [`update ${number(event.version)}`, `${number(event.env_steps)} steps`, event.reason, event.retired ? "retired" : ""];
    return el("li", {}, el("b", {}, name), ` ${rest.filter(Boolean).join("; ")}`);
  };
  const trees = players.map((player) =>
    el("details", { open: players.length === 1 && player.events.length < 20 }, el("summary", {}, `${player.name} (${player.kind}): ${counted(player.events.length, "event")}`), el("ol", { class: "lineage" }, player.events.map(line))),
  );
  return el("section", { class: "panel" }, el("h2", {}, "Lineage"), trees);
}

function decisions(lines) {
  const rest = (line) => Object.entries(line).filter(([name]) => !["event", "player", "version", "env_steps"].includes(name)).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("; ");
  const rows = [...lines].reverse().map((line) => [String(line.event ?? "–"), String(line.player ?? "–"), number(line.version), number(line.env_steps), rest(line)]);
  const content = rows.length ? table(["decision", "player", "update", "steps", "more"], rows, new Set([2, 3]), "decisions") : el("p", {}, "none yet");
  return el("section", { class: "panel" }, el("h2", {}, "Decisions, newest first"), content);
}
