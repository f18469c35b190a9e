// Numbers as texts, and curves smoothed: functions without the browser.

export function number(value, digits = 4) {
  if (value === null || value === undefined || typeof value !== "number" || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-3 ? value.toExponential(2) : Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 6 });
}

// 1, "run" -> 1 run; 2, "run" -> 2 runs.
export function counted(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// 1234567 -> 1.23M, for axes and narrow places.
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(3))}${letter}`;
  }
  return size > 0 && size < 1e-3 ? value.toExponential(1) : `${Number(value.toPrecision(3))}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return `${minutes} min ${whole % 60} s`;
  return `${whole} s`;
}

// 3725 -> 1:02:05, for axes.
export function clock(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
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

// Returns the ends of y for means with intervals, as `seedzero plot` has them: an interval of few runs may be far wider
// than the means, and leaves the plot. A pair of runs is shown as dots.
export function limits(curves) {
  const ends = (values) => values.reduce(([low, high], value) => (Number.isFinite(value) ? [Math.min(low, value), Math.max(high, value)] : [low, high]), [Infinity, -Infinity]);
  const [low, high] = ends(curves.flatMap((curve) => (curve.pair ? curve.pair.flat() : curve.y)));
  if (low > high) return [0, 1];
  const height = high - low || Math.max(Math.abs(high), 1) * 0.1;
  const [least, most] = ends([low, high, ...curves.flatMap((curve) => (curve.low && !curve.pair ? [...curve.low, ...curve.high] : []))]);
  return [Math.max(least, low - height / 2) - 0.06 * height, Math.min(most, high + height / 2) + 0.06 * height];
}

// Groups metrics for a first look: title -> names.
export function groups(names) {
  const has = new Set(names);
  const existing = (...wanted) => wanted.filter((name) => has.has(name));
  const found = [
    ["Returns", existing("episode_return", "first_mover_return", "evaluation_mean_return")],
    ["Numbers of the environment", names.filter((name) => /^(evaluation_)?info\//.test(name)).slice(0, 8)],
    ["Losses", names.filter((name) => name === "loss" || name.startsWith("loss_")).slice(0, 8)],
    ["Steps per second", existing("env_steps_per_second")],
    ["Updates per second", existing("updates_per_second")],
    ["Processor time, % of a core", existing("learner_cpu_percent", "workers_cpu_percent")],
    ["Memory, bytes", existing("learner_memory_bytes", "workers_memory_bytes", "device_memory_bytes")],
  ];
  return found.filter(([, wanted]) => wanted.length);
}
