"""Games of two players in one process: who moves when, how lines are counted, and what is refused."""

from __future__ import annotations

import functools
import pathlib
import types as pytypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from seedzero.acting.actors import actor, agent_choice, saved_agents
from seedzero.acting.tables import match, scoring, table
from seedzero.agents import muzero
from seedzero.config import configs, options, presets
from seedzero.core import errors, types
from seedzero.envs import bots, spiel, turn_games
from seedzero.storage.checkpoints import run_dirs


@pytest.fixture(scope="module")
def tic_tac_toe() -> spiel.Game:
    pytest.importorskip("pyspiel")
    return spiel.Game("tic_tac_toe")


class _Perfect:
    """Negamax over all of tic-tac-toe; of equally good moves the first."""

    def __init__(self, game: spiel.Game) -> None:
        self._game = game
        self._values: dict[str, float] = {}

    def __call__(self, state: spiel.State) -> int:
        return int(max(state.legal_actions(), key=functools.partial(self._worth, state)))

    def _worth(self, state: spiel.State, action: int) -> float:
        after = state.child(action)
        if after.is_terminal():
            return float(after.returns()[self._game.mover(state)])
        if str(after) not in self._values:
            self._values[str(after)] = max(self._worth(after, reply) for reply in after.legal_actions())
        return -self._values[str(after)]


def _first_free(state: spiel.State) -> int:
    """The player that always takes the first free field."""
    return int(state.legal_actions()[0])


def _of_bot(bot: bots.Bot) -> match.Player:
    """Returns a bot as a player of positions."""
    return lambda states: np.array([bot(state) for state in states])


def _play(positions: turn_games.Positions, *two: bots.Bot) -> list[match.FinishedGame]:
    """Lets two bots play."""
    return match.play_games(positions, *(actor.BotActor(bot, positions) for bot in two))


def _against_random(game: spiel.Game, bot: bots.Bot, num_games: int, seed: int) -> list[match.FinishedGame]:
    generator = np.random.default_rng(seed)
    return _play(match.from_the_start(game, num_games, generator), bot, bots.make("random", generator))


def _scores(games: Sequence[match.FinishedGame]) -> dict[str, tuple[int, ...]]:
    """Wins, draws and losses by colour."""
    result = match.summary(games)
    return {name: tuple(result[name].values()) for name in ("first", "second")}


# The numbers of lines were counted by a program of their own, without OpenSpiel.


def test_a_perfect_player_loses_no_line(tic_tac_toe: spiel.Game) -> None:
    games = match.every_line(tic_tac_toe, _of_bot(_Perfect(tic_tac_toe)))
    assert _scores(games) == {"first": (99, 2, 0), "second": (498, 183, 0)}


def test_every_line_of_a_weak_player_is_counted_once(tic_tac_toe: spiel.Game) -> None:
    games = match.every_line(tic_tac_toe, _of_bot(_first_free))
    assert _scores(games) == {"first": (83, 16, 58), "second": (200, 36, 429)}
    result = match.summary(games)
    assert (result["wins"], result["draws"], result["losses"], result["episodes"]) == (283, 52, 487, 822)
    assert result["mean_return"] == pytest.approx((283 - 487) / 822)
    assert (result["min_return"], result["max_return"]) == (-1.0, 1.0)
    assert 5 <= result["mean_length"] <= 9


def test_a_game_with_too_many_lines_is_refused_with_how_many_there_were(tic_tac_toe: spiel.Game) -> None:
    with pytest.raises(
        errors.UsageError, match=r"'tic_tac_toe' .*: 233 .* 7 .*--opponent=random\|mcts-N\|gtp.*--opponent=RUN_DIR"
    ):
        match.every_line(tic_tac_toe, _of_bot(_Perfect(tic_tac_toe)), max_positions=200)


