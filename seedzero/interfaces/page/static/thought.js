// A step of a record thought over again under a checkpoint: actions, lines, the tree with positions.

import { get } from "./api.js";
import { aside, el, table, waiting } from "./dom.js";
import { counted, number } from "./format.js";
import { Picture } from "./picture.js";
import { position } from "./position.js";
import { FIGURES, fixed, searchTree } from "./tree.js";

// found: of the record; observe(step): its observation, the arrays of `picture.js`.
export function thoughtPanel(run, record, found, observe) {
  const checkpoint = el("select");
  const simulations = el("input", { type: "number", min: 1, max: 4096, placeholder: number(found.num_simulations), "aria-label": "simulations" });
  const button = el("button", { click: () => think() }, "think");
  const told = el("output", { class: "told" }, "the agent looks at this step again");
  const box = el("div");
  const element = el("section", { class: "panel thought" }, el("h2", {}, "Thought"), el("div", { class: "tools" }, el("label", {}, "checkpoint ", checkpoint), found.searches ? el("label", {}, "simulations ", simulations) : "", button), told, box);
  let current = 0;
  let isBusy = false;
  fill(run, checkpoint, found.step).catch((error) => (told.textContent = error.message));

  async function think() {
    if (isBusy || current >= found.steps) return;
    isBusy = true;
    const step = current;
    button.disabled = true;
    try {
      const wanted = { run, record, step, checkpoint: checkpoint.value || "last", simulations: Number(simulations.value) || 0 };
      const thought = await waiting(told, `thinking about step ${step}`, get("api/thought", wanted));
      box.replaceChildren(...draw(thought, observe));
      const player = isNaN(wanted.checkpoint) && wanted.checkpoint !== "last" ? `${wanted.checkpoint}, ` : "";
      const searched = thought.num_simulations === null ? "" : `, ${counted(thought.num_simulations, "simulation")}`;
      told.textContent = `step ${step} under ${player}update ${number(thought.step)}: ${thought.name}${searched}, ${thought.seconds.toFixed(2)} s`;
    } catch (error) {
      told.textContent = error.message;
    } finally {
      isBusy = false;
      button.disabled = current >= found.steps;
    }
  }

  return {
    element,
    think,
    moved(step) {
      current = step;
      button.textContent = step < found.steps ? `think about step ${step}` : "think";
      button.disabled = isBusy || step >= found.steps;
      button.title = step < found.steps ? "" : "no action follows the last observation";
    },
  };
}

async function fill(run, select, recorded) {
  const { steps, best, players } = await get("api/checkpoints", { run });
  const numbers = [...new Set([...steps, ...(best === null ? [] : [best])])].sort((one, other) => other - one);
  const note = (step) => [step === best ? "best" : "", step === steps.at(-1) ? "last" : "", step === recorded ? "recorded" : ""].filter(Boolean).join(", ");
  const checkpoints = numbers.map((step) => el("option", { value: step, selected: step === recorded }, `${number(step)}${note(step) ? ` (${note(step)})` : ""}`));
  const frozen = players.map((one) => el("option", { value: one.name }, `${one.name} (update ${number(one.step)})`));
  select.replaceChildren(...checkpoints, ...(frozen.length ? [el("optgroup", { label: "frozen players" }, frozen)] : []));
}

export function draw(thought, observe) {
  const more = thought.num_choices > thought.choices.length ? aside(counted(thought.num_choices - thought.choices.length, "more action")) : "";
  const searches = thought.value !== null;
  const value = searches ? el("p", {}, `value ${fixed(thought.value)}, of the network alone ${fixed(thought.network_value)}`) : "";
  const actions = el("div", { class: "choices" }, value, choiceTable(thought.choices, searches, "actions of the thought"), more);
  if (!thought.nodes.length) return [actions];
  const position = positionPanel(thought, observe);
  const tree = searchTree(thought.nodes, position.show);
  const lines = thought.lines.map((line) => el("li", {}, el("button", { class: "line", click: () => tree.show(line.nodes.at(-1)) }, line.text)));
  const left = thought.num_nodes > thought.nodes.length ? `; the ${number(thought.nodes.length)} most visited of ${number(thought.num_nodes)} nodes` : "";
  const isTurns = thought.nodes.some((node) => node.discount < 0) ? aside("a node's value counts for the player to move there") : "";
  const heads = FIGURES.map((head) => el("span", { class: "figure" }, head));
  return [
    el("div", { class: "minds" }, actions, el("div", {}, el("h3", {}, "Principal lines"), el("ol", { class: "lines" }, lines))),
    el("div", { class: "minds" }, el("div", {}, el("h3", {}, `Tree${left}`), el("div", { class: "scroll" }, el("div", { class: "node heads", "aria-hidden": "true" }, el("span", { class: "space" }), heads), tree.element), isTurns), position.element),
  ];
}

// The position of the chosen node: the game's own, or the record's nearest observation.
function positionPanel(thought, observe) {
  const byNumber = new Map(thought.nodes.map((node) => [node.number, node]));
  const title = el("h3", {}, "Position");
  const told = aside();
  const stand = el("div");
  const picture = new Picture();
  const isBoard = thought.nodes[0].position !== null;
  let asked = 0;

  async function show(node) {
    const way = [];
    for (let at = node; at && at.parent !== null; at = byNumber.get(at.parent)) way.unshift(at.is_legal === false ? `${at.name} (illegal)` : at.name);
    title.textContent = way.length ? `After ${way.join(", ")}` : "Before any action";
    if (isBoard) {
      told.textContent = node.position === null ? "the game does not allow these actions" : "the game's own position after these actions";
      stand.replaceChildren(node.position === null ? "" : position(node.board, node.position, { small: true }));
      return;
    }
    const call = ++asked;
    if (node.frame === null) {
      told.textContent = node.is_afterstate ? "an afterstate: chance decides what follows, as the codes below it say" : "imagined; no observation of the record stands for it";
      return;
    }
    told.textContent = `approximate: the record's nearest observation by latent distance, step ${node.frame.step}, distance ${node.frame.distance.toFixed(3)}`;
    const arrays = await observe(node.frame.step).catch((error) => ((told.textContent = error.message), null));
    if (arrays && call === asked) picture.show(arrays);
  }

  return { show, element: el("div", { class: "imagined", "aria-live": "polite" }, title, told, isBoard ? stand : picture.element) };
}

// The table of a step's actions, in a record, a game and a thought.
export function choiceTable(choices, searches, caption = "actions") {
  const heads = searches ? ["action", "", "policy", "visits", "Q", "prior", "completed Q"] : ["action", "", "policy"];
  const bar = (value) => el("meter", { min: 0, max: 1, value: value ?? 0, "aria-hidden": "true" });
  const name = (one) => el("span", { class: one.is_legal ? (one.is_taken ? "taken" : null) : "illegal" }, `${one.name}${one.is_legal ? "" : " (illegal)"}`);
  const fixed = (value) => value?.toFixed(3) ?? "–";
  const rows = choices.map((one) => [name(one), bar(one.policy), fixed(one.policy), ...(searches ? [number(one.visits), fixed(one.q_value), fixed(one.prior), fixed(one.completed_q)] : [])]);
  return table(heads, rows, new Set([2, 3, 4, 5, 6]), caption);
}
