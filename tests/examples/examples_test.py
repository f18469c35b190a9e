"""Each example runs, with a small budget, and shows what it promises."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import sys
from collections.abc import Iterator

import e2e_harness as harness
import pytest

import seedzero

EXAMPLES = harness.ROOT / "examples"
BUDGET = 4


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Host]:
    found = harness.Host(tmp_path_factory.mktemp("examples"))
    # As when the examples' directory is the current one, where a user's modules are found.
    found.environment["PYTHONPATH"] = os.pathsep.join([found.environment["PYTHONPATH"], str(EXAMPLES)])
    found.environment["MAX_UPDATES"] = str(BUDGET)
    yield found
    found.end()


def _run(host: harness.Host, example: str, *words: str) -> str:
    ended = host.start([sys.executable, str(EXAMPLES / example), *words], example).wait()
    assert ended.code == 0, ended.out + ended.err
    return ended.out


@pytest.fixture(scope="module")
def trained(host: harness.Host) -> tuple[pathlib.Path, str]:
    """The run directory of train_and_act.py, and its output."""
    run = host.directory / "run"
    return run, _run(host, "train_and_act.py", str(run))


@pytest.mark.thorough
def test_a_training_is_loaded_and_plays(trained: tuple[pathlib.Path, str]) -> None:
    _, output = trained
    assert re.search(rf"^--max_updates={BUDGET} .*: \d+ steps, {BUDGET} updates, .*\d", output, re.M)
    assert re.search(rf"^the policy of update {BUDGET} .*\d", output, re.M)


@pytest.mark.thorough
def test_a_run_is_scored_and_its_search_is_shown(host: harness.Host, trained: tuple[pathlib.Path, str]) -> None:
    output = _run(host, "evaluate_run.py", str(trained[0]), "3")
    assert len(re.findall(rf"^update {BUDGET}: return \d.* in 3 episodes", output, re.M)) == 2
    assert re.search(r"^action [01], value .*, visits \[\d+ +\d+\], prior", output, re.M) and "digraph" in output


@pytest.mark.thorough
def test_what_the_document_shows_runs(host: harness.Host, trained: tuple[pathlib.Path, str]) -> None:
    pytest.importorskip("flatbuffers")
    text = (harness.ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    shown = [block for block in blocks if "seedzero.train(" not in block]
    assert len(shown) == len(blocks) - 2 == 5
    (host.directory / "runs").mkdir()
    (host.directory / "runs" / "cartpole").symlink_to(trained[0])
    script = host.directory / "shown.py"
    script.write_text("".join(shown))
    ended = host.start([sys.executable, str(script)], "shown").wait()
    assert ended.code == 0, ended.out + ended.err
    assert (host.directory / "exported" / "manifest.json").is_file()


@pytest.mark.thorough
def test_the_parts_alone_run_as_shown() -> None:
    text = (harness.ROOT / "docs" / "libraries.md").read_text(encoding="utf-8")
    shown = "".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S))
    assert shown.count("assert ") == 5
    exec(compile(shown, "libraries.md", "exec"), {})


def test_a_checkpoint_that_is_not_there_is_named(trained: tuple[pathlib.Path, str]) -> None:
    with pytest.raises(seedzero.errors.CheckpointError, match=rf" 5 .*: {BUDGET}"):
        seedzero.load(trained[0], 5)


@pytest.mark.thorough
def test_the_search_runs_alone(host: harness.Host) -> None:
    output = _run(host, "search_alone.py")
    assert re.findall(r"^cell (\d): action 1,", output, re.M) == ["5", "6", "7", "8"]


@pytest.mark.thorough
def test_an_environment_of_one_s_own_needs_no_registration(host: harness.Host) -> None:
    output = _run(host, "own_environment.py", str(host.directory / "corridor"))
    assert re.search(r": \[\d", output)
    config = (host.directory / "corridor" / "config.json").read_text()
    assert '"env.id": "python:own_environment:Corridor"' in config
    evaluate = ("evaluate", f"--run_dir={host.directory / 'corridor'}", "--episodes=1")
    assert host.start(host.command(*evaluate), "evaluate").wait().json["mean_return"] >= 0
    given_away = shutil.copytree(host.directory / "corridor", host.directory / "given_away")
    refused = host.seedzero("evaluate", f"--run_dir={given_away}")
    assert refused.code == 2 and "names code" in refused.err and "--env=python:own_environment:Corridor" in refused.err


@pytest.mark.thorough
def test_a_bonus_of_one_s_own_counts_and_goes_on(host: harness.Host) -> None:
    (host.directory / "bonus").mkdir()
    found = harness.Host(host.directory / "bonus")
    found.environment["PYTHONPATH"] = os.pathsep.join([host.environment["PYTHONPATH"], str(EXAMPLES / "count_bonus")])
    run = found.directory / "run"
    small = ("--ppo.unroll_length=16", "--ppo.batch_size=8", "--ppo.num_minibatches=2", "--worker.envs_per_group=4")
    names = ("--env=python:count_bonus:deep_sea", "--ppo.bonus=count_bonus:make")
    for updates in (4, 8):
        flags = (*names, "--agent=ppo", *small, "--evaluation.every_updates=0", f"--max_updates={updates}")
        found.train(run, *flags, "--metrics.every_seconds=0.3").wait().ok()
    found.end()
    # Without its counts the second process would begin at the first one's mean.
    means = [row["bonus_mean"] for row in harness.metrics_rows(run) if "bonus_mean" in row]
    assert means and 0 < means[-1] < means[0] <= 1.0


@pytest.mark.thorough
def test_agents_have_policies_of_their_own(host: harness.Host) -> None:
    run = host.directory / "carts"
    output = _run(host, "four_carts.py", str(run))
    assert re.search(
        rf"^--max_updates={BUDGET} reached; cart_0 \d+, cart_1 \d+, cart_2 \d+, cart_3 \d+$", output, re.M
    )
    assert '"seats.policies": "each"' in (run / "config.json").read_text()