def test_each_side_moves_in_its_turn_and_has_the_first_move_in_half_of_the_games(tic_tac_toe: spiel.Game) -> None:
    seen: dict[str, list[tuple[int, int]]] = {"agent": [], "opponent": []}

    def player(name: str) -> bots.Bot:
        def play(state: spiel.State) -> int:
            seen[name].append((state.move_number(), tic_tac_toe.mover(state)))
            return _first_free(state)

        return play

    initial = turn_games.Positions(tic_tac_toe, [tic_tac_toe.initial()] * 3)
    games = _play(initial, player("agent"), player("opponent"))
    # Taking the first free field, the first mover has 0, 2, 4, 6: the diagonal 2, 4, 6 with its fourth move.
    assert games == [
        match.FinishedGame(True, 1.0, 7),
        match.FinishedGame(False, -1.0, 7),
        match.FinishedGame(True, 1.0, 7),
    ]
    assert sorted(seen["agent"]) == sorted([(n, 0) for n in (0, 2, 4, 6)] * 2 + [(n, 1) for n in (1, 3, 5)])
    assert sorted(seen["opponent"]) == sorted([(n, 1) for n in (1, 3, 5)] * 2 + [(n, 0) for n in (0, 2, 4, 6)])


def test_games_of_chance_follow_their_seed_and_have_no_lines() -> None:
    game = spiel.Game("pig(winscore=10)")

    def hold(state: spiel.State) -> int:
        return 1 if state.observation_tensor(0)[1] == 0 else 0

    games = _against_random(game, hold, 21, seed=3)
    assert games == _against_random(game, hold, 21, seed=3)
    assert {game.total for game in games} <= {-1.0, 1.0} and len({game.length for game in games}) > 3
    assert len(_play(match.in_pairs(game, 4, seed=3), hold, hold)) == 4
    with pytest.raises(
        errors.UsageError, match=r"'pig\(winscore=10\)'.*--opponent=random\|mcts-N\|gtp.*--opponent=RUN_DIR"
    ):
        match.every_line(game, _of_bot(hold))


def test_games_against_random_moves_repeat_by_their_seed(tic_tac_toe: spiel.Game) -> None:
    games = _against_random(tic_tac_toe, _first_free, 41, seed=3)
    assert games == _against_random(tic_tac_toe, _first_free, 41, seed=3)
    assert games != _against_random(tic_tac_toe, _first_free, 41, seed=4)
    assert [sum(game.is_first for game in games), len(games)] == [21, 41]
    perfect = match.summary(_against_random(tic_tac_toe, _Perfect(tic_tac_toe), 100, seed=0))
    assert perfect["losses"] == 0 and perfect["wins"] > 80


def test_two_agents_change_sides_after_the_same_opening(tic_tac_toe: spiel.Game) -> None:
    begun: dict[bool, list[str]] = {True: [], False: []}

    def watched(is_agent: bool) -> bots.Bot:
        def play(state: spiel.State) -> int:
            begun[is_agent] += [str(state)] if state.move_number() == match.OPENING_MOVES else []
            return _first_free(state)

        return play

    games = _play(match.in_pairs(tic_tac_toe, 20, seed=0), watched(True), watched(False))
    assert sorted(begun[True]) == sorted(begun[False]) and len(set(begun[True])) > 5
    # The same player on both sides: what one wins with the first move it loses without it.
    for first, second in zip(games[::2], games[1::2], strict=True):
        assert (first.is_first, second.is_first) == (True, False)
        assert (first.total, first.length) == (-second.total, second.length)


def test_an_opening_never_ends_a_game(tic_tac_toe: spiel.Game) -> None:
    begun = [match.opening(tic_tac_toe, np.random.default_rng(seed), 9) for seed in range(20)]
    assert not any(tic_tac_toe.is_terminal(state) for state in begun)
    assert max(state.move_number() for state in begun) > 4


@pytest.mark.thorough
def test_an_agent_s_moves_do_not_depend_on_what_shares_its_batch(tic_tac_toe: spiel.Game) -> None:
    changes = {"network.width": 8, "network.head_width": 8, "search.num_simulations": 3}
    config = configs.override(presets.get("tictactoe"), changes)
    agent = muzero.make(config, tic_tac_toe.spec, "cpu")
    shake = jax.jit(lambda tree: jax.tree.map(lambda x: x + 0.1 * jax.random.normal(jax.random.key(1), x.shape), tree))
    params = shake(jax.jit(agent.init)(jax.random.key(0)).params)
    saved = saved_agents.SavedAgent(agent, params, 0, "last", config, tic_tac_toe.spec)
    play = match.of_actor(tic_tac_toe, scoring._in_turn(saved, 0))
    states = [match.opening(tic_tac_toe, np.random.default_rng(seed)) for seed in range(70)]
    together = play(states)
    assert all(action in state.legal_actions() for state, action in zip(states, together, strict=True))
    np.testing.assert_array_equal([play([state])[0] for state in states[::10]], together[::10])
    sampling = saved._replace(mode=types.SAMPLE)
    one, again, other = (match.of_actor(tic_tac_toe, scoring._in_turn(sampling, seed)) for seed in (0, 0, 1))
    drawn = one(states)
    assert all(action in state.legal_actions() for state, action in zip(states, drawn, strict=True))
    np.testing.assert_array_equal(again(states), drawn)
    assert all((moves != drawn).any() for moves in (one(states), other(states), together))


