"""Tables of agents' policies: as the agents act, with their memory."""

from __future__ import annotations

import jax
import numpy as np
import policies
import pytest

from seedzero.acting.actors import acting_program
from seedzero.acting.equilibria import game_tree, tabular
from seedzero.agents import base
from seedzero.config import options
from seedzero.core import errors, types
from seedzero.device import acting
from seedzero.envs import seats, spiel, spiel_seats

pytest.importorskip("pyspiel")

ROCK_PAPER_SCISSORS = "repeated_game(stage_game=matrix_rps(),num_repetitions=3)"
OPEN_GOOFSPIEL = "goofspiel(num_cards=4,points_order=descending)"
PPO: dict[str, options.Value] = {"run__agent": "ppo", "network__width": 8}
VTRACE: dict[str, options.Value] = {"run__agent": "vtrace", "network__kind": "mlp"}
Key = tuple[int | bytes, ...]
"""A seat, then by turns its observations and actions; the last one is an observation."""


def _in_tree(
    game: seats.SeatGame, tree: game_tree.GameTree, tables: tuple[np.ndarray, np.ndarray]
) -> dict[Key, np.ndarray]:
    """Returns the probabilities of legal actions in every information state."""
    found: dict[Key, np.ndarray] = {}
    for number, (seat, policy) in enumerate(zip(tree.seats, tables, strict=True)):
        behind: list[Key] = [(number,)]  # by sequence
        for place, (state, actions) in enumerate(zip(seat.states, seat.actions, strict=True)):
            key = (*behind[seat.parents[place]], game.observe(state, number).tobytes())
            behind += [(*key, action) for action in actions]
            found[key] = policy[seat.begins[place] : seat.begins[place + 1]]
    return found


def _played(game: seats.SeatGame, agent: base.Agent, params: base.Params, num_steps: int) -> dict[Key, np.ndarray]:
    """Plays an agent in the two rows of an environment, each with its memory; returns its probabilities."""
    env, spec, program = seats.SeatGames(game, 2), game.spec, acting_program.ActingProgram(agent, game.spec)
    step, found, carried = env.reset((3, 5)), dict[Key, np.ndarray](), [acting.initial(agent, spec, 1)] * 2
    past: list[Key] = [(), ()]  # of a row; empty: another episode begins
    for number in range(num_steps):
        assert step.shown is not None and step.action_mask is not None
        actions = np.zeros(2, np.int32)
        for row in np.flatnonzero(step.shown):
            if step.final[row]:
                past[row] = ()
                continue
            frame, mask = step.observation[row].tobytes(), step.action_mask[row]
            seen = acting_program.seen(spec, step.those(np.array([row])), np.array([not past[row]]), types.EXPLORE)
            draws = 2 * number + row, 0
            carried[row], looked = program(params, carried[row], seen, *draws, findings=acting_program.NUMBERS)
            actions[row] = looked["action"][0]
            key = (*(past[row] or (int(step.tasks[row]),)), frame)
            found[key], past[row] = np.asarray(looked["policy"])[0][mask], (*key, int(actions[row]))
        step = env.step(actions)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("leduc_poker", PPO),
        ("leduc_poker", {**PPO, "network__lstm_width": 4}),
        ("leduc_poker", {**PPO, "network__frame_stack": 2}),
        (ROCK_PAPER_SCISSORS, {**PPO, "network__lstm_width": 4}),
        (ROCK_PAPER_SCISSORS, {**VTRACE, "network__lstm_width": 4}),
        (OPEN_GOOFSPIEL, {**VTRACE, "network__lstm_width": 4}),
    ],
    ids=["alone", "lstm", "stack", "rewards", "vtrace", "forgotten actions"],
)
def test_tables_are_as_the_agent_acts(name: str, changes: dict[str, options.Value]) -> None:
    game, tree = spiel_seats.SpielSeats(name), game_tree.build(spiel.load(name))
    saved = policies.saved(game.spec, **changes)
    expected = _in_tree(game, tree, tabular.asking(saved.agent, game, tree)(saved.params))
    found = _played(game, saved.agent, saved.params, 150)
    assert max(map(len, found)) >= 2 * 3 and {seat for seat, *_ in found} == {0, 1}  # two turns before
    for key, probabilities in found.items():
        np.testing.assert_allclose(expected[key], probabilities, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_memory_matters() -> None:
    """The same observation and another past: an LSTM's probabilities differ, and without memory they are equal."""
    game, tree = spiel_seats.SpielSeats(OPEN_GOOFSPIEL), game_tree.build(spiel.load(OPEN_GOOFSPIEL))

    def spread(**changes: options.Value) -> float:
        saved = policies.saved(game.spec, **PPO, **changes)
        alike: dict[int | bytes, list[np.ndarray]] = {}
        for key, found in _in_tree(game, tree, tabular.asking(saved.agent, game, tree)(saved.params)).items():
            alike.setdefault(key[-1], []).append(found)
        return max(float(np.ptp(group, axis=0).max()) for group in alike.values())

    assert spread() < 1e-6 and spread(network__lstm_width=4) > 0.01


def test_probabilities_are_exact_sums_over_legal_actions() -> None:
    game, tree = spiel_seats.SpielSeats("leduc_poker"), game_tree.build(spiel.load("leduc_poker"))
    saved = policies.saved(game.spec, **PPO)
    for seat, policy in zip(tree.seats, tabular.asking(saved.agent, game, tree)(saved.params), strict=True):
        assert policy.shape == (seat.num_sequences,) and policy.dtype == np.float64 and policy[0] == 1.0
        sums = np.add.reduceat(policy, seat.begins[:-1])
        np.testing.assert_allclose(sums, 1.0, atol=1e-15)


@pytest.mark.thorough
def test_parameters_of_an_agent_are_judged_while_it_learns() -> None:
    saved = policies.saved(spiel_seats.SpielSeats("kuhn_poker").spec, **PPO)
    judge = tabular.judging(saved.agent, "spiel:kuhn_poker")
    untrained = saved.agent.acting(jax.jit(saved.agent.init)(jax.random.key(0)))
    assert judge(untrained) == pytest.approx(0.9167, abs=0.05)  # of uniform play
    with pytest.raises(errors.UsageError, match=r"game of perfect information"):
        tabular.judging(saved.agent, "spiel:tic_tac_toe")
    with pytest.raises(errors.UsageError, match=r"has no policy of probabilities"):
        tabular.judging(saved.agent._replace(policy=None), "spiel:kuhn_poker")
