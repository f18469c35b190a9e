// A plot of means over groups of runs with their intervals; read again while one of the runs trains.

import { whole } from "./api.js";
import { Chart } from "./chart.js";
import { chosenAxis, chosenSmoothing } from "./controls.js";
import { notice } from "./dom.js";
import { counted } from "./format.js";

const EVERY_MILLISECONDS = 10000;
const SETTLED_MILLISECONDS = 200;

export class Means {
  // runs: names; by: settings that group them, none: all but the seed; told: receives what is left out, as texts.
  constructor(box, runs, by, told) {
    Object.assign(this, { box, runs, by, told, panels: [], chart: null, range: null, number: 0, timer: null, isLive: false });
  }

  // Shows the first metric of the only panel, all of the course or a range of x.
  async show(panels, range = null) {
    const number = ++this.number;
    clearTimeout(this.timer);
    const isSame = JSON.stringify(panels) === JSON.stringify(this.panels) && this.chart;
    Object.assign(this, { panels, range });
    const metric = panels[0].metrics[0];
    const smooth = metric.startsWith("evaluation_") ? 1 : Math.round(1 / (1 - chosenSmoothing()));
    const axis = chosenAxis();
    const ends = range ? [["low", range[0]], ["high", range[1]]] : [];
    const parameters = [...this.runs.map((run) => ["run", run]), ...this.by.map((name) => ["by", name]), ["metric", metric], ["x", axis], ["smooth", smooth], ...ends];
    const found = await whole("api/curves", parameters, () => number === this.number && this.box.isConnected);
    if (!found) return;
    notice("");
    if (!isSame) this.build(panels[0].title);
    this.chart.x = axis;
    this.chart.show(found.curves.map((curve) => ({ ...curve, label: label(curve) })), range);
    const hidden = found.curves.filter((curve) => curve.hidden.length).map((curve) => `${label(curve)}: its runs differ in ${curve.hidden.join(", ")} too`);
    const short = found.curves.filter((curve) => curve.longest > curve.x.at(-1) && !range).map((curve) => `${label(curve)} ends with its shortest run`);
    this.told([...Object.entries(found.left_out).map(([run, reason]) => `${run} is left out: ${reason}`), ...hidden, ...short]);
    if (this.isLive) this.again(EVERY_MILLISECONDS);
  }

  build(title) {
    this.chart?.close();
    this.chart = new Chart(title, { x: chosenAxis(), height: 420, zoomed: (range) => this.show(this.panels, range).catch(notice) });
    this.box.replaceChildren(this.chart.element);
  }

  again(milliseconds) {
    clearTimeout(this.timer);
    const failed = (error) => {
      notice(error);
      if (this.isLive && this.box.isConnected) this.again(EVERY_MILLISECONDS);
    };
    const look = () => (document.hidden ? this.again(milliseconds) : this.show(this.panels, this.range).catch(failed));
    this.timer = setTimeout(look, milliseconds);
  }

  // Asks again: for another smoothing, once the slider stands still, or for the colours of another theme.
  repaint() {
    if (this.panels.length) this.again(SETTLED_MILLISECONDS);
  }

  close() {
    this.number++;
    clearTimeout(this.timer);
    this.chart?.close();
  }
}

function label(curve) {
  return curve.runs.length === 1 ? curve.label || curve.runs[0] : `${curve.label || "mean"} (${counted(curve.runs.length, "run")})`;
}