# By run directory ---------------------------------------------------------------------------------------------------


def _run(path: pathlib.Path, preset: str, **changes: options.Value) -> pathlib.Path:
    values = {key.replace("__", "."): value for key, value in changes.items()}
    config = configs.override(presets.get(preset), values)
    with run_dirs.open_run_dir(path, config, preset=preset, given={}) as opened:
        return opened.path


class _Seeing(NamedTuple):
    """Lets a bot act for rows, whose positions it knows from their observations."""

    bot: bots.Bot
    positions: dict[bytes, spiel.State]

    def act(self, step: types.EnvStep, first: np.ndarray) -> np.ndarray:
        actions = np.zeros(len(first), np.int32)
        for row in np.flatnonzero(actor.shown(step)):
            actions[row] = self.bot(self.positions[step.observation[row].tobytes()])
        return actions


@pytest.fixture
def positions(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, spiel.State]:
    """All positions that were shown to anybody, by their observations."""
    found: dict[bytes, spiel.State] = {}

    def shown(game: turn_games.TurnGame, states: Sequence[spiel.State]) -> types.EnvStep:
        step = show(game, states)
        found.update(zip((row.tobytes() for row in step.observation), states, strict=True))
        return step

    show = turn_games.shown
    monkeypatch.setattr(turn_games, "shown", shown)
    return found


