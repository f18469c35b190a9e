// The calls of a running learner on its devices, its waits, workers and steps.

import { followLive, get } from "./api.js";
import { aside, el, notice, pairs, panel, remember, remembered, table } from "./dom.js";
import { number } from "./format.js";

const MAX_KEPT = 4000;
const MAX_SEEN = 200; // workers
const ROW = 22;
const LEFT = 110; // pixels of the titles
const WINDOWS = { 0.2: "0.2 s", 1: "1 s", 5: "5 s" };
export const KINDS = ["act", "evaluate", "update", "refresh", "wait"];
const TITLES = { act: "acting", evaluate: "evaluation", update: "updates", refresh: "refreshes", wait: "the loop waits" };

export async function runtimePage(main, run) {
  const reason = el("p", { class: "reason", role: "status" });
  const window_ = el("select", { change: () => (remember("window", window_.value), draw()) }, Object.entries(WINDOWS).map(([value, text]) => el("option", { value, selected: value === remembered("window", "1") }, text)));
  const pause = el("button", { "aria-pressed": "false", click: () => toggle() }, "pause");
  const canvas = el("canvas", { class: "timeline", height: ROW * KINDS.length, role: "img", "aria-label": "timeline of calls", mousemove: (event) => point(event) });
  const told = el("p", { class: "told" }, "point at a bar");
  const shares = el("div");
  const facts = el("dl", { class: "facts" });
  const steps = el("dl", { class: "facts" });
  const workers = el("div");
  const seen = new Map(); // workers by name, also those that have left since
  let calls = [];
  let info = {};
  let bars = [];
  let isPaused = false;
  let isOver = false;
  let end = () => {};

  const body = el("div", {},
    el("div", { class: "tools" }, el("label", {}, "last ", window_), pause, el("span", { class: "faint" }, "pale: prepared and queued; full: on the device")),
    panel("Calls on the devices", canvas, told),
    el("div", { class: "panels runtime" }, panel("Who waits", shares), panel("Acting", facts), panel("Steps", steps)),
    panel("Workers", workers),
  );
  main.replaceChildren(reason, body);

  function take(event) {
    if (isOver) return;
    if (event.reset) {
      calls = [];
      seen.clear();
    }
    info = { ...info, ...event };
    reason.textContent = info.error || "";
    const free = calls.findLast((call) => call.kind !== "wait")?.ended;
    calls = calls.concat(calledOf(event.calls || [], free)).slice(-MAX_KEPT);
    pause.disabled = Boolean(info.error); // nothing comes any more
    pause.title = info.error || "";
    body.hidden = pause.disabled && !calls.length;
    if (!isPaused) draw();
  }

  function toggle() {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "go on" : "pause";
    pause.ariaPressed = isPaused;
    if (!isPaused) draw();
  }

  function draw() {
    const seconds = Number(window_.value);
    const last = calls.at(-1)?.ended ?? 0;
    const kept = calls.filter((call) => call.ended > last - seconds);
    const found = summary(kept, Math.min(seconds, calls.length ? last - calls[0].began : seconds));
    canvas.width = Math.max(200, canvas.clientWidth);
    bars = paint(canvas, kept, last - seconds, last);
    shares.replaceChildren(table(["", "share", ""], found.shares.map(([name, share]) => [name, `${Math.round(100 * share)} %`, el("meter", { min: 0, max: 1, value: share, "aria-hidden": "true" })]), new Set([1]), "shares"));
    const means = info.means || {};
    facts.replaceChildren(...pairs([
      ["acting calls/s", number(found.perSecond, 3)], ["rows a call", number(found.rows, 3)], ["fill of batches", found.fill === null ? "–" : `${Math.round(100 * found.fill)} %`],
      ["policy age, updates", number(found.age, 3)], ["policy lag of updates", number(means.policy_lag, 3)], ["wait for a batch", means.batch_wait_seconds === undefined ? "–" : `${number(1000 * means.batch_wait_seconds, 3)} ms`],
    ]));
    const status = info.status || {};
    const discarded = Object.entries(status.steps_discarded || {}).filter(([, count]) => count).map(([name, count]) => `${name} ${number(count)}`);
    steps.replaceChildren(...pairs([
      ["acknowledged", number(status.steps_acknowledged)], ["stored", number(status.steps_stored)], ["pending", number(status.steps_pending)], ["discarded", discarded.join(", ") || "0"],
      ["steps/s", number(status.env_steps_per_second, 3)], ["updates/s", number(status.updates_per_second, 3)], ["stands still", status.stalled || "no"],
    ]));
    const more = (info.num_workers || 0) - (info.workers || []).length;
    const names = (info.workers || []).map((one) => one.name);
    for (const [name, one] of seen) {
      if (names.includes(name)) continue;
      if (more > 0 || seen.size > MAX_SEEN) seen.delete(name); // it may be one of those that are not listed
      else seen.set(name, { ...one, state: "left; see the log", quiet_seconds: null });
    }
    for (const one of info.workers || []) seen.set(one.name, one);
    const rows = [...seen.values()].map((one) => [one.name, one.role === "train" ? "training" : "evaluation", number(one.environments), number(one.groups), one.state, ...linkOf(one), one.quiet_seconds === null ? "–" : `${number(one.quiet_seconds, 2)} s ago`]);
    workers.replaceChildren(rows.length ? table(["worker", "role", "environments", "groups", "state", "round trip", "kB/s", "waits most for", "last word"], rows, new Set([2, 3, 5, 6]), "workers") : el("p", {}, "none"), more > 0 ? aside(`${number(more)} more`) : "");
  }

  function point(event) {
    const [x, y] = [event.offsetX, event.offsetY];
    const found = bars.findLast((bar) => x >= bar.left - 2 && x <= bar.right + 2 && Math.floor(y / ROW) === bar.row);
    if (found) told.textContent = describe(found.call);
  }

  const observer = new ResizeObserver(() => isOver || isPaused || draw());
  const found = await get("api/live", { run }).catch((error) => ((reason.textContent = error.message), null));
  if (found) take({ ...found, reset: true });
  else draw();
  end = followLive(run, null, found ? found.cursor : "", take, (text) => isOver || notice(text));
  observer.observe(canvas.parentElement);
  return { close: () => ((isOver = true), observer.disconnect(), end()), repaint: () => draw() };
}

