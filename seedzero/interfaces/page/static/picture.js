// Shows an observation: images, planes of grids and boards, bars of numbers, texts.
//
// An array is {name, dtype, shape, base64, low, high, text}: dtype uint8, int32 or float32, the bytes little-endian in
// C order, of the newest frame alone. low, high: bounds, null: none. text: whether it is UTF-8 with zeros behind its end.

import { el } from "./dom.js";
import { number } from "./format.js";

const DTYPES = { uint8: Uint8Array, int32: Int32Array, float32: Float32Array };
const SMALLEST_IMAGE = 32; // smaller grids are boards, whose channels are planes
const MAX_PLANES = 64;
const MAX_NUMBERS = 96;
const MAX_COLORED = 32; // channels
const COLORS = [[0, 114, 178], [213, 94, 0], [0, 122, 88], [168, 70, 127], [204, 160, 0], [86, 180, 233], [122, 74, 33], [100, 116, 139]];

// Returns the numbers of an array. Throws for another dtype or number of bytes.
export function decode({ dtype, shape, base64 }) {
  const kind = DTYPES[dtype];
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const size = shape.reduce((product, side) => product * side, 1);
  if (!kind || bytes.length !== size * kind.BYTES_PER_ELEMENT) throw new Error(`an observation of ${dtype} [${shape}] has ${bytes.length} bytes`);
  return new kind(bytes.buffer);
}

// Returns how an array is shown: {kind, height, width, channels, planes}; kind: image, planes, numbers or text.
export function layout({ shape, text }) {
  if (text) return { kind: "text" };
  const [height, width, channels = 1] = shape;
  if (shape.length !== 2 && shape.length !== 3) return { kind: "numbers" };
  const isImage = Math.min(height, width) >= SMALLEST_IMAGE && (channels === 3 || channels === 1);
  return { kind: isImage ? "image" : "planes", height, width, channels, planes: isImage ? 1 : Math.min(channels, MAX_PLANES) };
}

// Returns RGBA of one picture; first: its channel; count: 3: red, green and blue; 1: grey. range: [black, white].
export function pixels(values, { height, width, channels }, first, count, [low, high]) {
  const found = new Uint8ClampedArray(height * width * 4);
  const scale = high > low ? 255 / (high - low) : 0;
  for (let cell = 0; cell < height * width; cell++) {
    for (let color = 0; color < 3; color++) {
      found[4 * cell + color] = (values[cell * channels + first + (count === 3 ? color : 0)] - low) * scale;
    }
    found[4 * cell + 3] = 255;
  }
  return found;
}

// Returns [black, white]: the bounds of bytes, else the bounds, else the smallest and the largest number.
export function range(values, { dtype, low, high }) {
  const isKnown = Number.isFinite(low) && Number.isFinite(high) && low < high;
  if (isKnown && high - low < 1e6) return [low, high];
  if (dtype === "uint8" && values.some((value) => value > 1)) return [0, 255];
  let [least, most] = [0, 1];
  for (const value of values) {
    if (value < least) least = value;
    if (value > most && value < Infinity) most = value;
  }
  return [Math.max(least, -1e30), most];
}

// The pictures of an observation's arrays; elements are made anew only where the shapes change.
export class Picture {
  constructor() {
    this.element = el("div", { class: "pictures" });
    this.form = "";
    this.parts = [];
  }

  // arrays: of one observation.
  show(arrays) {
    const form = JSON.stringify(arrays.map(({ name, dtype, shape, text }) => [name, dtype, shape, text]));
    if (form !== this.form) {
      this.parts = arrays.map(build);
      this.element.replaceChildren(...this.parts.map((part) => part.element));
      this.form = form;
    }
    arrays.forEach((array, place) => this.parts[place].draw(array, decode(array)));
  }
}

function build(array) {
  const form = layout(array);
  const title = `${array.name || "observation"} ${array.shape.join(" × ")} ${array.dtype}`;
  if (form.kind === "text") return textPart(title);
  if (form.kind === "numbers") return barsPart(title, array);
  const apart = planesPart(title, form);
  if (form.kind === "image" || form.channels === 1 || form.channels > MAX_COLORED) return apart;
  const whole = boardPart(title, form);
  whole.element.append(el("details", {}, el("summary", { class: "faint" }, "each channel"), apart.element));
  return { element: whole.element, draw: (...parts) => [whole, apart].forEach((one) => one.draw(...parts)) };
}

