// The tree of a search, by the keys of a tree view: arrows, Home, End, Enter.

import { el } from "./dom.js";
import { number } from "./format.js";

export const FIGURES = ["visits", "prior", "reward", "value"];

export const fixed = (value) => (value === null || value === undefined ? "–" : `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(3)}`);

// nodes: of a thought. chosen: receives the node in focus. Returns the element; opens the main line.
export function searchTree(nodes, chosen) {
  const byNumber = new Map(nodes.map((node) => [node.number, node]));
  const most = byNumber.get(0).visits;
  const items = new Map(); // by number: those that were opened
  const root = el("ul", { class: "tree", role: "tree", "aria-label": "imagined positions", keydown: press, click: point });

  function item(node, level) {
    const numbers = [number(node.visits), node.prior.toFixed(3), fixed(node.reward), fixed(node.value)];
    const name = node.name || "root";
    const bar = el("meter", { min: 0, max: most, value: node.visits, "aria-hidden": "true" });
    const row = el(
      "div",
      { class: "node", role: "treeitem", tabindex: -1, "aria-level": level, "aria-selected": "false", "data-number": node.number, "aria-expanded": node.children.length ? "false" : null },
      el("span", { class: node.is_legal === false ? "name illegal" : "name" }, name),
      node.is_legal === false ? el("span", { class: "faint" }, "illegal") : node.is_afterstate ? el("span", { class: "faint" }, "chance") : "",
      el("span", { class: "space" }),
      bar,
      numbers.map((text, place) => el("span", { class: "figure" }, el("span", { class: "hidden" }, ` ${FIGURES[place]} `), text)),
    );
    items.set(node.number, row);
    return el("li", { role: "none" }, row);
  }

  function open(made, isOpen = true) {
    const node = nodeOf(made);
    if (!node.children.length) return;
    made.ariaExpanded = isOpen;
    const group = made.nextElementSibling;
    if (group) group.hidden = !isOpen;
    else if (isOpen) made.after(el("ul", { role: "group" }, node.children.map((child) => item(byNumber.get(child), Number(made.ariaLevel) + 1))));
  }

  const nodeOf = (made) => byNumber.get(Number(made.dataset.number));
  const isOpen = (made) => made.ariaExpanded === "true";
  const shown = () => [...root.querySelectorAll("[role=treeitem]")].filter((made) => !made.closest("ul[hidden]"));
  let current = null;

  function choose(made, { focus = true } = {}) {
    if (current) {
      current.tabIndex = -1;
      current.ariaSelected = false;
    }
    current = made;
    made.tabIndex = 0;
    made.ariaSelected = true;
    if (focus) made.focus();
    chosen(nodeOf(made));
  }

  function point(event) {
    const made = event.target.closest("[role=treeitem]");
    if (!made) return;
    open(made, !isOpen(made));
    choose(made);
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const all = shown();
    const place = all.indexOf(current);
    const parent = items.get(nodeOf(current).parent);
    const moves = {
      ArrowDown: () => choose(all[Math.min(place + 1, all.length - 1)]),
      ArrowUp: () => choose(all[Math.max(place - 1, 0)]),
      Home: () => choose(all[0]),
      End: () => choose(all.at(-1)),
      ArrowRight: () => (isOpen(current) ? choose(all[place + 1]) : open(current)),
      ArrowLeft: () => (isOpen(current) ? open(current, false) : parent && choose(parent)),
      Enter: () => open(current, !isOpen(current)),
      " ": () => open(current, !isOpen(current)),
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    moves[event.key]();
  }

  root.append(item(byNumber.get(0), 1));
  for (let node = byNumber.get(0); node?.children.length; node = byNumber.get(node.children[0])) open(items.get(node.number));
  choose(items.get(0), { focus: false });
  return {
    element: root,
    // Opens the way to a node, and chooses it.
    show(wanted) {
      const way = [];
      for (let node = byNumber.get(wanted); node; node = byNumber.get(node.parent)) way.unshift(node.number);
      way.forEach((at, place) => place < way.length - 1 && open(items.get(at)));
      if (items.has(wanted)) choose(items.get(wanted));
    },
  };
}