// Returns a worker's round trip, kilobytes per second, and what its groups wait most for; dashes while it has measured nothing.
function linkOf(one) {
  if (one.round_trip_seconds === undefined) return ["–", "–", "–"];
  return [`${number(1000 * one.round_trip_seconds, 3)} ms`, number(one.bytes_per_second / 1000, 3), one.waits_for];
}

// Returns calls as objects; start: of their work on the device, which does them one after the other.
// free: when the device had done the calls before.
export function calledOf(rows, free = 0) {
  return rows.map(([order, kind, began, dispatched, ended, size, padded, age, reason]) => {
    const start = kind === "wait" ? began : Math.min(ended, Math.max(dispatched, free));
    if (kind !== "wait") free = ended;
    return { order, kind, began, start, ended, rows: size, size: padded, age, reason };
  });
}

// Returns the shares of a time, and the means of acting.
export function summary(calls, seconds) {
  const total = {};
  const add = (name, time) => (total[name] = (total[name] || 0) + time);
  for (const call of calls) add(call.kind === "wait" ? `the loop waits: ${call.reason}` : `the devices: ${TITLES[call.kind] || call.kind}`, call.ended - call.start);
  const acting = calls.filter((call) => call.kind === "act");
  const sum = (name) => acting.reduce((result, call) => result + (call[name] || 0), 0);
  const mean = (name) => (acting.length ? sum(name) / acting.length : null);
  const shares = Object.entries(total).map(([name, time]) => [name, seconds > 0 ? Math.min(1, time / seconds) : 0]);
  return { shares: shares.sort((one, other) => other[1] - one[1]), perSecond: seconds > 0 ? acting.length / seconds : null, rows: mean("rows"), fill: sum("size") ? sum("rows") / sum("size") : null, age: mean("age") };
}

function paint(canvas, calls, begin, end) {
  const context = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const scale = (canvas.width - LEFT) / Math.max(1e-9, end - begin);
  context.clearRect(0, 0, canvas.width, canvas.height);
  const bars = calls.map((call) => {
    const row = Math.max(0, KINDS.indexOf(call.kind));
    const [left, middle, right] = [call.began, call.start, call.ended].map((time) => LEFT + Math.max(0, (time - begin) * scale));
    context.fillStyle = color(call.kind === "wait" ? "--line" : `--curve-${row}`);
    context.globalAlpha = 0.3;
    context.fillRect(left, row * ROW + 4, Math.max(0, middle - left), ROW - 8);
    context.globalAlpha = 1;
    context.fillRect(middle, row * ROW + 3, Math.max(1, right - middle), ROW - 6);
    return { call, row, left, right };
  });
  context.fillStyle = color("--ink");
  context.font = "12px system-ui, sans-serif";
  KINDS.forEach((kind, row) => context.fillText(TITLES[kind], 4, row * ROW + 15));
  return bars;
}

function describe(call) {
  const milliseconds = (seconds) => `${number(1000 * seconds, 3)} ms`;
  if (call.kind === "wait") return `the loop waited ${milliseconds(call.ended - call.began)}: ${call.reason}`;
  const batch = call.size ? `; ${number(call.rows)} rows of ${number(call.size)}` : "";
  const age = call.age === null ? "" : `; the policy was ${number(call.age)} updates old`;
  return `${TITLES[call.kind] || call.kind}: ${milliseconds(call.start - call.began)} until it began, ${milliseconds(call.ended - call.start)} on the device${batch}${age}`;
}
