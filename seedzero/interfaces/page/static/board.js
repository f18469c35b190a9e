// A grid of several channels as one coloured picture (boards, MinAtar); a vector as bars.

import { el } from "./dom.js";
import { number } from "./format.js";
import { decode, layout } from "./picture.js";

const COLORS = [
  [11, 98, 196], [234, 88, 12], [22, 163, 74], [147, 51, 234], [219, 39, 119], [8, 145, 178], [202, 138, 4], [100, 116, 139],
];
const MAX_CHANNELS = 32;
const MAX_BARS = 64;

// Returns whether an array is shown as a board.
export function isBoard(array) {
  const { kind, channels } = layout(array);
  return kind === "planes" && channels > 1 && channels <= MAX_CHANNELS;
}

// Returns RGBA of a board: each cell has the colour of its last channel above 0; without any it is transparent.
export function cells(values, { height, width, channels }) {
  const found = new Uint8ClampedArray(height * width * 4);
  for (let cell = 0; cell < height * width; cell++) {
    for (let channel = channels - 1; channel >= 0; channel--) {
      if (!(values[cell * channels + channel] > 0)) continue;
      const shade = 1 / (1 + Math.floor(channel / COLORS.length));
      COLORS[channel % COLORS.length].forEach((part, place) => (found[4 * cell + place] = part * shade));
      found[4 * cell + 3] = 255;
      break;
    }
  }
  return found;
}

// The board of an array; `draw` takes the array with its bytes.
export function board(array) {
  const form = layout(array);
  const canvas = el("canvas", { width: form.width, height: form.height, role: "img", "aria-label": `${array.name}, all channels` });
  const swatches = Array.from({ length: form.channels }, (_, channel) => {
    const mark = el("span", { class: "swatch" });
    const one = cells([...Array(channel).fill(0), 1], { height: 1, width: 1, channels: channel + 1 });
    mark.style.background = `rgb(${one[0]} ${one[1]} ${one[2]})`;
    return el("li", {}, mark, String(channel));
  });
  const draw = (shown) => canvas.getContext("2d").putImageData(new ImageData(cells(decode(shown), form), form.width, form.height), 0, 0);
  return { element: el("figure", { class: "board" }, canvas, el("figcaption", { class: "faint" }, "channels"), el("ul", { class: "swatches" }, swatches)), draw };
}

// Returns whether an array is shown as bars.
export function isVector(array) {
  return layout(array).kind === "numbers" && array.shape.reduce((product, side) => product * side, 1) <= MAX_BARS;
}

// The bars of a vector, from the lowest to the highest number seen so far in each place; `draw` as of `board`.
export function vector(array) {
  const rows = Array.from({ length: array.shape.reduce((product, side) => product * side, 1) }, () => ({
    text: el("span", {}), bar: el("meter", { min: -1, max: 1, value: 0, "aria-hidden": "true" }), low: 0, high: 0,
  }));
  const draw = (shown) => {
    decode(shown).forEach((value, place) => {
      const row = rows[place];
      [row.low, row.high] = [Math.min(row.low, value), Math.max(row.high, value)];
      row.text.textContent = number(value, 4);
      Object.assign(row.bar, { min: row.low, max: row.high > row.low ? row.high : row.low + 1, value });
    });
  };
  const list = el("ol", { class: "bars", start: 0 }, rows.map(({ text, bar }) => el("li", {}, bar, " ", text)));
  return { element: el("figure", {}, list, el("figcaption", { class: "faint" }, `${array.name} ${array.shape.join(" × ")} ${array.dtype}`)), draw };
}
