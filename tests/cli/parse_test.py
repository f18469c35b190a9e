from __future__ import annotations

import json
import pathlib
import re
import sys

import pytest

from seedzero.cli import parse
from seedzero.config import configs
from seedzero.core import errors

PLAIN = parse.Command(
    summary="Does it.",
    usage="list|verify --file=FILE [--json]",
    words=(("list", "verify"),),
    flags={"file=FILE": "a file", "json": "as JSON", "count=N": "how many"},
    required=("file",),
    details="More.",
    run=lambda arguments: 0,
)
TRAIN = parse.Command(
    summary="Trains.",
    usage="",
    flags={parse.PRESET: "which", "run_dir=DIR": "where"},
    details="",
    takes_settings=True,
    run=lambda arguments: 0,
)


def _plain(*args: str) -> parse.Arguments:
    return parse.read("plain", PLAIN, args)


def _train(*args: str) -> parse.Arguments:
    return parse.read("train", TRAIN, args)


@pytest.mark.parametrize("args", [["--file=a", "list"], ["list", "--file", "a"], ["--file", "a", "list"]])
def test_a_value_follows_an_equals_sign_or_a_space(args: list[str]) -> None:
    arguments = _plain(*args)
    assert (arguments.words, arguments.flags) == (("list",), {"file": "a"})


def test_a_value_may_hold_equals_signs_and_begin_with_a_minus() -> None:
    settings = _train("--env=gym:a=b", "--stop_at_return", "-5").settings
    assert settings == {"env.id": "gym:a=b", "run.stop_at_return": "-5"}


def test_a_switch_needs_no_value_and_takes_none_that_is_not_its_own() -> None:
    assert _plain("--file=a", "--json", "list").switch("json")
    assert not _plain("--file=a", "--json", "false", "list").switch("json")
    assert not _plain("--file=a", "--json=0", "list").switch("json")
    assert not _plain("--file=a", "list").switch("json")
    assert _train("--deterministic", "--seed=1").settings == {"run.deterministic": "true", "run.seed": "1"}
    with pytest.raises(errors.UsageError, match="--json=maybe"):
        _plain("--file=a", "--json=maybe", "list").switch("json")


