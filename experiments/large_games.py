"""Estimates exploitability in games of two seats that are too large for the exact judge of `seedzero league nash`.

    python experiments/large_games.py RUN_DIR [--mixture=last|league|uniform] [--moves=200000] [--games=4000]
    python experiments/large_games.py RUN_DIR --phantom

PPO learns a response to one fixed mixture of a run's players, from --moves moves in both seats, and then plays --games
new games greedily. Apart from chance, its mean return there is at most that of a best response, so NashConv is at
least as large as it finds. One exploiter plays both seats in turn, against opponents drawn from the mixture for each
game. Equal arguments give equal numbers (--seed=0). --phantom computes the exact NashConv of main in phantom
tic-tac-toe instead (`phantom.py`). --step=N measures an earlier checkpoint, --trust_run_dir runs the code that RUN_DIR
names.

The last line is JSON: update, mixture, nash_conv_at_least, stderr (of the number of games alone), moves, exploiter
(seat: mean, stderr, num_games), own (likewise of the mixture against itself, where returns do not sum to zero, else
null); with --phantom update and nash_conv.

Shape letters: G games at a time, L steps of an unroll, B unrolls of an update, N players.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import phantom

from seedzero.acting.actors import acting_program, agent_choice, saved_agents
from seedzero.acting.equilibria import game_tree
from seedzero.agents import agent_table, base
from seedzero.api import exploitability, leagues
from seedzero.config import configs, options, presets
from seedzero.core import errors, opponents, types
from seedzero.device import acting, patience
from seedzero.envs import seats, spiel
from seedzero.league import members
from seedzero.replay import windowing
from seedzero.storage.checkpoints import saved_files

MIXTURES = (exploitability.LAST, exploitability.LEAGUE, exploitability.UNIFORM)
"""The mixtures that a response can be learned against."""
MOVES, GAMES = 200_000, 4_000
"""Default number of moves in training and of games for the error."""

NUM_GAMES = 128
"""G, the number of games at a time."""
_SETTINGS: Mapping[str, options.Value] = {
    "run.agent": "ppo",
    "network.kind": "mlp",
    "network.width": 128,
    "network.lstm_width": 0,
    "network.frame_stack": 1,
    "ppo.batch_size": NUM_GAMES,
    "ppo.unroll_length": 8,
    "ppo.num_epochs": 4,
    "ppo.entropy_weight": 0.01,
    "reward.discount": 1.0,
    "reward.normalize": False,
}
"""The exploiter's settings on top of the preset `seats`, whose entropy bonus would keep a best response from being
pure."""


class Opponents(NamedTuple):
    """Fixed players [N] of one agent, and their weights [N] for each seat, which sum to 1."""

    saved: Sequence[saved_agents.SavedAgent]
    weights: tuple[np.ndarray, np.ndarray]


class Gain(NamedTuple):
    """A player's mean return in one seat against a mixture in the other, with its standard error over games."""

    mean: float
    stderr: float
    num_games: int


class Trained(NamedTuple):
    """The exploiter after an update, and how many training moves it has made."""

    agent: saved_agents.SavedAgent
    num_moves: int


class Approximation(NamedTuple):
    """The returns of an exploiter against a mixture of a checkpoint's players, in each seat.

    own: returns of the mixture against itself, which are subtracted; None if the game is zero-sum.
    """

    update: int
    mixture: str
    num_moves: int  # moves that the exploiter made in training
    gains: tuple[Gain, Gain]  # by its seat
    own: tuple[Gain, Gain] | None

    @property
    def nash_conv(self) -> float:
        """Returns the estimate of a lower bound of NashConv; exploitability is half of it."""
        return sum(gain.mean for gain in self.gains) - sum(gain.mean for gain in self.own or ())

    @property
    def stderr(self) -> float:
        """Returns the standard error of `nash_conv` over games."""
        return math.hypot(*(gain.stderr for gain in (*self.gains, *(self.own or ()))))

    def to_json(self) -> dict[str, Any]:
        """Returns the results by name, with seats by name as well."""

        def by_seat(found: Sequence[Gain]) -> dict[str, Any]:
            return {seat: gain._asdict() for seat, gain in zip(opponents.SIDES, found, strict=True)}

        return {
            "update": self.update,
            "mixture": self.mixture,
            "nash_conv_at_least": self.nash_conv,
            "stderr": self.stderr,
            "moves": self.num_moves,
            "exploiter": by_seat(self.gains),
            "own": None if self.own is None else by_seat(self.own),
        }


