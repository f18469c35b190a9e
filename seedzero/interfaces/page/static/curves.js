// Plots of the metrics of one or several runs, kept up to date by one stream.

import { follow, whole } from "./api.js";
import { Chart } from "./chart.js";
import { chosenAxis, chosenSmoothing } from "./controls.js";
import { el, fold, notice } from "./dom.js";

const MAX_APPENDED = 4000;

export class Curves {
  // panels: [{title, metrics, group, height}]; runs: names; label(run, metric): of a curve; summary: receives new summaries; names:
  // receives the metrics of new rows.
  constructor(box, runs, label, summary = () => {}, names = () => {}) {
    Object.assign(this, { box, runs, label, summary, names, panels: [], charts: [], range: null, end: null, number: 0, appended: 0 });
  }

  // Shows panels, all of the course or a range of x.
  async show(panels, range = null) {
    const number = ++this.number; // an older call ends at its next step
    const alive = () => number === this.number && this.box.isConnected;
    const isSame = JSON.stringify(panels) === JSON.stringify(this.panels) && this.charts.length;
    this.panels = panels;
    this.range = range;
    this.end?.();
    if (!isSame) this.build();
    const axis = chosenAxis();
    const options = Object.entries({ x: axis, buckets: 600, ...(range ? { low: range[0], high: range[1] } : {}) });
    const metrics = [...new Set(panels.flatMap((panel) => panel.metrics))].slice(0, 64).map((name) => ["metric", name]);
    const found = {};
    const cursors = {};
    for (const run of this.runs) {
      const answer = await whole("api/series", [["run", run], ...metrics, ...options], alive);
      if (!answer) return;
      found[run] = { series: answer.series, few: answer.few_until };
      cursors[run] = answer.cursor;
    }
    notice("");
    this.charts.forEach((chart, place) => {
      chart.x = axis;
      chart.smoothing = chosenSmoothing();
      chart.show(this.curvesOf(panels[place], found), range);
    });
    this.appended = 0;
    this.end = follow(cursors, { rows: (event) => this.append(event, axis), summary: (value) => this.summary(value), gone: notice, lost: notice });
  }

  build() {
    this.charts.forEach((chart) => chart.close());
    this.charts = this.panels.map(({ title, height }) => new Chart(title, { x: chosenAxis(), height, zoomed: (range) => this.show(this.panels, range).catch(notice) }));
    const inside = (group) => this.charts.filter((_, place) => (this.panels[place].group ?? "") === group).map((chart) => chart.element);
    const groups = [...new Set(this.panels.map((panel) => panel.group ?? ""))];
    this.box.replaceChildren(...groups.flatMap((group) => (group ? [fold(group, el("div", { class: "panels" }, inside(group)))] : inside(""))));
  }

  curvesOf(panel, found) {
    return this.runs.flatMap((run) =>
      panel.metrics.map((name) => ({ label: this.label(run, name), dots: name.startsWith("evaluation_"), few: /^(episode|first_mover)_return/.test(name) ? found[run].few : null, ...found[run].series[name] })),
    ).filter((curve) => curve.x && curve.x.length);
  }

  append(event, axis) {
    this.appended += event.reset ? MAX_APPENDED : event.x[axis].length;
    const isNew = (chart, name, x, y) => !this.range && !chart.append(this.label(event.run, name), x, y);
    let isUnknown = false; // a metric's first numbers
    this.charts.forEach((chart, place) => {
      for (const name of this.panels[place].metrics) {
        const numbers = event.reset ? null : event.metrics[name];
        if (numbers) isUnknown = isNew(chart, name, numbers.rows.map((row) => event.x[axis][row]), numbers.values) || isUnknown;
      }
    });
    if (this.appended >= MAX_APPENDED || isUnknown) this.show(this.panels, this.range).catch(notice);
    else this.charts.forEach((chart) => chart.redraw());
    if (!event.reset) this.names(Object.keys(event.metrics));
  }

  // Draws anew with the same numbers.
  repaint() {
    for (const chart of this.charts) {
      chart.smoothing = chosenSmoothing();
      if (chart.plot) chart.draw();
    }
  }

  close() {
    this.number++;
    this.end?.();
    this.charts.forEach((chart) => chart.close());
  }
}
