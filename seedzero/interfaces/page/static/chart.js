// A plot of several curves, each with x of its own: smoothing, zoom by pointer and keys, both themes.

import { el, panel } from "./dom.js";
import { clock, hasInterval, limits, short, smooth, ticks } from "./format.js";

const AXIS_WORDS = { env_steps: "step", seconds: "time" };
const NUM_COLORS = 8;
// Distances of ticks in seconds: whole minutes, hours and days.
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000];
const KEYS = "arrows: move; + and -: zoom; 0: all";

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function faint(value) {
  return `${value}50`;
}

export class Chart {
  // x: seconds, env_steps or update. zoomed: receives [low, high] or null: all. smoothing: weight from 0 to 1.
  constructor(title, { x, smoothing = 0, zoomed = () => {}, height = 180 }) {
    Object.assign(this, { title, x, smoothing, zoomed, height, curves: [], range: null, plot: null });
    this.box = el("div", { class: "plot", tabindex: 0, role: "img", "aria-label": `${title}; ${KEYS}`, keydown: (event) => this.press(event) });
    this.note = el("p", { class: "faint few" });
    this.element = panel(title, this.box, this.note);
    this.observer = new ResizeObserver(() => this.plot && this.box.clientWidth && this.plot.setSize({ width: this.box.clientWidth, height: this.height }));
    this.observer.observe(this.box);
  }

  // curves: [{label, x, y, means, dots, few}]; means: {x, y, rows} of all rows, where x and y are the extremes alone;
  // few: end of the part that stands for few episodes; range: the shown part of x, null: all. A mean of runs has its
  // interval, low and high, and the runs themselves, lines.
  show(curves, range = null) {
    this.curves = curves.map((curve, place) => ({ place, ...curve }));
    this.range = range;
    this.draw();
  }

  // Adds points to the curve of a label.
  append(label, x, y) {
    const curve = this.curves.find((one) => one.label === label);
    if (!curve || this.range) return false;
    curve.x = curve.x.concat(x);
    curve.y = curve.y.concat(y);
    if (curve.means) curve.means = { x: curve.means.x.concat(x), y: curve.means.y.concat(y), rows: curve.means.rows.concat(x.map(() => 1)) };
    return true;
  }

  tables(curve) {
    const raw = [curve.x, curve.y];
    const { x, y, rows = null } = curve.means || curve;
    return this.isSmooth(curve) ? [raw, [x, smooth(y, this.smoothing, rows)]] : [raw, ...around(curve).map((values) => [curve.x, values])];
  }

  isSmooth(curve) {
    return this.smoothing > 0 && !curve.dots && !around(curve).length;
  }

  data() {
    return joined(this.curves.flatMap((curve) => this.tables(curve)));
  }

