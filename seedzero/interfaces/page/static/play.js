// A person's game against the agent: #/play. The position as a board or as text, the list of moves, hint, thought.

import { get, post } from "./api.js";
import { aside, el, heading, notice, panel, waiting } from "./dom.js";
import { counted } from "./format.js";
import { changed, position } from "./position.js";
import { draw } from "./thought.js";

const THINKS = "The agent is thinking";
const OUTCOMES = { 1: "You have won.", 0: "A draw.", "-1": "You have lost." };

export async function playPage(main) {
  const place = el("div", { class: "stand", "aria-live": "polite" });
  const told = el("p", { class: "told", role: "status" });
  const moves = el("div", { class: "moves", role: "group", "aria-label": "your moves" });
  const names = el("ol", { class: "played" });
  const mind = el("section", { class: "panel thought", hidden: true });
  const facts = aside();
  const button = (icon, text, click) => el("button", { "data-icon": icon, click }, text);
  const undo = button("↶", "undo", () => act({ do: "undo" }));
  const resign = button("⚑", "resign", () => act({ do: "resign" }));
  const hint = button("◎", "hint", ask);
  const think = button("✦", "what it thinks", toggle);
  think.ariaPressed = false;
  let [state, marks] = [null, {}];
  let isBusy = false;

  main.replaceChildren(
    el(
      "div",
      { class: "table" },
      place,
      panel("Game", told, el("div", { class: "tools" }, undo, hint, think), moves, el("h3", {}, "Moves"), names, el("div", { class: "tools" }, resign, button("+", "new game", () => act({ do: "new" })), button("⇄", "change sides", () => act({ do: "sides" }))), facts),
    ),
    mind,
  );

  function show(next) {
    if (!main.isConnected) return;
    marks = { last: state && next.names.length > state.names.length ? changed(state.board, next.board) : new Set() };
    state = next;
    const { seats, seat, wins, draws, losses } = state;
    heading(`Play ${state.env}`);
    const records = state.records ? `; ${counted(state.records, "game")} recorded` : "";
    facts.textContent = `You have the seat ${seats[seat]} of ${seats.join(", ")}. The agent is of update ${state.step}. Won ${wins}, drawn ${draws}, lost ${losses}${records}`;
    names.replaceChildren(...state.names.map((name) => el("li", {}, name)));
    names.scrollTop = names.scrollHeight;
    const onBoard = new Set(state.board?.actions?.flat());
    const rest = state.moves.filter(({ action }) => !onBoard.has(action));
    moves.replaceChildren(...rest.map(({ action, name }) => el("button", { "data-action": action, click: () => act({ do: "move", action }) }, name)));
    told.textContent = state.is_over ? `${OUTCOMES[state.outcome] ?? "The game is over."} Your return is ${state.total}.` : "It is your turn.";
    undo.hidden = !state.has_undo;
    for (const one of [resign, hint]) one.disabled = state.is_over;
    paint();
    if (think.ariaPressed === "true") thought();
  }

  function paint() {
    const play = (action) => act({ do: "move", action });
    place.replaceChildren(position(state.board, state.text, { play, names: new Map(state.moves.map(({ action, name }) => [action, name])), marks }));
    for (const one of moves.children) one.classList.toggle("hinted", Number(one.dataset.action) === marks.hinted);
  }

  async function act(asked) {
    if (isBusy) return;
    isBusy = true;
    notice("");
    try {
      show(await waiting(told, THINKS, post("api/play", { ...asked, turn: state.turn })));
    } catch (error) {
      notice(error);
      show(await get("api/play/state").catch(() => state));
    } finally {
      isBusy = false;
    }
  }

  async function ask() {
    const turn = state.turn;
    const best = await waiting(told, THINKS, get("api/play/hint")).catch(notice);
    if (state.turn !== turn) return;
    if (!best) return show(state);
    told.textContent = `The agent would play ${best.name}.`;
    marks.hinted = best.action;
    paint();
  }

  function toggle() {
    const isOn = think.ariaPressed !== "true";
    think.ariaPressed = isOn;
    mind.hidden = !isOn;
    delete marks.shares;
    if (isOn) thought();
    else paint();
  }

  async function thought() {
    const turn = state.turn;
    mind.replaceChildren(el("h2", {}, "What the agent thinks about your position"));
    if (state.is_over) return mind.append(el("p", {}, "The game is over."));
    const stand = el("p");
    mind.append(stand);
    const answer = await waiting(stand, THINKS, get("api/play/think")).catch((error) => void (stand.textContent = error.message));
    if (!answer || state.turn !== turn || mind.hidden) return;
    stand.remove();
    const total = answer.choices.reduce((sum, one) => sum + (one.visits ?? 0), 0);
    marks.shares = new Map(answer.choices.filter((one) => one.is_legal).map((one) => [one.number, total ? (one.visits ?? 0) / total : one.policy]));
    paint();
    mind.append(...draw(answer, async () => []));
  }

  const first = await get("api/play/state").catch(notice);
  if (first) show(first);
  return { close: () => {} };
}
