"""`--deterministic`: the same bits for the same seed, also across a kill -9, of each agent and of leagues."""

from __future__ import annotations

import json
import pathlib
from typing import NamedTuple

import e2e_harness as harness
import pytest
import run_state

UPDATES, EVERY = 60, 20
ALL = "--training.acting_devices=0"
EVALUATED = ("--evaluation.every_updates=25", "--evaluation.episodes=6", "--evaluation.num_envs=4")
RUN = (*harness.TINY, *harness.lock_step(UPDATES, EVERY), *EVALUATED, "--batcher.max_batch=24", "--seed=3")
OPTIONAL = (
    "--replay.priority_alpha=0.6",
    "--reanalyse.per_insert=0.5",
    "--reanalyse.batch_size=16",
)


@pytest.fixture(scope="module")
def reference(module_host: harness.Host) -> pathlib.Path:
    """A run from beginning to end, quickly compiled; some of the slow tests compile as users do."""
    run = module_host.directory / "reference"
    module_host.train(run, *RUN).wait().ok()
    assert harness.saved_steps(run)[-1] == UPDATES
    assert len(run_state.rows(run)) > 2 * UPDATES // EVERY
    return run


@pytest.mark.thorough
def test_a_seed_gives_the_same_bits_and_metrics_though_killed_and_resumed(
    host: harness.Host, reference: pathlib.Path
) -> None:
    assert run_state.state(run_state.killed_and_resumed(host, *RUN)) == run_state.state(reference)


@pytest.mark.slow  # tests/learner and tests/device have each part within a process
@pytest.mark.parametrize("as_users_do", [False, True], ids=["quick", "as-users-do"])
def test_a_killed_run_with_priorities_and_reanalysis_equals_one_with_host_frames(
    host: harness.Host, tmp_path: pathlib.Path, reference: pathlib.Path, as_users_do: bool
) -> None:
    """Programs that are compiled quickly round alike wherever the frames are; XLA's fusions depend on it."""
    if as_users_do:
        host.compile_as_users_do()
    whole, on_host = tmp_path / "whole", "--replay.placement=host"
    host.train(whole, *RUN, *OPTIONAL, *([on_host] if as_users_do else [])).wait().ok()
    run = run_state.killed_and_resumed(host, *RUN, *OPTIONAL, on_host)
    rows = run_state.rows(whole)
    assert run_state.params(run) == run_state.params(whole) and run_state.rows(run) == rows
    if not as_users_do:  # else what is compiled differs, too
        assert run_state.params(whole) != run_state.params(reference)
    last = [row for row in rows if row.get("kind") != "evaluation"][-1]
    assert last["priority_max"] >= 1.0 and last["refresh_age"] > 4
    assert last["refreshed_per_insert"] == pytest.approx(0.5, rel=0.05)
    assert not [name for row in run_state.rows(reference) for name in row if "refresh" in name]


@pytest.mark.slow
@pytest.mark.parametrize("num_acting", [4, 2])
def test_a_run_on_devices_apart_has_the_same_bits_and_metrics_though_killed(
    host: harness.Host, tmp_path: pathlib.Path, num_acting: int
) -> None:
    """Four of eight devices learn, or six."""
    host.make_devices(8)
    shares = ("--replay.batch_size=24", "--reanalyse.batch_size=24", "--replay.num_slots=8")
    settings = (*RUN, *OPTIONAL, *shares, f"--training.acting_devices={num_acting}")
    host.train(tmp_path / "whole", *settings).wait().ok()
    run = run_state.killed_and_resumed(host, *settings)
    assert run_state.state(run) == run_state.state(tmp_path / "whole")
    if num_acting == 4:  # a larger budget, and then all eight do everything
        longer = host.train(run, *settings, f"--max_updates={UPDATES + EVERY}", ALL)
        assert longer.says(r"training\.acting_devices was 4, is 0 from now on")
        assert longer.wait().code == 0 and harness.saved_steps(run)[-1] == UPDATES + EVERY
        fewer = host.train(run, *settings, f"--max_updates={UPDATES + 2 * EVERY}", "--training.num_devices=2", ALL)
        assert fewer.says(r"training\.num_devices was 8, is 2 from now on")
        ended = fewer.wait()
        assert ended.code == 0 and harness.saved_steps(run)[-1] == UPDATES + 2 * EVERY
        assert "is lost" not in ended.err and "dealt again" not in ended.err  # the replay comes along