def main() -> None:
    """Reads the command line and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=pathlib.Path)
    parser.add_argument("--mixture", choices=MIXTURES, default=MIXTURES[0])
    parser.add_argument("--moves", type=int, default=MOVES)
    parser.add_argument("--games", type=int, default=GAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step", type=int)
    parser.add_argument("--phantom", action="store_true")
    parser.add_argument("--trust_run_dir", action="store_true")
    given = parser.parse_args()
    if min(given.moves, given.games) < 4:
        parser.error(f"--moves={given.moves} --games={given.games}: expected at least 4 of each")
    step: saved_files.Step = "last" if given.step is None else given.step
    place, trusted = str(given.run_dir), given.trust_run_dir
    try:
        if given.phantom:
            found = judge_phantom(given.run_dir, place, step, trusted=trusted)
        else:
            numbers = {"num_moves": given.moves, "num_games": given.games, "seed": given.seed}
            found = judge(given.run_dir, place, step, mixture=given.mixture, trusted=trusted, **numbers).to_json()
    except errors.Error as error:
        raise SystemExit(f"error: {error}") from None
    print(json.dumps(found))


def judge(
    path: pathlib.Path,
    place: str,
    step: saved_files.Step = "last",
    *,
    mixture: str = exploitability.LAST,
    num_moves: int = MOVES,
    num_games: int = GAMES,
    seed: int = 0,
    trusted: bool = False,
) -> Approximation:
    """Learns a response to a mixture of a run's players and plays new games with it, without writing a file.

    Args:
      place, step, trusted: as of `exploitability.judge`.
      mixture: one of MIXTURES; without a league only LAST.
      num_moves: fewest moves of the exploiter in training. num_games: games for the error, half of them in each seat.
      seed: of everything random; equal arguments give equal results.

    Raises UsageError for an unsuitable game, or a mixture that the run does not have, and CheckpointError.
    """
    choice = agent_choice.AgentChoice(path, step, trusted=trusted)
    config, _ = saved_agents.read(choice)
    game = game_tree.game_of(config.env.id, place, needs_strings=False)
    weights = _weights(path, place, step, mixture) if leagues.has_league(config) else {members.MAIN: 1.0}
    if not any(weights.values()) or (mixture != exploitability.LAST and not leagues.has_league(config)):
        raise errors.UsageError(f"{place} has no mixture {mixture}; give --mixture={exploitability.LAST}")
    names = [name for name, weight in weights.items() if weight > 0]
    saved = saved_agents.load_players(
        choice, config, game.spec, [None if name == members.MAIN else name for name in names]
    )
    mode = types.SAMPLE if saved[0].agent.has_policy else types.GREEDY
    shares = np.array([weights[name] for name in names])
    shares /= shares.sum()
    fixed = Opponents([one._replace(mode=mode) for one in saved], (shares, shares))
    reached = 0
    with patience.telling(lambda: f"the exploiter has learned from {reached:,} of {num_moves:,} moves"):
        trial, training, test, other = saved_agents.seeds(seed, 4)
        spread = max(gain.stderr * math.sqrt(gain.num_games) for gain in gains(game, None, fixed, 400, trial))
        for learned in learn(game, fixed, training, spread=spread or 1.0):
            reached = learned.num_moves
            if reached >= num_moves:
                break
        found = gains(game, learned.agent, fixed, num_games, test)
        own = None if game.sums_to_zero else gains(game, None, fixed, num_games, other)
    update = saved_files.find(path / "checkpoints", step, "params")[1].step
    return Approximation(update, mixture, reached, found, own)


def _weights(path: pathlib.Path, place: str, step: saved_files.Step, mixture: str) -> dict[str, float]:
    """Returns the weights of a league's mixture by player; {} if it has none."""
    league = leagues.read(path, place, step)
    if mixture == exploitability.LEAGUE:
        scripted = members.scripted(league.pool)  # they have no parameters to play with here
        return {row["opponent"]: row["share"] for row in league.opponents() if row["opponent"] not in scripted}
    return {members.MAIN: 1.0} if mixture == exploitability.LAST else dict.fromkeys(league.pool.past(), 1.0)


