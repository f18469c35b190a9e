// Shows an observation: images, planes of grids and boards, tables of numbers, texts.
//
// An array is {name, dtype, shape, base64, low, high, text}: dtype uint8, int32 or float32, the bytes little-endian in
// C order, of the newest frame alone. low, high: bounds, null: none. text: whether it is UTF-8 with zeros behind its end.

import { el } from "./dom.js";
import { number } from "./format.js";

const DTYPES = { uint8: Uint8Array, int32: Int32Array, float32: Float32Array };
const SMALLEST_IMAGE = 32; // smaller grids are boards, whose channels are planes
const MAX_PLANES = 64;
const MAX_NUMBERS = 96;

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
  const title = arraysTitle(array);
  if (form.kind === "text") return textPart(title);
  if (form.kind === "numbers") return numbersPart(title, array);
  const label = (place) => (form.planes > 1 ? `${title}, channel ${place}` : title);
  const canvases = Array.from({ length: form.planes }, (_, place) =>
    el("canvas", { width: form.width, height: form.height, role: "img", "aria-label": label(place), title: label(place) }),
  );
  const more = form.kind === "planes" && form.channels > form.planes ? `; ${form.channels - form.planes} more channels` : "";
  const draw = (values, data) =>
    canvases.forEach((canvas, place) => {
      const bytes = pixels(data, form, place, form.kind === "image" && form.channels === 3 ? 3 : 1, range(data, values));
      canvas.getContext("2d").putImageData(new ImageData(bytes, form.width, form.height), 0, 0);
    });
  return { element: figure(`${title}${more}`, el("div", { class: form.planes > 1 ? "planes" : form.kind }, canvases)), draw };
}

function arraysTitle({ name, shape, dtype }) {
  return `${name || "observation"} ${shape.join(" × ")} ${dtype}`;
}

function figure(title, content) {
  return el("figure", {}, content, el("figcaption", { class: "faint" }, title));
}

function textPart(title) {
  const place = el("p", { class: "position" });
  const draw = (_, data) => {
    const end = data.indexOf(0);
    place.textContent = new TextDecoder().decode(end < 0 ? data : data.subarray(0, end));
  };
  return { element: figure(title, place), draw };
}

function numbersPart(title, { shape }) {
  const size = shape.reduce((product, side) => product * side, 1);
  const cells = Array.from({ length: Math.min(size, MAX_NUMBERS) }, () => el("li", {}));
  const more = size > cells.length ? `; the first ${cells.length}` : "";
  const draw = (_, data) => cells.forEach((cell, place) => (cell.textContent = number(data[place], 5)));
  return { element: figure(`${title}${more}`, el("ol", { class: "numbers", start: 0 }, cells)), draw };
}
