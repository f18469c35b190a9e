"""Shows a run in progress: the console's line, the status, and rows of metrics."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seedzero.config import configs, families
from seedzero.monitoring import (
    background,
    console,
    exporter,
    league_log,
    link_lines,
    metrics_log,
    progress_lines,
    symptoms,
    wandb_run,
    watch,
)
from seedzero.monitoring.metrics import counts
from seedzero.storage.checkpoints import run_dirs
from seedzero.transport import messages

# Warns if the learning rate decays to 0 before a run ends, because it learns nothing from then on.
MARGIN = 1.05
"""Updates after the decay, as a share of it, that deserve a warning; padded batches add some unplanned updates."""


class Decay:
    """Warns once if the learning rate is 0, or will be before the run's budget is used. For a single thread.

    Of several policies, each has a rate that falls by its own updates.
    """

    def __init__(self, config: configs.Config) -> None:
        self._config = config
        self._name, self._end = config.agent.decay_end(config)
        self._has_begun = self._is_told = False

    def observe(self, snapshot: counts.Snapshot) -> str:
        """Returns the warning once it is due, else "".

        The first snapshot must be from the start of a run or a resume.
        """
        own = [policy.update for policy in snapshot.policies.values()] or [snapshot.num_updates]
        num_updates, at_start = max(own), not self._has_begun
        self._has_begun = True
        if not self._name or self._is_told:
            return ""
        most, flag = budget_updates(self._config, snapshot)
        budget, each = -(-most // len(own)), " of each policy" if len(own) > 1 else ""
        is_zero = num_updates >= self._end * (1.0 if at_start else MARGIN)
        if not is_zero and not (at_start and budget > self._end * MARGIN):
            return ""
        self._is_told = True
        setting = f"--{self._name}={configs.flatten(self._config)[self._name]}"
        if is_zero:
            fact = (
                f"the learning rate is 0 since update {self._end}{each} ({setting}), and this is update "
                f"{num_updates}: nothing more is learned"
            )
        else:
            fact = (
                f"the learning rate falls to 0 at update {self._end} ({setting}), and {flag} continues to about "
                f"update {budget}{each}: nothing is learned after that"
            )
        enough = str(budget) if budget > num_updates else "N, the updates of the whole run"
        return f"{fact}; give --{self._name}={enough}, or --{self._name}=0 for a rate that stays"


def budget_updates(config: configs.Config, snapshot: counts.Snapshot) -> tuple[int, str]:
    """Estimates at which update a budget ends the run, and names the budget's flag; (0, "") without one.

    Padded batches, which have fewer steps, make more updates.
    """
    run, ends = config.run, []
    if run.max_updates:
        ends.append((run.max_updates, f"--max_updates={run.max_updates}"))
    if run.max_env_steps:
        num_left = max(0, run.max_env_steps - snapshot.counts.env_steps)
        num_updates = snapshot.num_updates + num_left / steps_of_update(config)
        final = config.replay.final_updates if config.agent.SAMPLES else 0
        ends.append((math.ceil(num_updates) + final, f"--max_env_steps={run.max_env_steps}"))
    return min(ends, default=(0, ""))


def steps_of_update(config: configs.Config) -> float:
    """Returns the steps of all hosts per update: those of a whole batch, or by the ratio of windows to steps."""
    agent, num_hosts = config.agent, config.cluster.num_hosts
    if agent.SAMPLES:
        return num_hosts * config.replay.batch_size / config.replay.samples_per_insert
    return float(num_hosts * agent.first_update(config))


# Reports a run's other hosts on the console.
EVERY_SECONDS = 60.0
"""Time between two reports."""


class HostsLine:
    """Reports now and then how the other hosts are doing."""

    def __init__(self) -> None:
        self._told_at, self._told = -math.inf, ""

    def observe(self, now: float, lines: Sequence[str]) -> str:
        """Returns a message for the user, or "". now: in seconds. lines: one per host."""
        text = "; ".join(lines)
        if text == self._told or now - self._told_at < EVERY_SECONDS:
            return ""
        self._told_at, self._told = now, text
        return text


ENDLESS_SECONDS = 60.0
"""The console prints a message after this time without a finished episode."""
_MOST_LINKS = 200
"""The most workers in a status."""
_MOST_INFOS = 4
"""Number of environments' own metrics in the console's line; --metrics.console shows more."""


@dataclasses.dataclass
class View:
    """Shows the progress of a run. Any thread may ask."""

    config: configs.Config
    directory: run_dirs.RunDir
    screen: background.Screen
    workers: Callable[[], Sequence[int]]  # returns the number of environments of each training worker
    gathered: counts.Aggregator
    log: metrics_log.MetricsLog
    durable_update: Callable[[], int | None]  # returns the update of the newest checkpoint, or None
    progress: progress_lines.RunProgress
    hours: progress_lines.Forecast | None = None  # forecasts the duration of the run; None: no forecast
    watch: str = ""  # command that plays the run's newest checkpoint, until it is shown, or ""
    others: Callable[[], Sequence[str]] = tuple  # returns a message about each of the run's other hosts
    history: league_log.LeagueLog | None = None  # receives the matches with each row, or None
    on_row: Callable[[Mapping[str, Any]], None] = lambda row: None  # receives each row
    usage: Callable[[float], Mapping[str, float]] = lambda seconds: {}  # returns the use of processors and memory
    present: Callable[[], Sequence[messages.Presence]] = tuple  # returns all workers' sessions

    def __post_init__(self) -> None:
        self._decay = Decay(self.config)
        self._newest_row: Mapping[str, metrics_log.Value] = {}
        self._known: dict[str, Any] = {}  # newest values of all rows
        self._more = [name.strip() for name in self.config.metrics.console.split(",") if name.strip()]
        self._more_to_check = self._more
        self._wandb: wandb_run.WandbRun | None = None
        self._watch = watch.Watch(self.config, self.directory.path, self.screen.message)
        self._league = league_log.LeagueLine()
        self._hosts, self._links = HostsLine(), link_lines.LinkLine()
        self._is_endless_told = False
        self._stored_before: int | None = None  # steps before a resume
        self._seconds_before = 0.0  # time before the first step, while networks are built and compiled

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Sends rows to Weights & Biases, too, while the context is entered, if this is configured."""
        with contextlib.ExitStack() as sent:
            if project := self.config.metrics.wandb:
                config = configs.flatten(self.config)
                self._wandb = wandb_run.WandbRun(project, self.directory.path, config, self.screen.message)
                sent.callback(self._wandb.close)
            yield

    def observe(self, now: float, *, last: bool = False) -> None:
        """Updates the rates and the console's line. last: the run is over."""
        self.progress.observe(now)
        self._report_endless(self.progress.snapshot(), self.progress.seconds())
        spec = self.progress.spec if self.progress.read else None
        if self.hours and spec and (text := self.hours.observe(now, self.progress.snapshot(), spec)):
            self.screen.message(text)
        if self.progress.read and not last and (text := self._decay.observe(self.progress.snapshot())):
            self.screen.message(text)
        if text := self._league.observe(now, self.progress.snapshot()):
            self.screen.message(text)
        for text in filter(None, (self._hosts.observe(now, self.others()), self._links.observe(now, self.present()))):
            self.screen.message(text)
        is_drawn = spec is None or not spec.seats or spec.fixed_seats
        if self.watch and is_drawn and not last and self.durable_update():
            self.screen.message("watch it meanwhile:", self.watch)
            self.watch = ""
        self.screen.update(self.shown(last=last), last=last)

    def worse_greedily(self) -> str:
        """Describes greedy evaluations that return less than training's drawn actions, or returns ""."""
        draws = self.config.run.agent in symptoms.DRAWS
        return self._watch.finds(symptoms.worse_greedily, self.progress.spec) if draws else ""

    def shown(self, *, last: bool = False) -> console.ConsoleSnapshot:
        """Returns the state for the console. last: the run is over."""
        spec, snapshot, seconds = self.progress.spec, self.progress.snapshot(), self.progress.seconds()
        recent, rates, budget = self.gathered.means(), self._rates(snapshot), self.config.run
        updates, evaluated = snapshot.num_updates, snapshot.last_evaluation or {}
        steps_budget = (budget.max_env_steps, snapshot.counts.env_steps, rates["env_steps_per_second"])
        if snapshot.owed_updates and rates["updates_per_second"]:
            steps_budget = (snapshot.owed_updates, updates, rates["updates_per_second"])
        return console.ConsoleSnapshot(
            seconds=seconds,
            env_steps=snapshot.counts.env_steps,
            updates=updates,
            frames_per_second=rates["frames_per_second"],
            updates_per_second=rates["updates_per_second"],
            mean_return=self.gathered.recent_return(),
            num_players=spec.num_players if spec else 1,
            evaluation=None if counts.CUT_SHORT in evaluated else evaluated.get("mean_return"),
            samples_per_insert=rates["samples_per_insert"],
            batch_fill=recent.get("batch_fill"),
            policy_age=recent.get("policy_age"),
            budget_seconds=console.budget_seconds(
                (budget.max_seconds, seconds, 1.0),
                steps_budget,
                (budget.max_updates, updates, rates["updates_per_second"]),
            ),
            durable_update=self.durable_update(),
            more=tuple((name, recent.get(name, self._known.get(name))) for name in self._more),
            infos=tuple(self._infos(recent)),
            note="" if last else self._awaited(seconds),
            is_preparing=not last and bool(self.progress.preparing(len(self.workers()))),
        )

    def _infos(self, recent: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        """Yields numbers that the environment reports, the first few by name."""
        known = {name: x for name, x in {**self._known, **recent}.items() if name.startswith(counts.INFO)}
        for name in sorted(known)[:_MOST_INFOS]:
            yield name.removeprefix(counts.INFO), known[name]

    def _awaited(self, seconds: float) -> str:
        """Returns why the run makes no progress, or has not ended yet, or when it begins to learn, or ""."""
        is_late = 0 < self.config.run.max_seconds < seconds
        stalled = self.progress.stalled(len(self.workers())) or ("waiting for calls on the device" if is_late else "")
        return stalled or self.progress.first_update(self.config)

    def _report_endless(self, snapshot: counts.Snapshot, seconds: float) -> None:
        """Prints a message once if no episode has ended for a while, or before the run's last evaluation."""
        env_steps = snapshot.counts.env_steps
        if self._stored_before is None and self.progress.read is not None:
            self._stored_before = env_steps
        num_envs = sum(self.workers()) * self.config.cluster.num_hosts  # as if every host had as many
        num_steps = env_steps - (self._stored_before or 0)
        if not num_steps:
            self._seconds_before = seconds
        seconds -= self._seconds_before
        is_late = seconds >= ENDLESS_SECONDS or bool(snapshot.remaining)
        if self._is_endless_told or not is_late or not num_envs or self.gathered.recent_return() is not None:
            return
        self._is_endless_told = True
        is_limited = "max_episode_steps" in families.of(self.config.env.id).takes
        remedy = "; if episodes never end, give --env.max_episode_steps=N in a new run"
        self.screen.message(
            f"no episode has ended in {seconds:.0f} s, after {num_steps // num_envs} steps in each environment: there "
            f"is no return yet{remedy if is_limited else ''}"
        )

    def _check_more(self) -> None:
        """Prints a message once, at the first row with an update, about unknown names in --metrics.console."""
        (names, self._more_to_check), known = (self._more_to_check, []), self._known
        for name in names:
            if name not in known and not name.startswith(("evaluation_", "episode", counts.INFO)):
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
                given = f"--metrics.console={self.config.metrics.console}"
                self.screen.message(f"{given}: no metric {name!r} so far; {hint}")

    def _rates(self, snapshot: counts.Snapshot) -> dict[str, float]:
        steps_per_second = self.progress.per_second(lambda snapshot: snapshot.counts.env_steps)
        frames_per_step = self.progress.spec.frames_per_step if self.progress.spec else 1
        return {
            "env_steps_per_second": steps_per_second,
            "frames_per_second": steps_per_second * frames_per_step,
            "updates_per_second": self.progress.per_second(lambda snapshot: snapshot.num_updates),
            "samples_per_insert": snapshot.num_samples / max(1, snapshot.counts.stored),
        }

    def scrape(self) -> exporter.Scrape:
        """Returns the values for Prometheus."""
        return self.status(), self._newest_row

    def status(self, finished: str | None = None) -> dict[str, object]:
        """Returns the status for `seedzero status`. finished: why the run has finished, or None."""
        snapshot, workers = self.progress.snapshot(), self.workers()
        steps, rates = snapshot.counts, self._rates(snapshot)
        policies = {name: policy._asdict() for name, policy in snapshot.policies.items()}
        return {
            "env_steps": steps.env_steps,
            "updates": snapshot.num_updates,
            "weights_version": snapshot.version,
            "durable_update": self.durable_update(),
            "workers": len(workers),
            "environments": sum(workers),
            "steps_acknowledged": steps.acknowledged,
            "steps_stored": steps.stored,
            "steps_pending": steps.pending,
            "steps_discarded": {counts.WORKER_LOST: 0, **steps.discarded},
            **{name: rates[name] for name in ("samples_per_insert", "env_steps_per_second", "updates_per_second")},
            "stalled": self.progress.stalled(len(workers)),
            "first_update": self.progress.first_update(self.config),
            "last_evaluation": snapshot.last_evaluation,
            "finished": finished,
            **({"matches": dict(snapshot.matches)} if snapshot.matches else {}),
            **({"policies": policies} if policies else {}),
            **({"hosts": list(lines)} if (lines := self.others()) else {}),
            "links": [one.to_json() for one in self.present() if one.link][:_MOST_LINKS],
        }

    def write_status(self, *, alive: bool, finished: str | None = None) -> None:
        """Writes the status into the run directory. finished: see `status`."""
        self._write_status({**self.status(finished), "alive": alive})

    def write_finished(self, reason: str) -> None:
        """Says in the last status why the run is finished, such as a budget that was lowered; "": it is no longer."""
        last = run_dirs.read_status(self.directory.path) or {}
        self._write_status({**last, "alive": False, "finished": reason or None})

    def _write_status(self, status: Mapping[str, object]) -> None:
        if problem := self.directory.write_status(status):
            self.screen.message(problem)

    def write_row(self, values: Mapping[str, Any], *, gathered: bool = True) -> None:
        """Writes a row with the usual metrics, to which `values` are added, replacing those of the same name.

        gathered: whether to include rates, ratios, and the means and totals since the last such row.
        """
        snapshot = self.progress.snapshot()
        env_steps = snapshot.counts.env_steps
        usual: dict[str, Any] = {
            "update": snapshot.num_updates,
            "env_steps": env_steps,
            "seconds": round(self.progress.seconds(), 3),
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        if gathered:
            usual |= {**self._rates(snapshot), "weights_version": snapshot.version, **self.gathered.drain()}
            usual |= self.usage(self.progress.seconds())
            usual |= {} if self.config.run.deterministic else link_lines.row(self.present())
            if snapshot.num_reanalysed is not None:
                usual["refreshed_per_second"] = self.progress.per_second(lambda snapshot: snapshot.num_reanalysed or 0)
                usual["refreshed_per_insert"] = snapshot.num_reanalysed / max(1, snapshot.counts.stored)
            usual |= {f"{metrics_log.MATCHES}{name}": count for name, count in snapshot.matches.items()}
            for name, policy in snapshot.policies.items():
                usual |= {f"{counter}/{name}": number for counter, number in policy._asdict().items()}
            if self.history is not None:
                self.history.count(snapshot.matches, update=snapshot.num_updates, env_steps=env_steps)
        row = {**usual, **values}
        self._watch.begin()
        self._known = {**self._known, **row}  # read by other threads
        if gathered and snapshot.num_updates:
            self._check_more()
        self.log.write(row)
        self.on_row(row)
        if self._wandb is not None:
            self._wandb.write(row)
        if gathered:
            self._newest_row = usual
        self._watch.see(row, self.progress.spec)
