// Replays a recorded episode: the observation, the action, the search's findings, curves of value and reward.

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { button, el, notice, onKeys, pairs, panel, remember, remembered } from "./dom.js";
import { number } from "./format.js";
import { Picture } from "./picture.js";
import { recordAddress } from "./records.js";
import { choiceTable, thoughtPanel } from "./thought.js";

const SPEEDS = ["1", "2", "5", "10", "20", "50"];
const AHEAD = 48; // steps of one request
const MAX_KEPT = 512; // steps in memory
const KEYS = "space: play; arrows: a step; Home and End; T: think";

export async function recordPage(main, run, parameters) {
  const record = parameters.get("record") || "";
  const found = await get("api/record", { run, record }).catch((error) => main.isConnected && notice(error));
  if (!found || !main.isConnected) {
    main.replaceChildren();
    return { close: () => {} };
  }
  const steps = new Steps(run, record, found.steps);
  const picture = new Picture();
  const told = el("dl", { class: "facts step" });
  const choices = el("div", { class: "choices" });
  const slider = el("input", { type: "range", class: "wide", min: 0, max: found.steps, step: 1, value: 0, "aria-label": "step", input: () => go(Number(slider.value)) });
  const place = el("output", { class: "place" });
  const play = el("button", { "aria-pressed": "false", click: () => toggle() }, "play");
  const speed = el("select", { change: () => remember("speed", speed.value) }, SPEEDS.map((value) => el("option", { selected: value === remembered("speed", "5") }, value)));
  const arraysOf = (one) => found.arrays.map((array, part) => ({ ...array, base64: one.observation[part] }));
  const thought = thoughtPanel(run, record, found, async (step) => arraysOf(await steps.at(step)));
  const charts = curves(found);
  let current = -1;
  let timer = null;
  await steps.at(Math.min(Math.max(0, Number(parameters.get("step")) || 0), found.steps)).catch(() => {}); // all is drawn at once

  main.replaceChildren(
    el("h2", {}, record),
    el("dl", { class: "facts" }, facts(found)),
    el("div", { class: "tools replay" }, play, button("◀", "a step back", () => go(current - 1)), button("▶", "a step on", () => go(current + 1)), slider, place, el("label", {}, "steps/s ", speed)),
    el("p", { class: "faint keys" }, KEYS),
    el("div", { class: "panels stage" }, el("div", { class: "film curves" }, panel("Observation", picture.element), charts.map((chart) => chart.element)), panel("Step", told, choices)),
    thought.element,
  );
  charts.forEach((chart) => chart.show(chart.shown));

  async function go(wanted) {
    const step = Math.min(Math.max(0, wanted), found.steps);
    if (step === current) return;
    current = step;
    slider.value = step;
    place.textContent = `${step} of ${found.steps}`;
    const one = await steps.at(step).catch((error) => main.isConnected && notice(error));
    if (!main.isConnected || !one || step !== current) return; // an older answer
    picture.show(arraysOf(one));
    for (const part of [told, choices]) part.style.setProperty("min-height", `${part.offsetHeight}px`); // the last step has less
    told.replaceChildren(...ofStep(one, found));
    if (found.has_choices) choices.replaceChildren(choiceTable(one.choices || [], found.searches));
    charts.forEach((chart) => mark(chart, step));
    thought.moved(step);
    history.replaceState(null, "", recordAddress(run, record, step));
  }

  function toggle(isPlaying = !timer) {
    clearTimeout(timer);
    timer = null;
    play.textContent = isPlaying ? "pause" : "play";
    play.ariaPressed = isPlaying;
    if (!isPlaying) return;
    if (current >= found.steps) go(0);
    const next = async () => {
      const began = performance.now();
      await go(current + 1);
      if (!main.isConnected || !timer) return;
      if (current >= found.steps) return toggle(false);
      timer = setTimeout(next, Math.max(0, 1000 / Number(speed.value) - (performance.now() - began)));
    };
    timer = setTimeout(next, 1000 / Number(speed.value));
  }

  const offKeys = onKeys(slider, { " ": () => toggle(), ArrowLeft: () => go(current - 1), ArrowRight: () => go(current + 1), Home: () => go(0), End: () => go(found.steps), t: () => thought.think() });
  await go(Number(parameters.get("step")) || 0);
  if (parameters.get("think")) thought.think();
  return {
    close() {
      clearTimeout(timer);
      offKeys();
      charts.forEach((chart) => chart.close());
    },
    repaint: () => charts.forEach((chart) => chart.plot && (chart.draw(), mark(chart, current))),
  };
}

// Steps by number; asks for some ahead.
class Steps {
  constructor(run, record, last) {
    Object.assign(this, { run, record, last, kept: new Map(), asked: new Map() });
  }

  async at(step) {
    if (!this.kept.has(step)) await this.read(step);
    const ahead = Math.min(step + AHEAD / 2, this.last);
    if (!this.kept.has(ahead)) this.read(this.firstMissing(step, ahead)).catch(() => {});
    return this.kept.get(step);
  }

  firstMissing(step, end) {
    let first = step;
    while (first < end && this.kept.has(first)) first++;
    return first;
  }

  read(first) {
    if (!this.asked.has(first)) {
      const answer = get("api/steps", { run: this.run, record: this.record, first, count: AHEAD }).then(({ steps }) => {
        steps.forEach((one, place) => this.kept.set(first + place, one));
        while (this.kept.size > MAX_KEPT) this.kept.delete(this.kept.keys().next().value);
      });
      this.asked.set(first, answer.finally(() => this.asked.delete(first)));
    }
    return this.asked.get(first);
  }
}

function facts(found) {
  const rest = found.task ? [["task", found.task]] : [];
  return pairs([["update", number(found.step)], ["return", number(found.return)], ["steps", `${number(found.steps)}${found.cut_off ? ", cut off" : ""}`], ["actions", found.policy || "–"], ...rest]);
}

function ofStep(one, found) {
  const isLast = one.action === undefined;
  const player = one.mover === undefined ? [] : [["player", String(one.mover + 1)]];
  const end = one.terminated ? "terminated" : one.truncated ? "truncated" : isLast ? "the last observation" : "goes on";
  const values = found.searches ? [["value", number(one.value)], ["network's value", number(one.network_value)]] : [];
  return pairs([...player, ["action", isLast ? "–" : one.name], ["reward", number(one.reward)], ...values, ["episode", end]]);
}

// The curves; in games of two players as player 1 sees them, whoever moves.
function curves({ series, has_movers: hasMovers }) {
  const chart = (name, names) => {
    const title = hasMovers ? `${name} for player 1` : name;
    const shown = names.filter((name) => series[name]).map((label) => ({ label, ...series[label] }));
    if (!shown.length) return null;
    const found = new Chart(title, { x: "step", height: 150, zoomed: (range) => found.show(shown, range) });
    return Object.assign(found, { shown });
  };
  return [chart("Value", ["value", "network_value"]), chart("Reward", ["reward"])].filter(Boolean);
}

function mark(chart, step) {
  chart.plot?.setCursor({ left: chart.plot.valToPos(step, "x"), top: 0 });
}
