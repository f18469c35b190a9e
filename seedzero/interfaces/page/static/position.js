// Draws the position of a board game: cells of a grid or of hex, points of backgammon; any other text stays a text.

import { el } from "./dom.js";

const SIDES = ["free", "first side", "second side"];
const PIECES = { k: "♚", q: "♛", r: "♜", b: "♝", n: "♞", p: "♟" };

// board: of boards.py, or null. play(action): of a click on a free cell. names: of moves, by action. marks: {last: cells
// as "y,x", hinted: an action, shares: from 0 to 1, by action}. small: no names.
export function position(board, text, { play, names = new Map(), marks = {}, small = false } = {}) {
  if (!board) return el("pre", { class: "position" }, text);
  if (board.points) return points(board);
  const { kind, stones, actions, rows, columns } = board;
  const cell = (stone, y, x) => {
    const action = actions[y][x];
    const isFree = play && action !== null && (stone === 0 || kind === "connect_four");
    const isTarget = action !== null && stone === 0 && (kind !== "connect_four" || (stones[y + 1]?.[x] ?? 1) > 0);
    const share = isTarget ? marks.shares?.get(action) ?? null : null;
    const sign = board.pieces ? PIECES[board.pieces[y][x]] : kind === "tic_tac_toe" ? ["", "×", "○"][stone] : kind === "breakthrough" && stone ? PIECES.p : "";
    const state = [`stone-${stone}`, marks.last?.has(`${y},${x}`) ? "last" : "", isTarget && marks.hinted === action ? "hinted" : "", (x + y) % 2 ? "odd" : "", share === null ? "" : "share"];
    const label = `${columns[x]}${rows[y]}: ${SIDES[stone]}${isFree ? `, play ${names.get(action)}` : ""}`;
    const content = share === null ? sign ?? "" : `${Math.round(100 * share)}%`;
    const made = el(play ? "button" : "span", { ...(play ? { disabled: !isFree, "aria-label": label } : { title: label }), class: ["cell", ...state].filter(Boolean).join(" "), "data-action": isFree ? action : null, click: () => isFree && play(action) }, content);
    if (share !== null) made.style.setProperty("--share", `${Math.round(100 * share)}%`);
    return made;
  };
  const name = (one) => el("span", { class: "coordinate", "aria-hidden": "true" }, one);
  const lines = stones.map((row, y) => el("div", { class: "row" }, name(rows[y]), row.map((stone, x) => cell(stone, y, x))));
  const made = el("div", { class: `game-board ${kind}${small ? " small" : ""}` }, lines, el("div", { class: "row" }, name(""), columns.map(name)));
  made.style.setProperty("--columns", columns.length + (kind === "hex" ? rows.length / 2 : 0));
  if (kind === "hex") [...made.children].forEach((line, y) => line.style.setProperty("margin-left", `calc(var(--cell) * ${Math.min(y, rows.length) / 2})`));
  return made;
}

// Points 13 to 24 above, 12 to 1 below.
function points({ points: counts, rest }) {
  const point = (number) => {
    const count = counts[number - 1];
    const stone = el("span", { class: `cell stone-${count > 0 ? 1 : 2}` }, Math.abs(count) > 5 ? String(Math.abs(count)) : "");
    return el("div", { class: "point", title: `point ${number}: ${Math.abs(count)}` }, el("span", { class: "coordinate" }, String(number)), Array.from({ length: Math.min(5, Math.abs(count)) }, (_, place) => (place ? stone.cloneNode() : stone)));
  };
  const half = (first, step) => Array.from({ length: 12 }, (_, place) => point(first + step * place));
  return el("div", { class: "game-board backgammon" }, el("div", { class: "row" }, half(13, 1)), el("div", { class: "row below" }, half(12, -1)), el("pre", { class: "position" }, rest.join("\n")));
}

// Returns the cells, as "y,x", that a move has given a stone.
export function changed(before, after) {
  if (!before?.stones || !after?.stones) return new Set();
  return new Set(after.stones.flatMap((row, y) => row.flatMap((stone, x) => (stone && stone !== before.stones[y]?.[x] ? [`${y},${x}`] : []))));
}