const canvas = ({ width, height }, label) => el("canvas", { width, height, role: "img", "aria-label": label, title: label });
const paint = (place, bytes, { width, height }) => place.getContext("2d").putImageData(new ImageData(bytes, width, height), 0, 0);
const figure = (title, ...content) => el("figure", {}, content, el("figcaption", { class: "faint" }, title));

function planesPart(title, form) {
  const isColored = form.kind === "image" && form.channels === 3;
  const canvases = Array.from({ length: form.planes }, (_, place) => canvas(form, form.planes > 1 ? `${title}, channel ${place}` : title));
  const more = form.kind === "planes" && form.channels > form.planes ? `; ${form.channels - form.planes} more channels` : "";
  const draw = (values, data) => canvases.forEach((one, place) => paint(one, pixels(data, form, place, isColored ? 3 : 1, range(data, values)), form));
  return { element: figure(`${title}${more}`, el("div", { class: form.planes > 1 ? "planes" : form.kind }, canvases)), draw };
}

// Returns RGBA of a grid of channels: each cell has the colour of its last channel above 0; without any it is transparent.
export function cells(values, { height, width, channels }) {
  const found = new Uint8ClampedArray(height * width * 4);
  for (let cell = 0; cell < height * width; cell++) {
    let channel = channels - 1;
    while (channel >= 0 && !(values[cell * channels + channel] > 0)) channel--;
    if (channel < 0) continue;
    const shade = 1 / (1 + Math.floor(channel / COLORS.length));
    COLORS[channel % COLORS.length].forEach((part, place) => (found[4 * cell + place] = part * shade));
    found[4 * cell + 3] = 255;
  }
  return found;
}

// A grid of several channels as one coloured picture (boards, MinAtar).
function boardPart(title, form) {
  const place = canvas(form, `${title}, all channels`);
  const swatches = Array.from({ length: form.channels }, (_, channel) => {
    const mark = el("span", { class: "swatch" });
    const [red, green, blue] = cells([...Array(channel).fill(0), 1], { height: 1, width: 1, channels: channel + 1 });
    mark.style.background = `rgb(${red} ${green} ${blue})`;
    return el("li", {}, mark, String(channel));
  });
  return { element: el("figure", { class: "board" }, place, el("figcaption", { class: "faint" }, `${title}; channels:`), el("ul", { class: "swatches" }, swatches)), draw: (_, data) => paint(place, cells(data, form), form) };
}

function textPart(title) {
  const place = el("p", { class: "position" });
  const draw = (_, data) => {
    const end = data.indexOf(0);
    place.textContent = new TextDecoder().decode(end < 0 ? data : data.subarray(0, end));
  };
  return { element: figure(title, place), draw };
}

// A vector as bars, from the lowest to the highest number seen so far in each place.
function barsPart(title, { shape }) {
  const size = shape.reduce((product, side) => product * side, 1);
  const rows = Array.from({ length: Math.min(size, MAX_NUMBERS) }, () => ({ text: el("span"), bar: el("meter", { min: -1, max: 1, value: 0, "aria-hidden": "true" }), low: 0, high: 0 }));
  const draw = (_, data) =>
    rows.forEach((row, place) => {
      const value = data[place];
      [row.low, row.high] = [Math.min(row.low, value), Math.max(row.high, value)];
      row.text.textContent = number(value, 4);
      Object.assign(row.bar, { min: row.low, max: row.high > row.low ? row.high : row.low + 1, value });
    });
  const more = size > rows.length ? `; the first ${rows.length}` : "";
  const list = el("ol", { class: "bars", start: 0 }, rows.map(({ text, bar }) => el("li", {}, bar, " ", text)));
  return { element: more ? el("details", {}, el("summary", { class: "faint" }, `${title}${more}`), list) : figure(title, list), draw };
}
