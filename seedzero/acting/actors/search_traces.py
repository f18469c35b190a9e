"""Presents one search as a value: actions, tree and lines of play, to show as text, SVG or JSON.

All numbers are the search's own, in the environment's units. A node's value is from the view of the player to move.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero import search as mcts
from seedzero.acting.actors import positions
from seedzero.agents import base
from seedzero.core import printable

# Draws a search tree, or probabilities, as SVG: plain text without scripts, fonts or links.
#
# The picture has a white background, so that it is readable in light and dark notebooks.
MOST_NODES = 40
MOST_BARS = 20
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _TOP, _MARGIN = 132, 36, 176, 46, 34, 12
_LONGEST = 18
"""Longest name in a box, in characters; its tooltip shows the whole name."""
_INK, _MAIN, _BAD, _GROUND = "#1f2328", "#1a5fb4", "#b3261e", "#ffffff"


class Box(NamedTuple):
    """A node of the picture: its parent's number, its texts, and the numbers that decide its size and color."""

    parent: int | None
    title: str
    text: str
    note: str
    visits: int
    depth: int
    value: float
    is_main: bool
    is_legal: bool
    is_round: bool = False


def tree_svg(title: str, numbers: Sequence[int], boxes: Sequence[Box], most_nodes: int = MOST_NODES) -> str:
    """Draws the most visited nodes with the root at the left; `numbers` are the boxes' numbers, the root's first."""
    # A parent has more visits than its children, so every box that is kept has its parent.
    order = sorted(zip(numbers, boxes, strict=True), key=lambda pair: (-pair[1].visits, pair[0]))
    kept = dict(order[: max(1, most_nodes)])
    below: dict[int, list[int]] = {number: [] for number in kept}
    for number, box in kept.items():
        if box.parent is not None:
            below[box.parent].append(number)
    rows = _rows(numbers[0], below)
    largest = max(abs(box.value) for box in kept.values()) or 1.0
    most_visits = max(box.visits for box in kept.values())
    parts = list(_edges(kept, rows, most_visits)) + [_box(box, rows[n], largest) for n, box in kept.items()]
    left_out = f"; {len(kept)} of {len(boxes)} nodes" if len(kept) < len(boxes) else ""
    width = _MARGIN * 2 + _WIDTH + _ACROSS * max(box.depth for box in kept.values())
    height = _TOP + _MARGIN + _HEIGHT + _DOWN * max(rows.values())
    return _picture(f"{title}{left_out}", width, height, parts)


def bar_chart(title: str, values: Sequence[tuple[str, float]]) -> str:
    """Draws the largest probabilities as named bars."""
    shown = sorted(values, key=lambda pair: -pair[1])[:MOST_BARS]
    parts = []
    for row, (name, value) in enumerate(shown):
        y = _TOP + 24 * row
        parts.append(_text(_MARGIN, y + 15, _short(name)))
        parts.append(f'<rect x="150" y="{y + 3}" width="{240 * value:.1f}" height="16" fill="{_MAIN}"/>')
        parts.append(_text(156 + 240 * value, y + 15, f"{value:.3f}"))
    return _picture(title, 460, _TOP + _MARGIN + 24 * len(shown), parts)


def _rows(root: int, below: dict[int, list[int]]) -> dict[int, float]:
    """Returns each node's row: leaves are stacked, and a parent is centered on its children."""
    rows: dict[int, float] = {}
    num_leaves = 0
    waiting = [(root, False)]
    while waiting:
        number, is_done = waiting.pop()
        children = below[number]
        if is_done:
            rows[number] = (rows[children[0]] + rows[children[-1]]) / 2
        elif children:
            waiting.append((number, True))
            waiting += [(child, False) for child in reversed(children)]
        else:
            rows[number], num_leaves = float(num_leaves), num_leaves + 1
    return rows


def _corner(box: Box, row: float) -> tuple[float, float]:
    return _MARGIN + _ACROSS * box.depth, _TOP + _DOWN * row


def _edges(kept: dict[int, Box], rows: dict[int, float], most_visits: int) -> Iterator[str]:
    for number, box in kept.items():
        if box.parent is not None:
            (x0, y0), (x1, y1) = _corner(kept[box.parent], rows[box.parent]), _corner(box, rows[number])
            x0, y0, y1 = x0 + _WIDTH, y0 + _HEIGHT / 2, y1 + _HEIGHT / 2
            middle = (x0 + x1) / 2
            width = 1.0 + 5.0 * box.visits / most_visits
            yield (
                f'<path d="M{x0:.0f} {y0:.1f}C{middle:.0f} {y0:.1f} {middle:.0f} {y1:.1f} {x1:.0f} {y1:.1f}" '
                f'fill="none" stroke="{_MAIN if box.is_main else "#9aa0a6"}" stroke-width="{width:.1f}"/>'
            )


