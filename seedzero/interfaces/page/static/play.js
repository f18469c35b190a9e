// A person's game against the agent: #/play. The position as a board or as text, buttons of legal moves, hint, thought.

import { get, post } from "./api.js";
import { el, heading, notice } from "./dom.js";
import { draw } from "./thought.js";

const OUTCOMES = { 1: "You have won.", 0: "A draw.", "-1": "You have lost." };

export async function playPage(main) {
  const place = el("div", { class: "position", "aria-live": "polite" });
  const told = el("p", { class: "told", role: "status" });
  const moves = el("div", { class: "moves", role: "group", "aria-label": "your moves" });
  const names = el("p", { class: "faint" });
  const mind = el("section", { class: "panel thought", hidden: true });
  const facts = el("p", { class: "faint" });
  const undo = button("undo", () => act({ do: "undo" }));
  const resign = button("resign", () => act({ do: "resign" }));
  const hint = button("hint", ask);
  const think = button("what it thinks", toggle);
  think.setAttribute("aria-pressed", "false");
  let state = null;
  let isBusy = false;
  let isOver = false;

  main.replaceChildren(
    facts,
    el("div", { class: "tools" }, undo, hint, resign, button("new game", () => act({ do: "new" })), button("change sides", () => act({ do: "sides" })), think),
    told,
    el("div", { class: "panels stage" }, el("section", { class: "panel" }, el("h2", {}, "Position"), place, names), el("section", { class: "panel" }, el("h2", {}, "Your moves"), moves)),
    mind,
  );

  function show(next) {
    state = next;
    const { seats, seat, wins, draws, losses } = state;
    heading(`Play ${state.env}`);
    const records = state.records ? `; recorded: ${state.records}` : "";
    facts.textContent = `You have the seat ${seats[seat]} of ${seats.join(", ")}. The agent is of update ${state.step}. Won ${wins}, drawn ${draws}, lost ${losses}${records}`;
    place.replaceChildren(state.board ? board(state.board, state.moves, (action) => act({ do: "move", action })) : el("pre", {}, state.text));
    names.textContent = state.names.length ? `moves: ${state.names.join(" ")}` : "";
    moves.replaceChildren(...state.moves.map(({ action, name }) => el("button", { type: "button", "data-action": action, click: () => act({ do: "move", action }) }, name)));
    told.textContent = state.is_over ? `${OUTCOMES[state.outcome] ?? "The game is over."} Your return is ${state.total}.` : "It is your turn.";
    undo.hidden = !state.has_undo;
    for (const one of [resign, hint]) one.disabled = state.is_over;
    if (think.getAttribute("aria-pressed") === "true") thought();
  }

  async function act(asked) {
    if (isBusy) return;
    isBusy = true;
    notice("");
    told.textContent = "The agent is thinking…";
    try {
      show(await post("api/play", { ...asked, turn: state.turn }));
    } catch (error) {
      notice(error.message);
      show(await get("api/play/state"));
    } finally {
      isBusy = false;
    }
  }

  async function ask() {
    const turn = state.turn;
    const best = await get("api/play/hint").catch((error) => notice(error.message));
    if (isOver || !best || state.turn !== turn) return;
    told.textContent = `The agent would play ${best.name}.`;
    for (const one of main.querySelectorAll("[data-action]")) one.classList.toggle("hinted", Number(one.dataset.action) === best.action);
  }

  function toggle() {
    const isOn = think.getAttribute("aria-pressed") !== "true";
    think.setAttribute("aria-pressed", String(isOn));
    mind.hidden = !isOn;
    if (isOn) thought();
  }

  async function thought() {
    const turn = state.turn;
    mind.replaceChildren(el("h2", {}, "What the agent thinks about your position"));
    if (state.is_over) return mind.append(el("p", {}, "The game is over."));
    const answer = await get("api/play/think").catch((error) => mind.append(el("p", {}, error.message)));
    if (!isOver && answer && state.turn === turn) mind.append(...draw(answer, async () => []));
  }

  const first = await get("api/play/state").catch((error) => notice(error.message));
  if (first) show(first);
  return { close: () => (isOver = true) };
}

function button(text, click) {
  return el("button", { type: "button", click }, text);
}

// A board of buttons; free cells that may be played have an action.
function board({ kind, stones, actions }, moves, play) {
  const names = new Map(moves.map(({ action, name }) => [action, name]));
  const rows = stones.map((row, y) => {
    const line = el(
      "div",
      { class: "row" },
      row.map((stone, x) => {
        const action = actions[y][x];
        const isFree = action !== null && (stone === 0 || kind === "connect_four");
        const label = `${["free", "first side", "second side"][stone]}${isFree ? `, play ${names.get(action)}` : ""}`;
        return el("button", { type: "button", class: `cell stone-${stone}`, disabled: !isFree, "data-action": isFree ? action : null, "aria-label": label, click: () => play(action) });
      }),
    );
    if (kind === "hex") line.style.setProperty("margin-left", `calc(var(--cell) * ${y / 2})`);
    return line;
  });
  return el("div", { class: `game-board ${kind}` }, rows);
}