class Case(NamedTuple):
    """A kind of run. num_updates: of the whole run; every: of its checkpoints; num_devices: 2: acting apart."""

    words: tuple[str, ...]
    num_updates: int = UPDATES
    every: int = EVERY
    num_devices: int = 1
    quick: bool = False


def _seats(agent: str, game: str, *words: str) -> Case:
    small = ("--preset=seats", f"--env=spiel:{game}", *harness.AGENTS[agent], "--worker.envs_per_group=12")
    return Case((*small, *words), num_updates=24, every=8, quick=True)


_CATCH = ("--preset=catch", "--worker.envs_per_group=4")
_PPO = (*_CATCH, *harness.AGENTS["ppo"], "--optimizer.decay_updates=100")
_VTRACE = (*_CATCH, *harness.AGENTS["vtrace"])
_PRIORITIES = "--replay.priority_alpha=0.6"
_MEMORY = ("--muzero.memory=gru", "--muzero.burn_in=3", "--reanalyse.fresh_share=0.5", "--batcher.max_batch=8")
_LEAGUE = ("--preset=league-tictactoe", "--env=spiel:tic_tac_toe", "--batcher.max_batch=24")
CASES = {
    "apex": Case((*_CATCH, *harness.AGENTS["apex"])),
    "r2d2": Case((*_CATCH, *harness.AGENTS["r2d2"])),
    "memory": Case((*harness.TINY, *_MEMORY, "--reanalyse.per_insert=0.5", "--reanalyse.batch_size=8")),
    "memory, apart": Case(
        (*harness.TINY, *_MEMORY, "--replay.batch_size=12", "--network.frame_stack=2"), num_devices=2
    ),
    "sac": Case(("--preset=continuous", "--worker.envs_per_group=4", *harness.AGENTS["sac"])),
    "ppo": Case(_PPO),
    "ppo apart": Case(_PPO, num_devices=2),
    "vtrace": Case((*_VTRACE, "--network.lstm_width=8", "--vtrace.popart")),
    "vtrace apart": Case((*_VTRACE, "--vtrace.batch_size=8"), num_devices=2),
    "seats, ppo": _seats("ppo", "kuhn_poker(players=3)", "--network.lstm_width=4"),
    "seats, vtrace": _seats("vtrace", "leduc_poker", "--network.lstm_width=4"),
    "seats, apex": _seats("apex", "goofspiel(num_cards=4)", _PRIORITIES),
    "seats, r2d2": _seats("r2d2", "kuhn_poker", "--r2d2.sequence_length=8", _PRIORITIES),
    "league": Case((*harness.TINY, *_LEAGUE, "--muzero.n_step=9", "--league.freeze_every=150"), quick=True),
    "league, scripted": Case(
        (*harness.TINY, *_LEAGUE, "--league.freeze_every=150", "--league.members=random,mcts-4,spiel:uniform_random"),
        quick=True,
    ),
}


@pytest.mark.slow  # tests/learner/agents_resume_test.py has each agent within a process
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_agent_has_the_same_bits_and_metrics_though_killed_between_checkpoints(
    host: harness.Host, tmp_path: pathlib.Path, case: Case
) -> None:
    if not case.quick:
        host.compile_as_users_do()  # equal bits mean little where nothing is optimized
    words = (*harness.ENDLESS, *case.words, *harness.lock_step(case.num_updates, case.every), "--seed=3")
    if case.num_devices > 1:
        host.make_devices(case.num_devices)
        words += ("--training.acting_devices=1",)
    host.train(tmp_path / "whole", *words).wait().ok()
    whole = run_state.state(tmp_path / "whole")
    assert run_state.state(run_state.killed_and_resumed(host, *words)) == whole
    assert whole["step"] == case.num_updates and len(whole["rows"]) >= case.num_updates // 10
    if whole["history"]:
        events = [json.loads(line)["event"] for line in whole["history"].splitlines()]
        assert events.count("freeze") > 2
        run_state.check_league(tmp_path / "whole")