def test_the_opponent_is_chosen_by_name_or_run_directory(
    tic_tac_toe: spiel.Game,
    positions: dict[bytes, spiel.State],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine, other = _run(tmp_path / "mine", "tictactoe"), _run(tmp_path / "other", "tictactoe", search__policy="puct")
    players = {mine: _Perfect(tic_tac_toe), other: _first_free}
    loaded, seeds = list[Any](), list[int]()

    def load(choice: agent_choice.AgentChoice, *_: Any) -> Any:
        loaded.append((choice.path, choice.step, choice.policy))
        return pytypes.SimpleNamespace(path=choice.path, to_json=lambda: {"step": 7, "chosen": "last"})

    def in_turn(player: Any, seed: int) -> actor.Actor:
        seeds.append(seed)
        return _Seeing(players[player.path], positions)

    monkeypatch.setattr(saved_agents, "load", load)
    monkeypatch.setattr(scoring, "_in_turn", in_turn)
    expected = {"step", "chosen", "opponent", "episodes", "wins", "draws", "losses", "first", "second", "mean_length"}
    expected |= {f"{name}_return" for name in ("mean", "std", "stderr", "min", "max")}
    for given, name in ((None, "random"), ("random", "random"), (str(other), str(other))):
        found = scoring.evaluate(agent_choice.AgentChoice(mine, "last"), 10, given)
        assert set(found) == expected
        assert (found["step"], found["opponent"], found["episodes"], found["losses"]) == (7, name, 10, 0)
        assert sum(found["first"].values()) == sum(found["second"].values()) == 5
    assert loaded[-2:] == [(mine, "last", None), (other, "last", None)]
    scoring.evaluate(agent_choice.AgentChoice(mine, "last", policy="sample"), 10, str(other))
    assert loaded[-2:] == [(mine, "last", "sample"), (other, "last", "sample")]
    assert seeds[-4:-2] == seeds[-2:] and seeds[-1] != seeds[-2]  # the two draw apart
    exhaustive = scoring.evaluate(agent_choice.AgentChoice(mine), 1, "exhaustive")
    assert (exhaustive["episodes"], exhaustive["losses"]) == (99 + 2 + 498 + 183, 0)
    assert "stderr_return" not in exhaustive  # all lines, no sample
    weak, strong = (
        scoring.evaluate(agent_choice.AgentChoice(mine), 40, name)["mean_return"] for name in ("mcts-2", "mcts-300")
    )
    assert weak > 0.5 > strong  # the bots against a perfect player


@pytest.mark.parametrize(
    ("run", "opponent", "choice", "told"),
    [
        ("mine", "other", {}, r"--env=spiel:connect_four.*--env=spiel.*--opponent=random"),
        ("mine", "exhaustiv", {}, r"/exhaustiv .*--run_dir=DIR"),
        ("mine", "=exhaustive", {"policy": "sample"}, "--policy=sample: --opponent=exhaustive "),
        ("mine", None, {"max_steps": 3}, "--max_episode_steps=3: "),
        ("mine", "=exhaustive", {"max_steps": 3}, "--max_episode_steps=3: "),
        ("alone", "=random", {}, "--opponent=random: "),
        ("alone", None, {"player": "main-0"}, "--player=main-0: "),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    run: str, opponent: str | None, choice: dict[str, Any], told: str, tmp_path: pathlib.Path
) -> None:
    """opponent: a directory, or = and its name."""
    _run(tmp_path / "mine", "tictactoe")
    _run(tmp_path / "other", "tictactoe", env__id="spiel:connect_four")
    alone = agent_choice.AgentChoice(_run(tmp_path / "alone", "catch"))
    given = opponent and opponent.removeprefix("=")
    if given == opponent and given:
        given = str(tmp_path / given)
    with pytest.raises(errors.UsageError, match=told):
        scoring.evaluate(agent_choice.AgentChoice(tmp_path / run, **choice), 4, given)
    with pytest.raises(errors.UsageError, match="not trained in a game of two players"):
        scoring.against_each_other(alone, [None, None], 4)


@pytest.mark.thorough
def test_a_game_that_is_watched_begins_at_its_start(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _run(tmp_path / "run", "tictactoe", env__random_opening=6, network__width=8)

    def load(choice: agent_choice.AgentChoice, config: configs.Config, spec: types.EnvSpec) -> Any:
        agent = muzero.make(config, spec, "cpu")
        return saved_agents.SavedAgent(agent, jax.jit(agent.init)(jax.random.key(0)).params, 0, "last", config, spec)

    monkeypatch.setattr(saved_agents, "load", load)
    config = run_dirs.read_saved(run).config
    player = table.RunTable(agent_choice.AgentChoice(run), config, 20, types.Role.TRAIN)
    assert not player.step.observation[..., 1:3].any()  # no stone of either colour


def test_two_players_of_a_run_meet_from_both_sides(
    tic_tac_toe: spiel.Game,
    positions: dict[bytes, spiel.State],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    players = {None: (_Perfect(tic_tac_toe), 9), "main-0123456789ab": (_first_free, 4)}

    def load(choice: agent_choice.AgentChoice, config: Any, spec: types.EnvSpec) -> Any:
        assert choice.step == "last" and spec == tic_tac_toe.spec
        play, update = players[choice.player]
        return pytypes.SimpleNamespace(play=play, to_json=lambda: {"step": update})

    monkeypatch.setattr(saved_agents, "load", load)
    seeds = list[int]()

    def in_turn(player: Any, seed: int) -> actor.Actor:
        seeds.append(seed)
        return _Seeing(player.play, positions)

    monkeypatch.setattr(scoring, "_in_turn", in_turn)
    mine = _run(tmp_path / "mine", "league-tictactoe")
    found = scoring.against_each_other(agent_choice.AgentChoice(mine), [None, "main-0123456789ab"], 40)
    assert found["versions"] == [9, 4] and found["episodes"] == 40
    assert sum(found["first"].values()) == sum(found["second"].values()) == 20
    assert found["wins"] > 20 > found["losses"]
    mirrored = scoring.against_each_other(agent_choice.AgentChoice(mine), ["main-0123456789ab", None], 40)
    assert (mirrored["wins"], mirrored["losses"]) == (found["losses"], found["wins"])  # the same openings
    scoring.against_each_other(agent_choice.AgentChoice(mine, seed=3), [None, "main-0123456789ab"], 2)
    assert seeds[:2] == seeds[2:4] and len(set(seeds)) == 4  # draws of their own for each player and seed