def test_short_and_full_names_mean_the_same_and_the_last_one_counts() -> None:
    assert _train("--seed=1", "--run.seed=2").settings == {"run.seed": "2"}
    assert _train("--run.seed=2", "--seed=1").settings == {"run.seed": "1"}
    assert _train("--seed=1", "--run.seed=2", "--seed=3").settings == {"run.seed": "3"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["list"], "--file=FILE .*: a file"),
        (["list", "--file="], "--file= .*FILE: a file"),
        (["list", "--file"], "--file "),
        (["list", "--file", "--json"], "--file "),
        (["list", "--fle=a"], "--fle=a; .*--file"),
        (["list", "--file=a", "-v"], "unknown setting -v"),
        (["list", "--file=a", "--"], "unknown setting --"),
        (["--file=a"], " list, verify"),
        (["lst", "--file=a"], " lst: .* list, verify"),
        (["list", "twice", "--file=a"], "'twice'"),
    ],
)
def test_a_mistake_is_told_with_the_way_out(args: list[str], message: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        _plain(*args)
    assert re.search(message, str(caught.value))


def test_the_nearest_right_key_may_be_a_flag_a_short_name_or_a_setting() -> None:
    for wrong, right in (("preste", "preset"), ("sed", "seed"), ("search.simulations", "search.num_simulations")):
        with pytest.raises(errors.UsageError, match=rf"--{wrong}=1; .*--{right}"):
            _train(f"--{wrong}=1")


def test_the_nearest_setting_is_one_of_the_agent_before_it() -> None:
    for args, right in (([], "replay.batch_size"), (["--agent=vtrace"], "vtrace.batch_size")):
        with pytest.raises(errors.UsageError, match=rf"--batch_size=1; .*--{right}"):
            _train(*args, "--batch_size=1")


@pytest.mark.parametrize(
    ("value", "message"),
    [("x", ""), ("0", ".* 1"), ("5000000000", ".* 2147483647")],
)
def test_whole_numbers_are_checked(value: str, message: str) -> None:
    with pytest.raises(errors.UsageError, match=f"--count={value}: {message}"):
        _plain("list", "--file=a", f"--count={value}").integer("count", minimum=1)
    assert _plain("list", "--file=a", "--count=1_0").integer("count", minimum=1) == 10
    assert _plain("list", "--file=a").integer("count", minimum=1) is None


def test_help_names_every_flag_and_the_short_names_of_settings() -> None:
    plain, train = parse.help_text("plain", PLAIN), parse.help_text("train", TRAIN)
    for part in (" seedzero plain list|verify", "--file=FILE", "--json  ", "--count=N", "More."):
        assert part in plain
    for part in ("--preset=NAME", "--workers=N", "--deterministic ", "--stop_at_return=X", "seedzero config"):
        assert part in train
    assert max(map(len, train.splitlines())) <= parse.WIDTH
    wide = parse.help_text("plain", parse.Command("", "", {"a": "First.", f"wide={'X' * 60}": "Second."}, lambda _: 0))
    assert "\n  --a  First.\n" in wide and f"\n  --wide={'X' * 60}\n       Second." in wide
    full = parse.help_text("train", TRAIN, full=True)
    assert all(f"--{name}" in full and field.metadata["help"][:20] in full for name, field in configs.fields().items())


def test_further_words_are_taken_up_to_a_number() -> None:
    command = parse.Command("Plays.", "match A B", {}, lambda arguments: 0, words=(("match",),), more_words=2)
    assert parse.read("league", command, ["match", "a", "b"]).words == ("match", "a", "b")
    assert parse.read("league", command, ["match"]).words == ("match",)
    with pytest.raises(errors.UsageError, match="'c'"):
        parse.read("league", command, ["match", "a", "b", "c"])


def test_a_directory_alone_is_the_run() -> None:
    command = parse.Command("", "", {**parse.RUN_DIR, "json": ""}, lambda arguments: 0, words=(("list",),))
    assert parse.read("checkpoint", command, ["list", "runs/a", "--json"]).flags["run_dir"] == "runs/a"
    assert parse.read("checkpoint", command, ["list", "--run_dir", "runs/a"]).words == ("list",)
    for words in (["list", "runs/a", "runs/b"], ["list", "runs/b", "--run_dir=runs/a"]):
        with pytest.raises(errors.UsageError, match="unexpected word"):
            parse.read("checkpoint", command, words)
    with pytest.raises(errors.UsageError, match="unexpected word"):  # a directory, a preset, an environment?
        _train("catch")


def test_words_after_two_minus_signs_are_left_to_another_command() -> None:
    command = parse.Command("", "", {"json": ""}, lambda arguments: 0, takes_settings=True, takes_rest=True)
    arguments = parse.read("sweep", command, ["--seed=1", "--json", "--", "--env=catch", "--", "x"])
    assert (arguments.settings, arguments.rest) == ({"run.seed": "1"}, ("--env=catch", "--", "x"))
    assert parse.read("sweep", command, ["--seed=1"]).rest == ()
    with pytest.raises(errors.UsageError, match=" --"):
        _train("--seed=1", "--", "--env=catch")


@pytest.mark.parametrize(
    "words", [("--preset={}", "--seed=4"), ("--seed=4", "--preset", "{}"), ("--run.seed=4", "--preset={}")]
)
def test_the_command_line_comes_before_a_preset_s_file(words: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mine.preset"
    file.write_text("--preset=catch\n--agent=ppo\n--seed=3\n--network.width=32\n")
    found = _train(*(word.format(file) for word in words))
    assert found.flags == {"preset": "catch"}
    assert found.settings == {"run.agent": "ppo", "run.seed": "4", "network.width": "32"}
    with pytest.raises(errors.ConfigError, match=r"none\.preset"):
        _train("--preset=none.preset")
    assert _train("--preset=nothing").flags == {"preset": "nothing"}  # which `presets.find` refuses


def test_the_settings_of_a_run_s_own_agent_are_flags_without_an_import(tmp_path: pathlib.Path) -> None:
    own = {"run.agent": "module_of_nobody:AGENT", "theirs.size": 3, "theirs.wide": False}
    values = {"preset": "catch", "given": {}, "config": {**configs.flatten(configs.Config()), **own}}
    (tmp_path / "config.json").write_text(json.dumps(values).replace("Infinity", '"inf"'))
    found = _train(f"--run_dir={tmp_path}", "--theirs.wide", "--theirs.size=4")
    assert found.settings == {"theirs.wide": "true", "theirs.size": "4"} and "module_of_nobody" not in sys.modules
    with pytest.raises(errors.UsageError, match=r"--theirs\.sizes=4; did you mean --theirs\.size\?"):
        _train(f"--run_dir={tmp_path}", "--theirs.sizes=4")
    with pytest.raises(errors.ConfigError, match="there is no module 'module_of_nobody'"):
        _train(f"--run_dir={tmp_path}", "--agent=module_of_nobody:AGENT")
