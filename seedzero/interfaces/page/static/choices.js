// The table of a step's actions, in a record and in a thought.

import { el, table } from "./dom.js";
import { number } from "./format.js";

export function choiceTable(choices, searches, caption = "actions") {
  const heads = searches ? ["action", "", "policy", "visits", "Q", "prior", "completed Q"] : ["action", "", "policy"];
  const bar = (value) => el("meter", { min: 0, max: 1, value: value ?? 0, "aria-hidden": "true" });
  const name = (one) => el("span", { class: one.is_legal ? (one.is_taken ? "taken" : null) : "illegal" }, `${one.name}${one.is_legal ? "" : " (illegal)"}`);
  const fixed = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));
  const rows = choices.map((one) => [
    name(one), bar(one.policy), fixed(one.policy), ...(searches ? [number(one.visits), fixed(one.q_value), fixed(one.prior), fixed(one.completed_q)] : []),
  ]);
  return table(heads, rows, new Set([2, 3, 4, 5, 6]), caption);
}
