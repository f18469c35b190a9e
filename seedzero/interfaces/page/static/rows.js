// Rows of the table of runs: filtered, grouped over seeds and sorted; functions without the browser.

export function runRows(runs) {
  return runs.map((run) => ({ ...run, settings: run.settings ?? {}, title: run.run === "." ? run.name : run.run, half: {}, rows: null }));
}

export function shownValue(value) {
  return String(value ?? "–");
}

// Whether each word of a text is in a row: in its names, environment, agent, state, or in a setting as NAME=VALUE.
export function matches(row, text) {
  const settings = Object.entries(row.settings).map(([name, value]) => `${name}=${shownValue(value)}`);
  const content = [row.title, row.run, row.environment, row.agent, row.state, ...settings].join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => content.includes(word));
}

// Returns the mean of numbers and half of its 95 % interval; null: there is none. quantiles: Student's, by how many.
export function interval(values, quantiles) {
  const numbers = values.filter((value) => typeof value === "number");
  const count = numbers.length;
  if (!count) return { mean: null, half: null };
  const mean = numbers.reduce((sum, value) => sum + value, 0) / count;
  if (count < 2) return { mean, half: null };
  const squares = numbers.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, half: (quantiles[count] * Math.sqrt(squares / (count - 1))) / Math.sqrt(count) };
}

// Returns a row for each of the server's groups that has several of the rows; other runs are rows of their own.
export function groupRows(rows, { groups, quantiles }) {
  const waiting = new Map(rows.map((row) => [row.run, row]));
  const take = (run) => [waiting.get(run)].filter((row) => row && waiting.delete(run));
  const found = groups.map((group) => ({ settings: group.settings, rows: group.runs.flatMap(take) })).filter((group) => group.rows[0]);
  const names = [...new Set(found.flatMap((group) => Object.keys(group.settings)))];
  const differing = names.filter((name) => new Set(found.map((group) => group.settings[name])).size > 1);
  const label = (group) => differing.filter((name) => name in group.settings).map((name) => `${name}=${shownValue(group.settings[name])}`).join(", ");
  return [...found.map((group) => (group.rows[1] ? merged(group.rows, label(group) || "all runs", quantiles) : group.rows[0])), ...waiting.values()];
}

function merged(rows, title, quantiles) {
  const all = (name) => rows.map((row) => row[name]);
  const common = (values) => (new Set(values).size === 1 ? values[0] : "several");
  const mean = (name) => interval(all(name), quantiles);
  const [steps, last, best] = ["env_steps", "last_evaluation", "best_evaluation"].map(mean);
  const times = all("eta_seconds").filter((value) => value !== null);
  return {
    run: `group ${rows[0].run}`, title, rows,
    env_steps: steps.mean, last_evaluation: last.mean, best_evaluation: best.mean, half: { last_evaluation: last.half, best_evaluation: best.half },
    environment: common(all("environment")), agent: common(all("agent")), state: common(all("state")), reason: "",
    eta_seconds: times.length ? Math.max(...times) : null,
    time: all("time").sort().at(-1),
    settings: Object.fromEntries(Object.keys(rows[0].settings).map((name) => [name, common(rows.map((row) => row.settings[name]))])),
  };
}

// Returns rows by a column or a setting, those without a value last; column "": as they came.
export function sorted(rows, column, isDown) {
  if (!column) return rows;
  const value = (row) => (Object.hasOwn(row, column) ? row[column] : row.settings[column]);
  const isEmpty = (one) => (one ?? "") === "";
  return [...rows].sort((first, second) => {
    const [a, b] = [value(first), value(second)];
    if (isEmpty(a) || isEmpty(b)) return Number(isEmpty(a)) - Number(isEmpty(b));
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
    return isDown ? -order : order;
  });
}
