// Numbers as texts, and smoothed curves, without the browser.

export function number(value, digits = 4) {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return (value || 0).toLocaleString("en-US"); // -0 is 0
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(2) : Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 6 });
}

// 1, "run" -> 1 run; 2, "run" -> 2 runs.
export function counted(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// 1234567 -> 1.23M, for axes and narrow places.
export function short(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(digits))}${letter}`;
  }
  return size > 0 && size < 1e-3 ? value.toExponential(digits - 2) : `${Number(value.toPrecision(digits))}`;
}

// Returns what writes the ticks of an axis, with as many digits as tell them apart.
export const ticks = (text) => (plot, splits, axis, space, step) => splits.map((value) => text(value, Math.max(3, Math.ceil(Math.log10(Math.abs(value) / step)) + 2)));

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return `${minutes} min ${whole % 60} s`;
  return `${whole} s`;
}

// 3725 -> 1:02:05, for axes.
export function clock(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.round(Math.abs(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return `${seconds < 0 ? "-" : ""}${hours ? `${hours}:${two(minutes)}` : minutes}:${two(whole % 60)}`;
}

// Exponential moving average without the bias of its beginning; null stays null. rows: of which each value is the
// mean, null: one. A row counts as much as any other, and `weight` is left after as many rows as the first value has.
export function smooth(values, weight, rows = null) {
  if (!weight) return values;
  let sum = 0;
  let total = 0;
  return values.map((value, place) => {
    if (value === null) return null;
    const kept = rows ? weight ** (rows[place] / rows[0]) : weight;
    sum = kept * sum + (1 - kept) * value;
    total = kept * total + (1 - kept);
    return sum / total;
  });
}

// The local time of this browser, to the minute; "" without one. time: a text of ISO 8601, or milliseconds.
export function localTime(time) {
  const date = new Date(time);
  return time && !isNaN(date) ? new Date(date - 60000 * date.getTimezoneOffset()).toISOString().replace("T", " ").slice(0, 16) : "";
}

// Whether an interval is drawn: of two runs it is far too wide to say anything, and both stand there as lines.
export const hasInterval = (curve) => Boolean(curve.low) && curve.lines?.length !== 2;

// Returns the ends of y for means with intervals, as `seedzero plot` has them: an interval of few runs may be far wider
// than the curves, and leaves the plot, unless a curve isWhole.
export function limits(curves) {
  const ends = (values) => values.reduce(([low, high], value) => (Number.isFinite(value) ? [Math.min(low, value), Math.max(high, value)] : [low, high]), [Infinity, -Infinity]);
  const [low, high] = ends(curves.flatMap((curve) => (curve.lines ? curve.lines.flat() : curve.y)));
  if (low > high) return [0, 1];
  const height = high - low || Math.max(Math.abs(high), 1) * 0.1;
  const [least, most] = ends([low, high, ...curves.flatMap((curve) => (hasInterval(curve) ? [...curve.low, ...curve.high] : []))]);
  const beyond = curves.some((curve) => curve.isWhole) ? Infinity : height / 2;
  return [Math.max(least, low - beyond) - 0.06 * height, Math.min(most, high + beyond) + 0.06 * height];
}

// A metric in words, beside the title of its chart.
export function word(name) {
  if (/^evaluation_(mean_return$|mean_length$|info\/)/.test(name)) return "evaluation";
  if (/^(episode_return$|episode_length$|info\/)/.test(name)) return "training";
  const owner = /^(learner|workers|device)_(cpu|memory)/.exec(name);
  return owner ? owner[1] : name.replace(/^loss_/, "").replaceAll("_", " ").replace(" per second", "/s");
}

const INFO = /^(evaluation_)?info\//;
const MAX_INFOS = 16;

// Charts for a first look: {title, group, metrics, height}; without a group the largest one, above the others. Of the
// environment's own numbers success comes first.
export function charts(names) {
  const chart = (group, title, ...wanted) => ({ title, group, metrics: wanted.filter((name) => names.includes(name)), height: group ? 130 : 340 });
  const infos = [...new Set(names.filter((name) => INFO.test(name)).map((name) => name.replace(INFO, "")))];
  const rank = (name) => (/success|solved/.test(name) ? 0 : 1);
  return [
    chart("", "Return", "episode_return", "first_mover_return", "evaluation_mean_return"),
    ...infos.sort((one, other) => rank(one) - rank(other)).slice(0, MAX_INFOS).map((name) =>
      chart("Environment", name.replace(/^is_/, "").replaceAll("_", " "), `info/${name}`, `evaluation_info/${name}`),
    ),
    chart("Learning", "Loss", "loss", ...names.filter((name) => name.startsWith("loss_")).slice(0, 7)),
    chart("Learning", "Length of episodes", "episode_length", "evaluation_mean_length"),
    chart("Learning", "Entropy of the policy", "policy_entropy"),
    chart("Learning", "Norm of gradients", "grad_norm"),
    chart("Speed", "Steps per second", "env_steps_per_second"),
    chart("Speed", "Updates per second", "updates_per_second"),
    chart("Speed", "Age of the acting policy, updates", "policy_age"),
    chart("System", "Processor time, % of a core", "learner_cpu_percent", "workers_cpu_percent"),
    chart("System", "Memory, bytes", "learner_memory_bytes", "workers_memory_bytes", "device_memory_bytes"),
  ].filter(({ metrics }) => metrics.length);
}