def judge_phantom(
    path: pathlib.Path, place: str, step: saved_files.Step = "last", *, trusted: bool = False
) -> dict[str, Any]:
    """Returns the update and the exact NashConv of main in phantom tic-tac-toe, which takes minutes and 3 GB.

    Args are those of `exploitability.judge`. Raises UsageError for another game, or an agent with memory or without a
    policy of probabilities.
    """
    choice = agent_choice.AgentChoice(path, step, trusted=trusted)
    config, _ = saved_agents.read(choice)
    game = game_tree.game_of(config.env.id, place)
    rules = phantom.rules_of(spiel.load(game.name))
    if rules is None:
        raise errors.UsageError(
            f"{place} was trained in {game.name}; --phantom is for one of {', '.join(phantom.NAMES)}"
        )
    (saved,) = saved_agents.load_players(choice, config, game.spec, (None,))
    if saved.agent.policy is None or config.network.lstm_width or saved.agent.stack > 1:
        raise errors.UsageError(
            f"{place} was trained by an agent with memory, or without a policy of probabilities; omit --phantom, or "
            "train PPO or V-trace without --network.lstm_width and --network.frame_stack"
        )
    with patience.telling(lambda: "judging main in 6 million information states, which takes minutes"):
        return {"update": saved.update, "nash_conv": phantom.nash_conv(rules, saved.agent, game, saved.params)}


def learn(game: seats.SeatGame, opponents: Opponents, seed: int, *, spread: float = 1.0) -> Iterator[Trained]:
    """Yields an exploiter after each update, forever; it depends only on the arguments.

    spread: roughly the standard deviation of returns; rewards are divided by it.
    """
    config = configs.override(presets.get("seats"), {**_SETTINGS, "reward.scale": 1 / spread})
    agent = agent_table.make(config, game.spec, jax.default_backend())
    state, key = agent.init(jax.random.key(seed)), jax.random.key(seed + 1)
    update = jax.jit(lambda state, windows, key: agent.update(state, windows, key, None)[0])
    games = _Games(game, opponents, agent, NUM_GAMES, seed)
    unrolls, num_moves = _Unrolls(config.ppo.unroll_length), 0
    for num_updates in itertools.count(1):
        params = agent.acting(state)
        while len(unrolls.whole) < config.ppo.batch_size:
            rows = games.step(params, types.EXPLORE)
            num_moves += sum(not row.final for row in rows)
            unrolls.add(rows)
        state = update(state, unrolls.take(config.ppo.batch_size), jax.random.fold_in(key, num_updates))
        saved = saved_agents.SavedAgent(agent, agent.acting(state), num_updates, "given", config, game.spec)
        yield Trained(saved, num_moves)


