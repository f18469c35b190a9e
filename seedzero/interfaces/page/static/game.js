// One environment of a running learner: observations, actions, rewards, values; a pause, and steps back.

import { followLive, get } from "./api.js";
import { Chart } from "./chart.js";
import { button, el, notice, onKeys, pairs, panel } from "./dom.js";
import { number } from "./format.js";
import { Picture } from "./picture.js";
import { choiceTable } from "./thought.js";

const MAX_KEPT = 512;
const MAX_ACTIONS = 40;
const MANY = 60; // points that are drawn as a line alone
const KEYS = "space: pause; arrows: a step; Page Up and Down: an episode; End: live";

export async function gamePage(main, run, parameters) {
  const given = parameters?.get("environment");
  const reason = el("p", { class: "reason", role: "status" });
  const choice = el("select", { "aria-label": "environment", change: () => watch(Number(choice.value)) });
  const pause = button("pause", "pause or go on", () => toggle());
  const slider = el("input", { type: "range", class: "wide", min: 0, max: 0, step: 1, value: 0, "aria-label": "step", input: () => go(Number(slider.value)) });
  const place = el("output", { class: "place" });
  const picture = new Picture();
  const told = el("dl", { class: "facts" });
  const policy = el("div", { class: "choices" });
  const charts = Object.entries({ return: "Return of the episode, as far as seen", reward: "Reward", value: "Value", log_prob: "Log-probability of the action" }).map(([name, title]) =>
    Object.assign(new Chart(title, { x: "step", height: 150, zoomed: (range) => zoom(range) }), { name }),
  );
  let steps = [];
  let held = []; // steps of a pause
  let info = {};
  let current = -1; // place of the shown step
  let isLive = true;
  let isOver = false;
  let asked = 0; // environments so far
  let end = () => {};
  let watched = Number(given ?? 0);
  let range = null;

  const body = el("div", {},
    el("div", { class: "tools replay" }, el("label", {}, "environment ", choice), pause, button("«", "the episode before", () => episode(-1)), button("◀", "a step back", () => go(current - 1)), button("▶", "a step on", () => go(current + 1)), button("»", "the next episode", () => episode(1)), slider, place),
    el("p", { class: "faint keys" }, KEYS),
    el("div", { class: "panels stage" }, panel("Observation", picture.element), panel("Step", told, policy)),
    el("div", { class: "panels curves" }, charts.map((chart) => chart.element)),
  );
  main.replaceChildren(reason, body);

  function take(event) {
    if (isOver) return;
    if (event.reset) [steps, held] = [[], []];
    info = { ...info, ...event };
    if (event.environments || event.reset) listEnvironments();
    reason.textContent = info.error || info.note || (info.role ? "" : "no worker has this environment at the moment");
    held = held.concat(event.steps || []).slice(-MAX_KEPT);
    if (isLive) catchUp();
    pause.disabled = Boolean(info.error); // nothing comes any more
    pause.title = info.error || "pause or go on";
    body.hidden = pause.disabled && !steps.length;
  }

  // Takes the steps that came during a pause, in which the others stay.
  function catchUp() {
    if (held.length) {
      const isOfTwo = info.spec?.num_players === 2;
      for (const one of held) {
        const before = one.first || !steps.length ? 0 : steps.at(-1).return;
        steps.push({ ...one, return: isOfTwo ? null : before + (one.reward ?? 0) }); // two players' rewards do not add up
      }
      held = [];
      steps = steps.slice(-MAX_KEPT);
      slider.max = String(steps.length - 1);
      draw();
    }
    go(steps.length - 1, true);
  }

  function listEnvironments() {
    const { train = [], evaluate = [] } = info.environments || {};
    const known = [...train.map((slot) => [slot, `training ${slot}`]), ...evaluate.map((slot, index) => [slot, `evaluating ${index}`])];
    if (!known.some(([slot]) => slot === watched)) known.unshift([watched, `${watched}`]);
    const text = JSON.stringify(known);
    if (text === choice.dataset.known) return;
    choice.dataset.known = text;
    choice.replaceChildren(...known.map(([slot, name]) => el("option", { value: slot, selected: slot === watched }, name)));
  }

  function draw() {
    const x = steps.map((one) => one.number);
    for (const chart of charts) {
      const y = steps.map((one) => one[chart.name] ?? null);
      const curves = y.some((value) => value !== null) ? [{ label: chart.name, x, y }] : [];
      chart.element.hidden = !curves.length;
      if (!curves.length || chart.range) continue;
      if (chart.plot && chart.curves.length === curves.length && !(x.length >= MANY && chart.curves[0].x.length < MANY)) {
        curves.forEach((curve, at) => Object.assign(chart.curves[at], curve));
        chart.redraw();
      } else chart.show(curves);
    }
  }

  function zoom(wanted) {
    range = wanted;
    for (const chart of charts) if (chart.curves.length) chart.show(chart.curves, range);
    if (!range) draw();
  }

  function go(wanted, staysLive = false) {
    if (!steps.length) return;
    if (!staysLive) setLive(false);
    current = Math.min(Math.max(0, wanted), steps.length - 1);
    const one = steps[current];
    const arrays = (info.spec?.arrays || []).map((array, part) => ({ ...array, base64: one.observation[part] }));
    try {
      picture.show(arrays);
    } catch (error) {
      notice(error);
    }
    told.replaceChildren(...facts(one, info));
    policy.replaceChildren(...(one.policy ? [choiceTable(choicesOf(one, info), false, "policy")] : []));
    slider.value = current;
    place.textContent = isLive ? "live" : `${steps.length - 1 - current} steps ago`;
    for (const chart of charts) if (chart.plot && !isLive) chart.plot.setCursor({ left: chart.plot.valToPos(one.number, "x"), top: 0 });
  }

  function setLive(wanted) {
    isLive = wanted;
    pause.textContent = isLive ? "pause" : "go on";
    pause.ariaPressed = !isLive;
    if (isLive) catchUp();
  }

  function toggle() {
    setLive(!isLive);
    if (!isLive) go(current);
  }

  function episode(direction) {
    let at = current + (direction < 0 ? -1 : 1);
    while (at > 0 && at < steps.length - 1 && !steps[at].first) at += direction;
    go(at);
  }

  async function watch(environment) {
    const number = ++asked;
    end();
    watched = environment;
    history.replaceState(null, "", `#/game?${new URLSearchParams({ run, environment })}`);
    [steps, held] = [[], []];
    current = -1;
    setLive(true);
    charts.forEach((chart) => chart.curves.length && chart.show([]));
    const found = await get("api/live", { run, environment }).catch((error) => (isOver || (reason.textContent = error.message), null));
    if (isOver || number !== asked) return; // the user has gone on
    if (found) take({ ...found, reset: true });
    end = followLive(run, environment, found ? found.cursor : "", take, (text) => isOver || notice(text));
  }

  const offKeys = onKeys(slider, { " ": () => toggle(), ArrowLeft: () => go(current - 1), ArrowRight: () => go(current + 1), PageUp: () => episode(-1), PageDown: () => episode(1), Home: () => go(0), End: () => setLive(true) });
  listEnvironments();
  await watch(watched);
  return {
    close() {
      isOver = true;
      end();
      offKeys();
      charts.forEach((chart) => chart.close());
    },
    repaint: () => charts.forEach((chart) => chart.plot && chart.draw()),
  };
}

// Returns the actions of a step's policy; if they are many, the likeliest.
export function choicesOf(one, info) {
  const found = one.policy.map((value, action) => ({ name: actionText(action, info), policy: value, is_legal: true, is_taken: action === one.action }));
  return found.length > MAX_ACTIONS ? found.sort((a, b) => b.policy - a.policy).slice(0, MAX_ACTIONS) : found;
}

function actionText(action, { spec }) {
  return Array.isArray(action) ? action.map((value) => number(value, 3)).join(", ") : String(spec?.action_names?.[action] ?? action ?? "–");
}

function facts(one, info) {
  const tasks = info.spec?.tasks || [];
  const state = one.terminated ? "terminated" : one.truncated ? "truncated" : one.first ? "begins" : "goes on";
  const rows = [
    ["worker", info.worker || "–"], ["step", number(one.number)], ["action", actionText(one.action, info)], ["reward", number(one.reward)],
    ["return seen", number(one.return)], ["value", number(one.value)], ["episode", state], ...(tasks.length ? [["task", tasks[one.task] ?? "–"]] : []),
  ];
  return pairs(rows);
}