def _box(box: Box, row: float, largest: float) -> str:
    x, y = _corner(box, row)
    share = min(1.0, abs(box.value) / largest) * 0.5
    red, green, blue = (46, 125, 50) if box.value >= 0 else (198, 40, 40)
    fill = "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in (red, green, blue))
    corner = _HEIGHT // 2 if box.is_round else 5
    stroke = _BAD if not box.is_legal else _MAIN if box.is_main else "#5f6368"
    dashes = "" if box.is_legal else ' stroke-dasharray="5 3"'
    name = _short(box.title) if box.is_legal else f"{_short(box.title)} illegal"
    return (
        f"<g><title>{_escaped(box.note)}</title>"
        f'<rect x="{x:.0f}" y="{y:.1f}" width="{_WIDTH}" height="{_HEIGHT}" rx="{corner}" fill="{fill}" '
        f'stroke="{stroke}" stroke-width="{2 if box.is_main else 1}"{dashes}/>'
        f"{_text(x + 8, y + 15, name, bold=True)}{_text(x + 8, y + 29, box.text)}</g>"
    )


def _picture(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    width = max(width, 2 * _MARGIN + 6.6 * len(title))
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" role="img">'
    ground = f'<rect width="100%" height="100%" rx="6" fill="{_GROUND}"/>'
    return "\n".join([head, f"<title>{_escaped(title)}</title>", ground, _text(_MARGIN, 20, title), *parts, "</svg>"])


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.1f}" fill="{_INK}"{weight}>{_escaped(text)}</text>'


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _escaped(text: str) -> str:
    """Escapes text for XML, which allows no control characters except line ends."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))


FORMAT, VERSION = "seedzero.thought", 1
MOST_ROWS = 12
"""Actions shown in the table."""
MOST_LINES = 3
"""Lines of play shown below the table."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """An action at the observation.

    Attributes:
      number: index of the action in `Policy.actions`; for continuous actions, index of the sample.
      name: the game's or the environment's name, or else the environment's value as text.
      is_legal: whether the action mask allows it; true without a mask.
      prior: probability of the policy network before masking; None if the agent does not search.
      policy: probability in the search's improved policy, or with which the agent draws it.
      visits: simulations that began with it; None if the agent does not search.
      q_value: mean return of these simulations; None if unvisited.
      completed_q: `q_value`, or the search's mixed value if unvisited (see `search.completed_q`).
    """

    number: int
    name: str
    is_legal: bool
    prior: float | None
    policy: float
    visits: int | None = None
    q_value: float | None = None
    completed_q: float | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class Node:
    """A position that the search imagined; its fields are those of `search.Tree`.

    In a model with chance, the children of an afterstate are codes of outcomes, and their prior is their probability.

    Attributes:
      number: number of the node; the root is 0, and children have larger numbers than their parent.
      parent: number of the parent; None at the root.
      action: action taken at the parent, or the code that chance drew there; None at the root.
      name: name of the action, "" at the root.
      prior: prior of the action at the parent, as the search uses it; 1 at the root.
      visits: simulations through the node, including its own evaluation.
      reward: predicted reward of the step from the parent.
      discount: factor of the value; negative if the other player moves.
      value: mean of the network's value and the returns found below.
      depth: number of actions from the root; an afterstate has the depth of the position before it.
      children: sorted by visits, the most visited first.
      is_legal: whether the game allows all actions up to here; None if unknown.
      position: the game's own text of the real position; None if unknown, or if there is no such position.
      is_afterstate: whether chance decides what follows.
    """

    number: int
    parent: int | None
    action: int | None
    name: str
    prior: float
    visits: int
    reward: float
    discount: float
    value: float
    depth: int
    children: tuple[Node, ...] = ()
    is_legal: bool | None = None
    position: str | None = None
    is_afterstate: bool = False

    def __repr__(self) -> str:
        return (
            f"Node({self.number}: {self.name or 'root'}, {self.visits} visits, value {self.value:.3f}, "
            f"{len(self.children)} children)"
        )

    def walk(self) -> Iterator[Node]:
        """Yields the node and all nodes below it, parents before children."""
        yield self
        for child in self.children:
            yield from child.walk()

    def line(self) -> tuple[Node, ...]:
        """Returns the nodes from here along the most visited children."""
        found = [self]
        while found[-1].children:
            found.append(found[-1].children[0])
        return tuple(found)


@dataclasses.dataclass(frozen=True, repr=False)
class Thought:
    """What an agent thinks about one observation; notebooks display it.

    Attributes:
      env: id of the run's environment.
      agent: name of the agent.
      step: number of updates behind the checkpoint.
      action: the action that the policy takes here, of `Policy.spec.action_space`.
      name: name of that action, as in the choices.
      choices: all actions in their order; for continuous actions, the sampled ones.
      value: as in `Policy.search`; None, like all fields below, if the agent does not search.
      network_value: the network's own value.
      num_simulations: number of simulations of the search.
      root: root of the search tree.
    """

    env: str
    agent: str
    step: int
    action: Any
    name: str
    choices: tuple[Choice, ...]
    value: float | None = None
    network_value: float | None = None
    num_simulations: int | None = None
    root: Node | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes of the tree in the order of their numbers; empty if the agent does not search."""
        return () if self.root is None else tuple(sorted(self.root.walk(), key=lambda node: node.number))

    @property
    def lines(self) -> tuple[PlayLine, ...]:
        """The most visited path of each visited action; the chosen action's path is first."""
        first = [] if self.root is None else sorted(self.root.children, key=lambda child: child.name != self.name)
        return tuple(map(_line, first))

    def to_json(self) -> dict[str, Any]:
        """Returns everything as plain numbers, strings and lists; docs/python.md names the fields."""
        action = self.action.tolist() if isinstance(self.action, np.ndarray) else self.action
        flat = [{**vars(node), "children": [child.number for child in node.children]} for node in self.nodes]
        lines = [{**line._asdict(), "nodes": [node.number for node in line.nodes]} for line in self.lines]
        shown = {name: getattr(self, name) for name in ("env", "agent", "step", "name", *_NUMBERS)}
        choices = [dict(vars(choice)) for choice in self.choices]
        return {"format": FORMAT, "version": VERSION, **shown, "action": action, "choices": choices} | (
            {} if self.root is None else {"lines": lines, "nodes": flat}
        )

    def __str__(self) -> str:
        best = sorted(self.choices, key=lambda choice: -choice.policy)[:MOST_ROWS]
        rows = [("action", "prior", "visits", "Q", "completed Q", "policy"), *map(_row, best)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        if num_more := len(self.choices) - len(best):
            table.append(f"{num_more} more actions")
        return "\n".join([self._title(), *table, *(f"line: {line.text}" for line in self.lines[:MOST_LINES])])

    __repr__ = __str__

    def _title(self) -> str:
        place = f"{self.env}, {self.agent} of update {self.step}: action {self.name}"
        if self.value is None or self.network_value is None:
            return place
        return (
            f"{place}, value {self.value:.3f} (network {self.network_value:.3f}), {self.num_simulations} simulations"
        )

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_svg(self, most_nodes: int = MOST_NODES) -> str:
        """Returns an SVG picture of the most visited nodes, or of the probabilities if there is no tree."""
        if self.root is None:
            bars = [(choice.name, choice.policy) for choice in self.choices]
            return bar_chart(self._title(), bars)
        codes = {child.number for node in self.nodes if node.is_afterstate for child in node.children}
        main = {node.number for node in (self.root, *self.lines[0].nodes)} if self.lines else set()
        columns = [0]
        for node in self.nodes[1:]:
            columns.append(columns[node.parent or 0] + 1)
        boxes = [
            Box(
                parent=node.parent,
                title=f"{node.name}: {node.prior:.2f}" if node.number in codes else node.name or "root",
                text=f"{node.visits} visits  {node.value:+.2f}",
                note=_note(node),
                visits=node.visits,
                depth=columns[node.number],
                value=node.value,
                is_main=node.number in main,
                is_legal=node.is_legal is not False,
                is_round=node.is_afterstate,
            )
            for node in self.nodes
        ]
        return tree_svg(self._title(), [node.number for node in self.nodes], boxes, most_nodes)


_NUMBERS = ("value", "network_value", "num_simulations")


class PlayLine(NamedTuple):
    """A line of play.

    Attributes:
      text: names of the actions; [x] follows an action that the game does not allow.
      visits: visits of its first action.
      q_value: value of its first action.
      nodes: the nodes without the root.
    """

    text: str
    visits: int
    q_value: float
    nodes: tuple[Node, ...]


def _line(first: Node) -> PlayLine:
    nodes = first.line()
    names = " ".join(f"{node.name}{'[x]' if node.is_legal is False else ''}" for node in nodes)
    # With a depth limit, an action has one node for each visit; they have the same reward and divide the visits.
    q_value = first.reward + first.discount * first.value
    return PlayLine(f"{names} ({first.visits} visits, Q {q_value:+.3f})", first.visits, q_value, nodes)


def _row(choice: Choice) -> tuple[str, ...]:
    numbers = (choice.q_value, choice.completed_q)
    prior = "-" if choice.prior is None else f"{choice.prior:.3f}"
    visits = "-" if choice.visits is None else str(choice.visits)
    name = choice.name if choice.is_legal else f"{choice.name} (illegal)"
    return name, prior, visits, *("-" if x is None else f"{x:+.3f}" for x in numbers), f"{choice.policy:.3f}"


def _note(node: Node) -> str:
    illegal = "; the game does not allow it" * (node.is_legal is False)
    facts = (
        f"{node.name or 'root'}: prior {node.prior:.3f}, {node.visits} visits, reward {node.reward:+.3f}, "
        f"value {node.value:+.3f}, depth {node.depth}{'; chance follows' * node.is_afterstate}{illegal}"
    )
    return facts if node.position is None else f"{facts}\n{node.position}"


# Making -------------------------------------------------------------------------------------------------------------


def names(
    actions: np.ndarray, legal: np.ndarray, place: positions.GamePlace | None, own: Sequence[str] = ()
) -> list[str]:
    """Returns names of actions [A, ...]: the game's for legal ones, [A], else the environment's own, or the values."""
    found = [printable.escape(name) for name in own] or [_value_name(value) for value in actions]
    if place is not None and place.legal(place.state):
        for number in np.flatnonzero(legal).tolist():
            found[number] = printable.escape(place.name(place.state, number))
    return found


def choices(
    names: Sequence[str], legal: np.ndarray, policy: np.ndarray, found: base.Searched | None
) -> tuple[Choice, ...]:
    """Returns the actions as choices.

    legal: [A] bool. policy: [A]. found: results for one observation; None if the agent does not search.
    """

    def choice(number: int, name: str) -> Choice:
        is_legal, share = bool(legal[number]), float(policy[number])
        if found is None:
            return Choice(number, name, is_legal, None, share)
        visits = int(found.visit_counts[number])
        q_value = float(found.q_values[number]) if visits else None
        completed_q = float(found.completed_q[number]) if is_legal else None
        return Choice(number, name, is_legal, float(found.prior[number]), share, visits, q_value, completed_q)

    return tuple(choice(*pair) for pair in enumerate(names))


def renamed(shown: Thought, names: Mapping[int, str]) -> Thought:
    """Returns a thought without a tree in which some actions, given by number, have other names."""
    number = next(choice.number for choice in shown.choices if choice.name == shown.name)
    choices = (dataclasses.replace(one, name=names.get(one.number, one.name)) for one in shown.choices)
    return dataclasses.replace(shown, choices=tuple(choices), name=names.get(number, shown.name))


def with_search(
    shown: Thought, found: base.Searched, names: Sequence[str], place: positions.GamePlace | None
) -> Thought:
    """Returns a thought with the results of a search for one observation, including its tree."""
    assert found.tree is not None
    return dataclasses.replace(
        shown,
        value=float(found.value),
        network_value=float(found.network_value),
        num_simulations=int(found.visit_counts.sum()),
        root=_tree(found.tree, names, place),
    )


def _tree(table: mcts.Tree, names: Sequence[str], place: positions.GamePlace | None) -> Node:
    """Returns the root node of a tree [N]; `names` has the names of all actions."""
    made = np.flatnonzero(table.num_visits > 0).tolist()  # The array may have unused nodes between used ones.
    numbers = {at: number for number, at in enumerate(made)}
    parents = [-1, *(numbers[at] for at in table.parent[made[1:]].tolist())]
    columns = (table.num_visits, table.reward, table.discount, table.value, table.depth)
    values = list(zip(*(column[made].tolist() for column in columns), strict=True))
    actions = table.action[made].tolist()
    codes = [f"code {number}" for number in range(table.prior.shape[-1])]
    is_afterstate = [False] * len(made) if table.is_afterstate is None else table.is_afterstate[made].tolist()
    priors = [1.0, *table.prior[[made[parent] for parent in parents[1:]], actions[1:]].tolist()]
    truth = positions.along(parents, actions, place)
    children: list[list[Node]] = [[] for _ in made]
    for number in range(len(made) - 1, -1, -1):  # Children come after their parents, so this makes them first.
        is_root = number == 0
        visits, reward, discount, value, depth = values[number]
        is_legal, position, name = truth[number]
        node = Node(
            number=number,
            parent=None if is_root else parents[number],
            action=None if is_root else actions[number],
            name="" if is_root else name or (codes if is_afterstate[parents[number]] else names)[actions[number]],
            prior=priors[number],
            visits=visits,
            reward=reward,
            discount=discount,
            value=value,
            depth=depth,
            children=tuple(sorted(children[number], key=lambda child: (-child.visits, child.number))),
            is_legal=is_legal,
            position=position,
            is_afterstate=is_afterstate[number],
        )
        if not is_root:
            children[parents[number]].append(node)
    return node


def _value_name(value: Any) -> str:
    """Returns an environment's action as text."""
    array = np.asarray(value)
    return " ".join(str(np.round(array, 3) if array.dtype.kind == "f" else array).split())