def gains(
    game: seats.SeatGame, exploiter: saved_agents.SavedAgent | None, opponents: Opponents, num_games: int, seed: int
) -> tuple[Gain, Gain]:
    """Returns an exploiter's gain in each seat, from new games in which it plays greedily, half of them in each seat.

    exploiter: None: the mixture plays against itself. num_games: at least 4; up to NUM_GAMES more pairs are played.
    """
    size = min(NUM_GAMES, num_games // 2)
    per_table = 2 * -(-num_games // (2 * size))  # stopping after a total number of games would favor short ones
    games = _Games(game, opponents, exploiter and exploiter.agent, size, seed, most=per_table)
    while games.goes_on:
        games.step(exploiter and exploiter.params, types.GREEDY)
    one, other = (
        Gain(float(x.mean()), float(x.std(ddof=1)) / math.sqrt(len(x)), len(x)) for x in map(np.array, games.returns)
    )
    return one, other


class _Row(NamedTuple):
    """What a game's leading player sees at its turn, or at the end."""

    table: int
    observation: np.ndarray
    reward: float
    first: bool
    final: bool
    stored: dict[str, np.ndarray]


@dataclasses.dataclass
class _Table:
    """A game in progress; lists have one entry for each chair."""

    chair: int  # of the leading player
    generator: np.random.Generator  # draws the outcomes of chance
    state: Any
    # rewards already shown; None before the first turn
    paid: list[float | None] = dataclasses.field(default_factory=lambda: [None] * game_tree.NUM_SEATS)
    players: tuple[int, int] = (0, 0)  # the leading player and its opponent
    number: int = 0  # number of the game at this table


class _Games:
    """G games at a time between a leading player, which alternates its seat, and drawn opponents."""

    def __init__(
        self,
        game: seats.SeatGame,
        opponents: Opponents,
        leading: base.Agent | None,
        size: int,
        seed: int,
        *,
        most: int | None = None,
    ) -> None:
        """leading: None to draw it, too. most: number of games at each table; None: no limit."""
        self._game, self._opponents, self._most, self._seed = game, opponents, most, seed
        saved = opponents.saved[0]
        self._sides = [_Side(agent, game.spec, size) for agent in (leading or saved.agent, saved.agent)]
        self._modes = [saved.mode] * 2
        self._params: list[Sequence[base.Params]] = [[one.params for one in opponents.saved]] * 2
        self._has_leading, self._num_calls = leading is not None, 0
        self._tables = [self._begun(place, 0) for place in range(size)]
        self.returns: tuple[list[float], list[float]] = ([], [])  # the leading player's returns in each seat

    @property
    def goes_on(self) -> bool:
        """Whether some game is not over."""
        return any(self._game.movers(table.state) for table in self._tables)

    def step(self, params: base.Params | None, mode: np.int8) -> list[_Row]:
        """Makes one move in every game and returns what the leading player sees.

        params, mode: for the leading player's moves, unless it is drawn.
        """
        if self._has_leading:
            self._params[0], self._modes[0] = [params], mode
        chosen: list[dict[int, int]] = [{} for _ in self._tables]
        rows = list[_Row]()
        for role, side in enumerate(self._sides):
            chairs = [table.chair if role == 0 else 1 - table.chair for table in self._tables]
            turns, step, first = _shown_to(self._game, self._tables, chairs, len(self._tables))
            for player in sorted({self._tables[place].players[role] for place in turns}):
                mine = [place for place in turns if self._tables[place].players[role] == player]
                draws = self._seed, self._num_calls
                self._num_calls += 1
                action, stored = side.act(
                    self._params[role][player], player, step, first, mine, self._modes[role], draws
                )
                for place in mine:
                    chosen[place][chairs[place]] = int(action[place])
                    if role == 0 and self._most is None:
                        kept = {name: array[place] for name, array in stored.items()}
                        seen = step.observation[place], float(step.reward[place]), bool(first[place])
                        rows.append(_Row(place, *seen, False, kept))
        return rows + self._move(chosen)

    def _move(self, chosen: Sequence[dict[int, int]]) -> list[_Row]:
        """Applies moves by table and chair, replaces games that end, and returns their last rows."""
        rows = list[_Row]()
        for place, (table, moves) in enumerate(zip(self._tables, chosen, strict=True)):
            if not moves:
                continue
            table.state = self._game.apply(table.state, moves, table.generator)
            if self._game.movers(table.state):
                continue
            total, paid = self._game.returns(table.state)[table.chair], table.paid[table.chair]
            self.returns[table.chair].append(total)
            if paid is not None and self._most is None:
                blank = self._sides[0].blank
                rows.append(
                    _Row(place, self._game.observe(table.state, table.chair), total - paid, False, True, blank)
                )
            if self._most is None or table.number + 1 < self._most:
                self._tables[place] = self._begun(place, table.number + 1)
        return rows

    def _begun(self, place: int, number: int) -> _Table:
        """Returns a table's next game, in which the leading player changes its seat."""
        generator, chair = np.random.default_rng([self._seed, place, number]), (place + number) % game_tree.NUM_SEATS
        one, other = (
            int(generator.choice(len(self._opponents.saved), p=self._opponents.weights[seat]))
            for seat in (chair, 1 - chair)
        )
        state = self._game.initial(generator)
        return _Table(chair, generator, state, players=(0 if self._has_leading else one, other), number=number)


def _shown_to(
    game: seats.SeatGame, tables: Sequence[_Table], chairs: Sequence[int], size: int
) -> tuple[list[int], types.EnvStep, np.ndarray]:
    """Returns the tables whose chair has a turn, their step, and [B] bool that is true at a chair's first turn."""
    spec, none = game.spec, np.zeros(size, bool)
    observation, mask = np.zeros((size, *spec.observation_shape), np.float32), np.ones((size, spec.num_actions), bool)
    reward, task, shown, first = np.zeros(size, np.float32), np.zeros(size, np.int32), none.copy(), none.copy()
    for row, (table, chair) in enumerate(zip(tables, chairs, strict=True)):
        if chair in game.movers(table.state):
            so_far, before = game.returns(table.state)[chair], table.paid[chair]
            shown[row], task[row], first[row] = True, chair, before is None
            observation[row], mask[row] = game.observe(table.state, chair), game.legal_mask(table.state, chair)
            reward[row] = 0.0 if before is None else so_far - before
            table.paid[chair] = 0.0 if before is None else so_far
    step = types.EnvStep(observation, reward, none, none, mask, task, shown)
    return np.flatnonzero(shown).tolist(), step, first


class _Side:
    """The players on one side of all games, all of one agent, each with its own memory for each table."""

    def __init__(self, agent: base.Agent, spec: types.EnvSpec, size: int) -> None:
        self._spec, self._program = spec, acting_program.ActingProgram(agent, spec)
        self._initial = acting.initial(agent, spec, size)
        self._memory: dict[int, acting.Carried] = {}
        self.blank = {name: np.zeros(kept.shape, kept.dtype) for name, kept in agent.stored.items()}

    def act(
        self,
        params: base.Params,
        player: int,
        step: types.EnvStep,
        first: np.ndarray,
        mine: Sequence[int],
        mode: np.int8,
        draws: tuple[int, int],
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns a player's actions [G] and stored arrays [G, ...], which are valid at its own tables.

        draws: the seed and the number of the call.
        """
        seen = acting_program.seen(self._spec, step, first, mode)
        written = np.where(np.isin(seen.slot, mine), seen.slot, np.int32(acting_program.NOWHERE))
        rows = params, self._memory.get(player, self._initial), seen, *draws
        self._memory[player], found = self._program(*rows, written=written, findings=acting_program.STORED)
        stored = acting_program.on_host(found)
        return stored["action"], {name: stored[name] for name in self.blank}


class _Unrolls:
    """Collects rows of tables into unrolls: L steps, and one more row that also begins the next unroll."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._open: dict[int, list[_Row]] = {}
        self.whole = collections.deque[list[_Row]]()  # complete unrolls, which the caller removes

    def add(self, rows: Sequence[_Row]) -> None:
        for row in rows:
            found = self._open.setdefault(row.table, [])
            found.append(row)
            if len(found) > self._length:
                self.whole.append(found)
                self._open[row.table] = [row]

    def take(self, number: int) -> windowing.Windows:
        """Removes and returns the oldest unrolls."""
        unrolls = [self.whole.popleft() for _ in range(number)]
        shape = (number, self._length + 1)

        def stacked(values: Callable[[_Row], Any], dtype: Any = np.float32) -> np.ndarray:
            return np.array([[values(row) for row in unroll] for unroll in unrolls], dtype)

        stored = [[row.stored for row in unroll] for unroll in unrolls]
        arrays: dict[str, Any] = dict(
            observation={types.OBSERVATION: stacked(lambda row: row.observation)},
            places=np.zeros((*shape, 1), np.int32),
            reward=stacked(lambda row: row.reward),
            terminated=stacked(lambda row: row.final, bool),
            truncated=np.zeros(shape, bool),
            first=stacked(lambda row: row.first, bool),
            stored=jax.tree.map(lambda *x: np.stack(x).reshape(*shape, *x[0].shape), *itertools.chain(*stored)),
            valid=np.ones(shape, bool),
            weight=np.ones(number, np.float32),
            slot=np.zeros(number, np.int32),
            time=np.zeros(number, np.int32),
        )
        return windowing.Windows(**arrays)


if __name__ == "__main__":
    main()