  // Draws anew: after other curves, another theme or smoothing.
  draw() {
    this.plot?.destroy();
    const [ink, grid] = [color("--ink"), color("--line")];
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const texts = this.x === "seconds" ? clock : short;
    this.plot = new uPlot(
      {
        width: Math.max(200, this.box.clientWidth),
        height: this.height,
        padding: [8, 24, 0, 0],
        scales: { x: { time: false }, ...(this.curves.some((curve) => around(curve).length) ? { y: { range: () => limits(this.curves) } } : {}) },
        bands: this.bands(),
        axes: [{ ...axis, values: ticks(texts), space: 70, size: 30, ...(this.x === "seconds" ? { incrs: STEPS } : {}) }, { ...axis, values: ticks(short), size: 56, space: 34 }],
        cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "page" }, dataIdx: (plot, place, index) => (place ? newest(plot.data[place], index) : index) },
        series: [{ label: AXIS_WORDS[this.x] ?? this.x, value: (_, value) => (value === null ? "" : texts(value)) }, ...this.lines()],
        hooks: { setSelect: [(plot) => this.select(plot)], drawClear: [(plot) => this.shade(plot)] },
        legend: { live: true },
      },
      this.data(),
      this.box,
    );
    if (this.range) this.plot.setScale("x", { min: this.range[0], max: this.range[1] });
  }

  // Shades the part in which returns are those of few episodes.
  shade(plot) {
    const few = Math.max(...this.curves.map((curve) => curve.few ?? -Infinity));
    const { left, top, width, height } = plot.bbox;
    const shaded = few > -Infinity ? Math.min(width, plot.valToPos(few, "x", true) - left) : 0;
    const isShown = shaded > 2;
    this.note.textContent = isShown ? "shaded: of fewer than 20 episodes so far" : "";
    if (!isShown) return;
    plot.ctx.fillStyle = `${color("--warn")}22`;
    plot.ctx.fillRect(left, top, shaded, height);
  }

  // Returns the areas between the lines of intervals; the lines are numbered from 1.
  bands() {
    let end = 1;
    return this.curves.flatMap((curve) => {
      end += this.tables(curve).length;
      return hasInterval(curve) ? [{ series: [end - 1, end - 2], fill: `${this.stroke(curve)}2e` }] : [];
    });
  }

  stroke(curve) {
    return color(`--curve-${curve.place % NUM_COLORS}`);
  }

  // The legend shows the newest values, or those at the pointer.
  lines() {
    const value = (plot, found, place, index) => short(index === null ? plot.data[place].findLast((one) => one !== null && one !== undefined) : found);
    const line = (label, stroke, width, points) => ({ label, stroke, width, spanGaps: true, points, value });
    return this.curves.flatMap((curve) => {
      const stroke = this.stroke(curve);
      if (curve.dots) return [line(curve.label, stroke, 1.5, { show: true, size: 5 })];
      const few = { show: curve.x.length < 60, size: 4 };
      const raw = (width) => ({ ...line(curve.label, faint(stroke), width, { show: false }), class: "raw" });
      if (around(curve).length) return [line(curve.label, stroke, 2.5, few), ...(curve.lines ?? []).map(() => raw(1)), ...(hasInterval(curve) ? [raw(0), raw(0)] : [])];
      return this.isSmooth(curve) ? [raw(1), line(curve.label, stroke, 2, { show: false })] : [line(curve.label, stroke, 1.5, few)];
    });
  }

  // Shows appended points.
  redraw() {
    this.plot?.setData(this.data());
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    this.zoomed([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  }

  press(event) {
    if (!this.plot || event.ctrlKey || event.metaKey || event.altKey) return;
    const { min, max } = this.plot.scales.x;
    const [middle, half] = [(min + max) / 2, (max - min) / 2];
    const ranges = { ArrowLeft: () => [min - half / 2, max - half / 2], ArrowRight: () => [min + half / 2, max + half / 2], "+": () => [middle - half / 2, middle + half / 2], "-": () => [middle - 2 * half, middle + 2 * half], 0: () => null };
    if (!(event.key in ranges) || !Number.isFinite(half)) return;
    event.preventDefault();
    this.zoomed(ranges[event.key]());
  }

  close() {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
}

// Returns what is drawn around a mean: its runs, and both ends of the interval.
function around(curve) {
  return [...(curve.lines ?? []), ...(hasInterval(curve) ? [curve.low, curve.high] : [])];
}

// Returns the place of the last value up to a place, or else of the first.
function newest(values, index) {
  const isThere = (value) => value !== null && value !== undefined;
  while (index >= 0 && !isThere(values[index])) index--;
  return index >= 0 ? index : values.findIndex(isThere);
}

function joined(tables) {
  return tables.length ? uPlot.join(tables.map(distinct)) : [[]];
}

// Returns a table in which each x stands once, with the last of its values: `uPlot.join` needs it.
function distinct([x, y]) {
  const kept = x.map((value, place) => value !== null && value !== x[place + 1]);
  return [x.filter((_, place) => kept[place]), y.filter((_, place) => kept[place])];
}
