"""What a run's views tell, from the values that others fill."""

from __future__ import annotations

import functools
import json
import pathlib
import re
from typing import Any, cast

import jax.numpy as jnp
import pytest

from seedzero.agents import learning, muzero_model, ppo
from seedzero.config import configs, options, presets
from seedzero.core import types
from seedzero.monitoring import (
    background,
    console,
    league_log,
    metrics_log,
    progress_lines,
    symptoms,
    views,
    wandb_run,
)
from seedzero.monitoring.metrics import counts
from seedzero.storage.checkpoints import run_dirs
from seedzero.transport import links, messages


class Screen:
    """A console that keeps its messages, and a clock."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.budget_seconds: float | None = None
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def update(self, snapshot: console.ConsoleSnapshot, *, last: bool = False) -> None:
        self.budget_seconds = snapshot.budget_seconds

    def message(self, text: str, command: str = "") -> None:
        self.messages += [text, *filter(None, [command])]


def _view(
    path: pathlib.Path, *, has_forecast: bool = False, **changes: Any
) -> tuple[views.View, Screen, counts.Aggregator]:
    """Returns the view of a run of 8 environments, its screen, and what it has gathered."""
    screen, gathered = Screen(), counts.Aggregator()
    directory: Any = cast(run_dirs.RunDir, type("Directory", (), {"path": path}))
    values = {"metrics.tensorboard": False, **{name.replace("__", "."): value for name, value in changes.items()}}
    config = configs.override(configs.Config(), values)
    log = metrics_log.MetricsLog(path, tensorboard=False, report=screen.message)
    hours = progress_lines.Forecast(config) if has_forecast else None
    told, progress = cast(background.Screen, screen), progress_lines.RunProgress(screen.clock)
    shown = views.View(config, directory, told, lambda: [6, 2], gathered, log, lambda: None, progress, hours)
    return shown, screen, gathered


def test_rows_go_to_weights_and_biases_too_while_they_are_sent(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[Any] = []

    class Sent:
        def __init__(self, project: str, path: pathlib.Path, config: dict[str, Any], report: object) -> None:
            rows.append((project, path, config["metrics.wandb"]))

        def write(self, row: dict[str, Any]) -> None:
            rows.append(row["update"])

        def close(self) -> None:
            rows.append("closed")

    monkeypatch.setattr(wandb_run, "WandbRun", Sent)
    shown, _, _ = _view(tmp_path, metrics__wandb="games")
    with shown.sending():
        shown.write_row({"update": 7})
    assert rows == [("games", tmp_path, "games"), 7, "closed"]
    rows.clear()
    with _view(tmp_path)[0].sending():
        assert not rows


def test_the_last_status_says_why_a_run_is_finished_until_it_continues(tmp_path: pathlib.Path) -> None:
    shown, _, _ = _view(tmp_path)
    write: Any = functools.partial(run_dirs.write_json_atomic, tmp_path / run_dirs.STATUS_FILE)
    shown.directory = cast(Any, type("Directory", (), {"path": tmp_path, "write_status": staticmethod(write)}))
    write({"updates": 5})
    for reason, finished in (("5 updates of --max_updates=5", "5 updates of --max_updates=5"), ("", None)):
        shown.write_finished(reason)
        assert run_dirs.read_status(tmp_path) == {"updates": 5, "alive": False, "finished": finished}


@pytest.mark.parametrize("deterministic", [False, True])
def test_status_rows_and_console_have_the_links_of_workers(tmp_path: pathlib.Path, deterministic: bool) -> None:
    shown, screen, _ = _view(tmp_path, run__deterministic=deterministic)
    rows: list[Any] = []
    shown.on_row = rows.append
    assert shown.status()["links"] == []
    link = links.WorkerLink(2, 16, 0.001, 0.001, 0.1, 0.001, 1000.0, is_complete=True)
    shown.present = lambda: [messages.Presence("id", "far", types.Role.TRAIN, 2, 16, "steps", 0.1, link)]
    (found,) = cast(list[dict[str, Any]], shown.status()["links"])
    assert (found["name"], found["round_trip_seconds"], found["waits_for"]) == ("far", 0.1, "link")
    shown.write_row({})
    assert rows[0].get("round_trip_seconds") == (None if deterministic else 0.1)  # whose rows repeat their bits
    for _ in range(2):
        shown.observe(1.0)
    (text,) = screen.messages
    assert " far: " in text


@pytest.mark.parametrize(("cut", "expected"), [({}, 7.0), ({counts.CUT_SHORT: True}, None)])
def test_the_line_has_returns_of_whole_episodes(
    tmp_path: pathlib.Path, cut: dict[str, bool], expected: object
) -> None:
    shown, _, _ = _view(tmp_path)
    shown.progress.follow(lambda: counts.Snapshot(last_evaluation={"mean_return": 7.0, **cut}))
    assert shown.shown().evaluation == expected


def test_metrics_of_the_user_s_choice_stand_in_the_line(tmp_path: pathlib.Path) -> None:
    rows: list[Any] = []
    shown, screen, gathered = _view(tmp_path, metrics__console="loss, batch_fil, evaluation_mean_return")
    shown.on_row = rows.append
    assert [value for _, value in shown.shown().more] == [None] * 3
    shown.write_row({})
    assert not screen.messages  # there is no update yet
    shown.progress.follow(lambda: counts.Snapshot(num_updates=3, is_compiled=True))
    gathered.add_means({"loss": 1.5, "batch_fill": 0.5})
    shown.write_row({})
    shown.write_row({"evaluation_mean_return": 7.0}, gathered=False)
    shown.write_row({})
    assert shown.shown().more == (("loss", 1.5), ("batch_fil", None), ("evaluation_mean_return", 7.0))
    assert " loss 1.5 " in console.line_of(shown.shown()) and len(rows) == 4
    (text,) = screen.messages
    assert "--metrics.console=" in text and "no metric 'batch_fil' so far; did you mean batch_fill?" in text


@pytest.mark.parametrize("share, num_messages", [(0.0, 0), (symptoms.CLIPPED_SHARE / 2, 0), (0.25, 1)])
def test_clipped_targets_are_reported_once(tmp_path: pathlib.Path, share: float, num_messages: int) -> None:
    shown, screen, gathered = _view(tmp_path, network__support_limit=7.0)
    for _ in range(3):
        gathered.add_means({"loss": 1.0, types.TARGETS_CLIPPED: share})
        shown.write_row({})
    assert len(screen.messages) == num_messages
    assert all("25.0%" in text and "--network.support_limit (now 7)" in text for text in screen.messages)


@pytest.mark.parametrize("env_id, has_remedy", [("gym:CartPole-v1", True), ("atari:Pong", True), ("catch", False)])
@pytest.mark.parametrize(("before_resume", "num_hosts"), [(0, 1), (50_000, 1), (50_000, 2)])
def test_episodes_without_end_are_reported_once(
    tmp_path: pathlib.Path, env_id: str, has_remedy: bool, before_resume: int, num_hosts: int
) -> None:
    shown, screen, _ = _view(tmp_path, env__id=env_id, cluster__num_hosts=num_hosts)
    stored = before_resume
    shown.progress.follow(lambda: counts.Snapshot(counts=counts.Counts(stored=stored)))
    for screen.now in (0.0, views.ENDLESS_SECONDS):  # the steps of an earlier process do not count
        shown.observe(screen.now)
    assert not screen.messages
    stored += 8_000 * num_hosts
    for screen.now in (views.ENDLESS_SECONDS + 1.0, 2 * views.ENDLESS_SECONDS - 1.0):  # the time before does not count
        shown.observe(screen.now)
    assert not screen.messages
    for screen.now in (2 * views.ENDLESS_SECONDS, 2 * views.ENDLESS_SECONDS + 1.0):
        shown.observe(screen.now)
    (text,) = screen.messages
    assert " 60 s, " in text and " 1000 steps " in text
    assert ("--env.max_episode_steps=N" in text) == has_remedy


def test_a_run_that_ends_before_any_episode_says_so_at_once(tmp_path: pathlib.Path) -> None:
    shown, screen, _ = _view(tmp_path, env__id="gym:CartPole-v1")
    stored, remaining = 0, ""
    shown.progress.follow(lambda: counts.Snapshot(counts=counts.Counts(stored=stored), remaining=remaining))
    shown.observe(0.0)
    stored = 80
    shown.observe(0.5)
    assert not screen.messages
    remaining = "last evaluation: 0 of 20 episodes"
    for screen.now in (1.0, views.ENDLESS_SECONDS):
        shown.observe(screen.now)
    (text,) = screen.messages
    assert " 1 s, " in text and " 10 steps " in text and "--env.max_episode_steps=N" in text


@pytest.mark.parametrize(("owed", "seconds"), [(0, 2.0), (1_000, 90.0), (-1, 2.0)])
def test_updates_after_the_last_step_are_in_the_time_that_is_left(
    tmp_path: pathlib.Path, owed: int, seconds: float
) -> None:
    """Without an update yet (-1) nobody knows how long they take."""
    shown, screen, _ = _view(tmp_path, run__max_env_steps=1_200)
    for screen.now in (0.0, 10.0):
        done = counts.Counts(stored=int(100 * screen.now))
        seen = counts.Snapshot(counts=done, num_updates=int(10 * screen.now) * (owed > 0), owed_updates=abs(owed))
        shown.progress.follow(lambda seen=seen: seen)
        shown.observe(screen.now)
    assert screen.budget_seconds == seconds


def test_a_run_whose_episodes_end_is_not_told_otherwise(tmp_path: pathlib.Path) -> None:
    shown, screen, gathered = _view(tmp_path)
    shown.progress.follow(lambda: counts.Snapshot(counts=counts.Counts(stored=8_000)))
    gathered.add_episode(1.0, 100)
    screen.now = 10 * views.ENDLESS_SECONDS
    shown.observe(screen.now)
    assert not screen.messages


def test_past_its_budget_a_run_waits_for_calls_on_the_device(tmp_path: pathlib.Path) -> None:
    shown, screen, _ = _view(tmp_path, run__max_seconds=60.0)
    shown.progress.follow(lambda: counts.Snapshot(counts=counts.Counts(stored=1), num_updates=1, is_compiled=True))
    for screen.now, waits in ((59.0, False), (61.0, True)):
        shown.progress.observe(screen.now)
        shown.progress._last_change = screen.now
        assert bool(shown.shown().note) == waits
    assert shown.shown(last=True).note == ""


@pytest.mark.parametrize(
    ("agent", "num_hosts", "num_steps"), [("muzero", 1, 1_000), ("ppo", 1, 32 * 128), ("ppo", 2, 2 * 32 * 128)]
)
def test_the_first_update_is_announced_until_it_comes(
    agent: str, num_hosts: int, num_steps: int, tmp_path: pathlib.Path
) -> None:
    shown, screen, _ = _view(tmp_path, run__agent=agent, cluster__num_hosts=num_hosts)
    ledger = counts.Snapshot(is_compiled=True)
    shown.progress.follow(lambda: ledger)
    shown.progress.observe(screen.now)
    assert f"first update at {num_steps:,} steps" in shown.shown().note and "about" not in shown.shown().note
    screen.now, ledger = 1.0, ledger._replace(counts=counts.Counts(stored=100))
    shown.progress.observe(screen.now)
    told = f"first update at {num_steps:,} steps, in about {(num_steps - 100) / 100:.0f} s"
    assert shown.shown().note == told == shown.status()["first_update"]
    assert shown.shown(last=True).note == ""
    ledger = ledger._replace(num_updates=1)
    assert shown.shown().note == "" == shown.status()["first_update"]


def test_the_hours_that_a_run_takes_are_said_once(tmp_path: pathlib.Path) -> None:
    for has_forecast, num_messages in ((False, 0), (True, 1)):
        shown, screen, gathered = _view(tmp_path, has_forecast=has_forecast, run__max_updates=100_000)
        shown.progress.show(types.EnvSpec((4,), "float32", 2))
        gathered.add_episode(1.0, 100)
        for second in range(0, 100, 5):
            seen = counts.Snapshot(counts=counts.Counts(stored=8 * second), num_updates=second)
            shown.progress.follow(lambda seen=seen: seen)
            shown.observe(float(second))
        assert len(screen.messages) == num_messages
    assert " 28 hours " in screen.messages[0] and " 100,000 updates" in screen.messages[0]


def test_a_run_beyond_its_decay_is_warned_once_and_not_at_its_end(tmp_path: pathlib.Path) -> None:
    for last, num_messages in ((False, 1), (True, 0)):
        shown, screen, _ = _view(tmp_path, run__agent="ppo", optimizer__decay_updates=5)
        shown.observe(0.0, last=last)  # there is no loop yet
        shown.progress.follow(lambda: counts.Snapshot(num_updates=9))
        for second in range(1, 5):
            shown.observe(float(second), last=last)
        assert len(screen.messages) == num_messages
        assert all("--optimizer.decay_updates" in message for message in screen.messages)


def test_the_command_for_watching_is_shown_once_with_the_first_checkpoint(tmp_path: pathlib.Path) -> None:
    saved: list[int | None] = [None]
    shown, screen, _ = _view(tmp_path)
    shown.durable_update, shown.watch = lambda: saved[0], "seedzero play --run_dir=runs/one"
    told = []
    for update in (None, 0, 7, 8):
        saved[0] = update
        shown.observe(1.0)
        told.append(screen.messages.count("seedzero play --run_dir=runs/one"))
    assert told == [0, 0, 1, 1]


def test_a_run_that_is_over_shows_no_command_for_watching_meanwhile(tmp_path: pathlib.Path) -> None:
    shown, screen, _ = _view(tmp_path)
    shown.durable_update, shown.watch = lambda: 7, "seedzero play --run_dir=runs/one"
    shown.observe(1.0, last=True)
    assert not screen.messages


def test_a_league_s_matches_are_in_status_rows_history_and_console(tmp_path: pathlib.Path) -> None:
    shown, screen, _ = _view(tmp_path)
    shown.history = league_log.LeagueLog(tmp_path, screen.message)
    seen = counts.Snapshot(
        counts=counts.Counts(stored=90), num_updates=7, matches={"self_play": 3, "past": 2, "void": 1}
    )
    shown.progress.follow(lambda: seen)
    assert shown.status()["matches"] == {"self_play": 3, "past": 2, "void": 1}
    shown.write_row({})
    shown.write_row({"kind": "evaluation"}, gathered=False)
    row, evaluation = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (row["matches/self_play"], row["matches/past"], row["matches/void"]) == (3, 2, 1)
    assert not [name for name in evaluation if "matches" in name]
    (line,) = map(json.loads, (tmp_path / "league.jsonl").read_text().splitlines())
    assert (line["update"], line["env_steps"], line["types"]["past"]) == (7, 90, 2)
    shown.observe(1.0)
    assert [text for text in screen.messages if text.startswith("league: ")]


def test_policies_have_counters_of_their_own_in_status_and_rows(tmp_path: pathlib.Path) -> None:
    shown, _, _ = _view(tmp_path)
    policies = {"wolf": counts.PolicyCounts(3, 40), "sheep": counts.PolicyCounts(4, 50)}
    shown.progress.follow(lambda: counts.Snapshot(num_updates=7, policies=policies))
    assert shown.status()["policies"] == {
        "wolf": {"update": 3, "env_steps": 40},
        "sheep": {"update": 4, "env_steps": 50},
    }
    shown.write_row({})
    (row,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (row["update"], row["update/wolf"], row["env_steps/sheep"]) == (7, 3, 50)


def test_steps_that_a_queue_gave_up_stay_in_every_count_of_environment_steps(tmp_path: pathlib.Path) -> None:
    shown, _, _ = _view(tmp_path)
    given_up = counts.Counts(acknowledged=90, stored=60, discarded={counts.UNFINISHED_UNROLL: 30})
    for found in (counts.Counts(acknowledged=90, stored=90), given_up):
        shown.progress.follow(functools.partial(counts.Snapshot, counts=found))
        shown.write_row({})
        assert shown.status()["env_steps"] == shown.shown().env_steps == 90
    rows = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert [row["env_steps"] for row in rows] == [90, 90]


def test_without_a_league_no_view_mentions_one(tmp_path: pathlib.Path) -> None:
    shown, screen, _ = _view(tmp_path)
    shown.history = league_log.LeagueLog(tmp_path, screen.message)
    shown.progress.follow(lambda: counts.Snapshot(counts=counts.Counts(stored=90), num_updates=7))
    shown.write_row({})
    shown.observe(1.0)
    assert shown.status().keys().isdisjoint({"matches", "policies"})
    assert "matches" not in (tmp_path / "metrics.jsonl").read_text()
    assert not (tmp_path / "league.jsonl").exists() and not screen.messages


def test_the_environment_s_own_numbers_are_in_the_line_the_first_few(tmp_path: pathlib.Path) -> None:
    view, _, gathered = _view(tmp_path, metrics__console="info/z")
    gathered.add_info({name: 0.5 for name in "edcbaz"})
    view.write_row({})
    gathered.add_info({"a": 1.0})
    shown = view.shown()
    assert shown.infos == (("a", 1.0), ("b", 0.5), ("c", 0.5), ("d", 0.5)) and shown.more == (("info/z", 0.5),)
    assert "a 1  b 0.5" in console.line_of(shown)


@pytest.mark.parametrize(("agent", "is_told"), [("ppo", True), ("apex", False)])
def test_the_end_names_drawn_actions_that_return_more(agent: str, is_told: bool, tmp_path: pathlib.Path) -> None:
    view, _, _ = _view(tmp_path, run__agent=agent)
    for number, value in enumerate((0.1, 0.5, 0.5, 0.5)):
        view.write_row({"update": 900 + number, "episode_return": value, "episodes": 50.0}, gathered=False)
    scores = {"evaluation_mean_return": -0.3, "evaluation_std_return": 0.7, "evaluation_episodes": 20}
    assert not view.worse_greedily()
    view.write_row({"update": 903, **scores}, gathered=False)
    assert ("--policy=sample" in view.worse_greedily()) == is_told


def test_other_hosts_are_told_of_once_a_minute_if_anything_changed() -> None:
    line = views.HostsLine()
    assert line.observe(0, []) == ""
    assert line.observe(1, ["host 1: 3 steps", "host 2: 4 steps"]) == "host 1: 3 steps; host 2: 4 steps"
    assert line.observe(30, ["host 1: 5 steps"]) == ""
    assert line.observe(61, ["host 1: 5 steps"]) == "host 1: 5 steps"
    assert line.observe(200, ["host 1: 5 steps"]) == ""


def _config(agent: str, **values: options.Value) -> configs.Config:
    changes = {name.replace("__", "."): value for name, value in values.items()}
    return configs.override(configs.Config(), {"run.agent": agent, **changes})


def _snapshot(updates: int, steps: int = 0) -> counts.Snapshot:
    return counts.Snapshot(counts=counts.Counts(stored=steps), num_updates=updates)


@pytest.mark.parametrize("agent", ["ppo", "vtrace"])
def test_a_resume_beyond_the_decay_is_warned_at_its_start_and_once(agent: str) -> None:
    found = views.Decay(_config(agent, optimizer__decay_updates=50))
    assert re.search(r"--optimizer\.decay_updates=50.* --optimizer\.decay_updates=N", found.observe(_snapshot(50)))
    assert not any(found.observe(_snapshot(updates)) for updates in range(51, 200))


def test_a_budget_beyond_the_decay_is_warned_at_the_start_with_its_updates() -> None:
    # 12 of 32 unrolls of 128 steps: 49,152 steps; 100 updates in 409,600.
    assert "--optimizer.decay_updates=100," in _first("ppo", optimizer__decay_updates=12, run__max_env_steps=409_600)
    assert not _first("ppo", optimizer__decay_updates=12, run__max_env_steps=49_152)
    assert "--optimizer.decay_updates=90," in _first("vtrace", optimizer__decay_updates=12, run__max_updates=90)
    # The nearest budget counts.
    assert not _first("ppo", optimizer__decay_updates=12, run__max_env_steps=409_600, run__max_updates=12)


def test_the_steps_of_an_update_are_those_of_all_hosts() -> None:
    settings = {"optimizer__decay_updates": 12, "cluster__num_hosts": 2}
    assert not _first("ppo", run__max_env_steps=2 * 49_152, **settings)
    assert "--optimizer.decay_updates=24," in _first("ppo", run__max_env_steps=4 * 49_152, **settings)
    assert views.steps_of_update(_config("muzero", cluster__num_hosts=2)) == 2 * 256 / 4.0


def test_the_rest_of_a_resumed_run_counts() -> None:
    config = _config("ppo", optimizer__decay_updates=12, run__max_env_steps=8 * 4_096)
    assert not views.Decay(config).observe(_snapshot(0))
    assert not views.Decay(config).observe(_snapshot(10, 6 * 4_096))
    assert "--optimizer.decay_updates=14," in views.Decay(config).observe(_snapshot(10, 4 * 4_096))


def test_a_run_without_a_budget_is_warned_once_it_is_beyond_the_decay() -> None:
    found = views.Decay(_config("vtrace", optimizer__decay_updates=100))
    told = [updates for updates in range(200) if found.observe(_snapshot(updates))]
    assert told == [105]


def test_each_policy_of_several_has_a_rate_that_falls_by_its_own_updates() -> None:
    def both(updates: int) -> counts.Snapshot:
        policies = {name: counts.PolicyCounts(updates, 0) for name in ("ant", "bee")}
        return counts.Snapshot(num_updates=2 * updates, policies=policies)

    endless = views.Decay(_config("ppo", optimizer__decay_updates=100))
    assert [updates for updates in range(200) if endless.observe(both(updates))] == [105]
    for most, is_warned in ((200, False), (300, True)):
        told = views.Decay(_config("ppo", optimizer__decay_updates=100, run__max_updates=most)).observe(both(0))
        assert ("about update 150 of each policy" in told and "--optimizer.decay_updates=150," in told) == is_warned
        assert bool(told) == is_warned


def test_a_constant_rate_and_other_agents_are_not_warned() -> None:
    for agent in configs.agent_names():
        assert not views.Decay(_config(agent)).observe(_snapshot(10**9))


@pytest.mark.thorough
@pytest.mark.parametrize("preset", presets.PRESETS)
@pytest.mark.parametrize("agent", configs.agent_names())
def test_no_preset_is_warned(preset: str, agent: str) -> None:
    config = presets.get(preset, agent)
    on_cpu = configs.override(config, presets.cpu_values(preset, agent, explicit=set()))
    assert not any(views.Decay(each).observe(_snapshot(0)) for each in (config, on_cpu))


@pytest.mark.parametrize(
    "schedule, share, is_warned",
    [("cosine", 0.0, True), ("linear", 0.0, True)]
    + [(schedule, share, False) for schedule, share in [("cosine", 0.1), ("exponential", 0.0), ("constant", 0.0)]],
)
def test_muzero_is_warned_exactly_where_its_rate_ends_at_0(schedule: str, share: float, is_warned: bool) -> None:
    config = _config(
        "muzero",
        optimizer__schedule=schedule,
        optimizer__decay_rate=share,
        optimizer__decay_updates=20,
        optimizer__warmup_updates=5,
    )
    rate = float(muzero_model.make_schedule(config.optimizer)(jnp.asarray(25)))
    assert (rate == 0) is is_warned
    assert ("--optimizer.decay_updates" in views.Decay(config).observe(_snapshot(25))) is is_warned
    assert not views.Decay(config).observe(_snapshot(24))


def test_the_end_is_the_first_update_with_a_rate_of_0() -> None:
    for agent in ("ppo", "vtrace"):
        config = _config(agent, optimizer__decay_updates=20)
        _, end = config.agent.decay_end(config)
        rates = [_rate(config, updates) for updates in (end - 1, end)]
        assert rates[0] > rates[1] == 0


def _rate(config: configs.Config, updates: int) -> float:
    number = jnp.asarray(updates)
    if config.run.agent == "ppo":
        return float(ppo._rates(config, number)[0])
    return float(learning.schedule(config.optimizer)(number))


def _first(agent: str, **values: options.Value) -> str:
    return views.Decay(_config(agent, **values)).observe(_snapshot(0))
