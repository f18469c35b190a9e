// The league of a run: win rates, ratings, lineage, decisions, NashConv and matches.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { aside, el, fold, notice, panel, svg, table } from "./dom.js";
import { counted, number } from "./format.js";

const EVERY_MILLISECONDS = 10000;

export async function leaguePage(main, run) {
  const head = aside("reading…");
  const box = el("div", { class: "league" });
  main.replaceChildren(head, box);
  let charts = [];
  let timer = null;
  let isOver = false;
  let shown = "";

  function draw(league) {
    charts.forEach((chart) => chart.close());
    const name = namer(league.lineage ?? []);
    const plots = [["Elo, with 95 % intervals", league.error ? [] : ratings(league, name)], ["NashConv by the judge", judged(league.judged)], ["Matches in each interval", matches(league.matches)]];
    const shown = plots.filter(([, found]) => found.length);
    charts = shown.map(([title, found], place) => {
      const chart = new Chart(title, { x: "env_steps", height: place ? 180 : 300, zoomed: (range) => chart.show(found, range) });
      return chart;
    });
    head.textContent = league.error || `after ${counted(league.update, "update")} and ${counted(league.env_steps, "step")}, of the newest checkpoint`;
    const [elo, ...rest] = charts.map((chart) => chart.element);
    box.replaceChildren(
      ...(league.error ? [] : [heatmap(league.win_rates, name), elo ?? "", meetings(league, name), ratingTable(league, name), ...nash(league), fold("Lineage", lineage(league.lineage, name))]),
      ...(league.error && elo ? [elo] : []),
      ...rest,
      fold("Decisions", decisions(league.decisions, name)),
    );
    charts.forEach((chart, place) => chart.show(shown[place][1]));
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
        head.textContent = error.message;
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

// Returns a function of short names: main-85d0c4e9fa89, the second snapshot, is main #2.
function namer(players) {
  const frozen = players.flatMap(({ name, events }) => events.filter((one) => one.player && one.player !== name).map((one, place) => [one.player, `${name} #${place + 1}`]));
  const names = new Map(frozen);
  return (name) => names.get(name) ?? name;
}

// Returns the ratings of each learning player's snapshots, over the steps at which they were frozen, and its own now.
function ratings({ ratings: found, lineage: players, env_steps: now }) {
  return players.flatMap(({ name, events }) => {
    const points = [...events.filter((one) => one.player && one.player !== name).map((one) => [one.env_steps, found[one.player]]), [now, found[name]]].filter(([, rating]) => rating);
    const ends = (sign) => points.map(([, [value, error]]) => value + sign * 1.96 * error);
    return points.length ? [{ label: name, x: points.map(([x]) => x), y: ends(0), low: ends(-1), high: ends(1), isWhole: true }] : [];
  });
}

// Who met whom: a row for each learning player, a dot for each snapshot at its step, and an arc for each pair that met.
function meetings({ win_rates: { names, rates, games }, lineage: players, env_steps: now }, name) {
  const [width, left, row] = [1000, 130, 70];
  const places = new Map();
  const x = (steps) => left + ((width - left - 20) * steps) / Math.max(1, now);
  players.forEach((player, lane) => {
    const y = row * (lane + 0.75);
    for (const one of player.events) if (one.player && names.includes(one.player)) places.set(one.player, [x(one.env_steps), y]);
    places.set(player.name, [x(now), y]);
  });
  const most = Math.max(1, ...games.flat().filter(Number.isFinite));
  const arcs = names.flatMap((one, i) => names.slice(0, i).map((other, j) => ({ one, other, i, j, games: games[i][j] }))).filter(({ one, other, games: number }) => number && places.has(one) && places.has(other));
  const arc = ({ one, other, i, j, games: number }) => {
    const [[x1, y1], [x2, y2]] = [places.get(one), places.get(other)];
    const style = { d: `M${x1} ${y1} Q${(x1 + x2) / 2} ${(y1 + y2) / 2 - Math.min(60, Math.abs(x2 - x1) / 3) - (y1 === y2 ? 6 : 0)} ${x2} ${y2}`, class: rates[i][j] > 0.5 ? "won" : "lost", "stroke-width": 0.5 + 4 * (number / most), opacity: 0.25 + 0.6 * (number / most) };
    return svg("path", style, svg("title", {}, `${name(one)} – ${name(other)}: ${counted(number, "game")}, ${name(one)} scored ${rates[i][j]?.toFixed(2) ?? "–"}`));
  };
  const dots = [...places].map(([one, [cx, cy]]) => svg("circle", { cx, cy, r: one.includes("-") ? 5 : 7 }, svg("title", {}, name(one))));
  const labels = players.map((player, lane) => svg("text", { x: 0, y: row * (lane + 0.75) + 5 }, player.name));
  const picture = svg("svg", { class: "meetings", viewBox: `0 0 ${width} ${row * players.length + 10}`, role: "img", "aria-label": "who met whom" }, arcs.map(arc), dots, labels);
  return panel("Who met whom", el("p", { class: "told" }, "dots: players at the steps at which they were frozen; wide arcs: many games; blue: the later one scored more than half"), el("div", { class: "scroll" }, picture));
}

const judged = (found) => Object.entries(found).map(([label, [x, y]]) => ({ label, x, y, dots: true }));

function matches({ x, ...types }) {
  return Object.entries(types).map(([label, y]) => ({ label: label.replaceAll("_", " "), x, y }));
}

// Orange loses, blue wins, a dot never met; the text of a square tells its players, rate, games and mean return.
// shares: mean returns from the smallest, 0, to the largest, 1, where these are the scores of matches.
function heatmap({ names, rates, games, returns, shares, num_players: numPlayers }, name) {
  const told = el("p", { class: "told", "aria-live": "polite" }, "point at a square, or move with the arrow keys");
  const cells = [];
  const tell = (row, column) => {
    const rate = rates[row][column];
    const rest = rate === null ? "no match" : `${rate.toFixed(3)} in ${counted(games[row][column], "game")}, mean return ${number(returns[row][column])}`;
    told.textContent = `${name(names[row])} against ${name(names[column])}: ${rest}`;
  };
  const cell = (row, column) => {
    const rate = (shares ?? rates)[row][column];
    const shown = () => (shares ? number(returns[row][column], 2) : String(Math.round(100 * rate)));
    const square = el("td", {
      tabindex: row || column ? -1 : 0, class: rate === null ? "square unmet" : `square ${rate > 0.5 ? "won" : "lost"}`,
      focus: () => tell(row, column), mouseenter: () => tell(row, column), keydown: (event) => move(event, row, column),
    }, rate === null ? "·" : shown());
    if (rate !== null) square.style.setProperty("--share", `${Math.round(120 * Math.abs(rate - 0.5))}%`);
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
  const heads = el("thead", {}, el("tr", {}, el("td"), names.map((one) => el("th", { scope: "col", title: one }, el("span", {}, name(one))))));
  const left = names.length < numPlayers ? `; ${names.length} of ${numPlayers} players` : "";
  const body = el("tbody", {}, cells.map((line, row) => el("tr", {}, el("th", { scope: "row", title: names[row] }, name(names[row])), line)));
  const title = `${shares ? "Mean returns" : "Win rates, %,"} of rows against columns${left}`;
  return panel(title, told, el("div", { class: "scroll" }, el("table", { class: `heat${names.length > 10 ? " many" : ""}` }, heads, body)));
}

function ratingTable({ ratings: points, games }, name) {
  const rows = Object.entries(points).sort((one, other) => other[1][0] - one[1][0]);
  const shown = rows.map(([one, [value, error]]) => [el("span", { title: one }, name(one)), `${value > 0 ? "+" : ""}${value.toFixed(0)} ± ${(1.96 * error).toFixed(0)}`, number(games[one])]);
  return panel("Elo", table(["player", "rating", "games"], shown, new Set([1, 2]), "ratings"));
}

// The judge's numbers, once `seedzero league nash` has been called: an exact judgement takes minutes of a process.
function nash({ nash: found, has_seats: hasSeats, run_dir: runDir }) {
  if (!found && !hasSeats) return [];
  const rows = found ? Object.entries(found.mixtures).map(([name, value]) => [name, value.toFixed(4)]) : [];
  const command = `seedzero league nash --run_dir=${runDir}`;
  const hint = aside(found ? `after ${counted(found.update, "update")}; 0 is an equilibrium; anew by ` : "not judged yet; judge the players by ", el("code", {}, command));
  return [panel("NashConv", ...(found ? [table(["mixture", "NashConv"], rows, new Set([1]), "NashConv")] : []), hint)];
}

function lineage(players, name) {
  const line = (event) => {
    const names = { add: `added as ${event.source}`, reset: `reset ${event.number} to ${event.source}`, retire: "retired" };
    const title = names[event.event] || name(event.player);
    const rest = [`update ${number(event.version)}`, `${number(event.env_steps)} steps`, event.reason, event.retired ? "retired" : ""];
    return el("li", {}, el("b", { title: event.player }, title), ` ${rest.filter(Boolean).join("; ")}`);
  };
  const trees = players.map((player) =>
    el("details", { open: players.length === 1 && player.events.length < 20 }, el("summary", {}, `${player.name} (${player.kind}): ${counted(player.events.length, "event")}`), el("ol", { class: "lineage" }, player.events.map(line))),
  );
  return trees;
}

function decisions(lines, name) {
  const rest = (line) => Object.entries(line).filter(([name]) => !["event", "player", "version", "env_steps"].includes(name)).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("; ");
  const rows = [...lines].reverse().map((line) => [String(line.event ?? "–"), name(String(line.player ?? "–")), number(line.version), number(line.env_steps), rest(line)]);
  return rows.length ? table(["decision", "player", "update", "steps", "more"], rows, new Set([2, 3]), "decisions, newest first") : el("p", {}, "none yet");
}
