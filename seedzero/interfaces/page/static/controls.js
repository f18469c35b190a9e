// Choices of all plots of a page: the axis, and smoothing.

import { el, remember, remembered } from "./dom.js";

const AXES = { env_steps: "steps", seconds: "time", update: "updates" };

export function chosenAxis() {
  const name = remembered("axis", "env_steps");
  return name in AXES ? name : "env_steps";
}

export function chosenSmoothing() {
  const weight = Number(remembered("smoothing", "0.6"));
  return weight >= 0 && weight < 1 ? weight : 0;
}

// axis(), smoothing(): called after a change. whole: shows everything again.
export function controls({ axis, smoothing, whole }) {
  const select = el("select", { change: () => (remember("axis", select.value), axis()) }, Object.entries(AXES).map(([name, text]) => el("option", { value: name, selected: name === chosenAxis() }, text)));
  const slider = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: chosenSmoothing(), input: () => (remember("smoothing", slider.value), smoothing()) });
  return [el("label", {}, "over ", select), el("label", {}, "smoothing ", slider), el("button", { click: whole }, "whole course")];
}
