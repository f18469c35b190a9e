"""Searches for good settings: Optuna chooses each trial's, and bad trials are stopped early by their metrics."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seedzero.api import request, run_groups, sweeps
from seedzero.config import configs, options, sections
from seedzero.core import errors, packages, plain_files, printable
from seedzero.monitoring import metrics_log, rows, series
from seedzero.storage.checkpoints import run_dirs, run_lock


# The journal of a search: lines of JSON as Optuna's own, which a full disk or a lost machine does not end.
class SearchJournal:
    """The operations of a study, in memory and in a file that no other process writes meanwhile.

    It is a backend of Optuna's `JournalStorage`. What cannot be written is kept for the next write. A crash may leave
    half a line, or zeros, at the end of the file; these are cut when it is opened.
    """

    def __init__(self, path: pathlib.Path, say: Callable[[str], None]) -> None:
        """Raises ResumeError if any line but the last is damaged, or the file cannot be read or repaired."""
        self._file = rows.RowFile(
            path, f"{path} cannot be written", say, works=f"{path} is written again; it lacks nothing"
        )
        self._unsaved = b""
        try:
            lines = list(plain_files.lines(path)) if path.exists() else []
            self._logs = _parse(path, lines)
            if len(self._logs) < len(lines):
                rows.cut(path, sum(map(len, lines[:-1])))
                say(f"cut an incomplete last line, of {len(lines[-1]):,} bytes, from {path}")
        except OSError as error:
            raise errors.ResumeError(f"cannot read {path}: {error.strerror}") from None

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """Returns the operations from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds operations, and writes them with those that could not be written before."""
        lines = [json.dumps(log, separators=(",", ":")) + "\n" for log in logs]
        self._logs += map(json.loads, lines)
        self._unsaved += "".join(lines).encode()
        self.save()

    def save(self) -> None:
        """Writes what could not be written before, if anything; reports the first failure."""
        self._file.attempt(self._write)

    def _write(self) -> None:
        if self._unsaved:
            rows.append(self._file.path, self._unsaved, durably=True)
            self._unsaved = b""


def _parse(path: pathlib.Path, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Returns the operations in the lines of a file, without a damaged last one."""
    found = [_operation(line) for line in lines]
    if found and found[-1] is None:
        found.pop()
    if None in found:
        number = found.index(None) + 1
        raise errors.ResumeError(
            f"line {number} of {path} is damaged: keep the lines before it (head -n {number - 1}), or give another "
            "--run_dir"
        )
    return [log for log in found if log is not None]


def _operation(line: bytes) -> dict[str, Any] | None:
    """Returns the operation in a line, None if it is damaged."""
    try:
        log = rows.parse(line)
    except ValueError:
        return None
    return log if line.endswith(b"\n") and "op_code" in log else None


if TYPE_CHECKING:
    from optuna import distributions

SAMPLERS = ("tpe", "random")
OBJECTIVE = series.EVALUATION
EARLY = "stopped early"
"""State of a trial that was worse than others; nothing resumes it."""
JOURNAL, _LOCK, _ASKED = "search.journal", "search.lock", "asked"
"""Files in the search's directory; name of the command line in the study."""
_RUNGS, _KEEP = (12, 36), 3
"""Percent of its budget after which a trial is compared, and the part, a third, of those so far that continues."""
_TOO_LATE = 50
"""Percent of a budget; if the first evaluation comes later, fewer than three fit, and comparing them says little."""
_DIGITS = 6
"""Significant digits of a number that is drawn from a range."""
_RANGES = ("log", "uniform")


class SearchPlan(NamedTuple):
    """What to search.

    root: directory of the trials. space: what differs among them, by SECTION.KEY or "preset". flags, settings: of all.
    objective: the metric of metrics.jsonl whose last value is to be high. halves: whether to stop bad trials.
    """

    root: pathlib.Path
    space: Mapping[str, distributions.BaseDistribution]
    flags: Mapping[str, str]
    settings: Mapping[str, str]
    num_trials: int
    objective: str = OBJECTIVE
    sampler: str = SAMPLERS[0]
    halves: bool = True

    def run(self, number: int, own: Mapping[str, Any]) -> sweeps.PlannedRun:
        """Returns a trial with its own values."""
        return sweeps.make(self.root / f"trial-{number:03d}", _shown(own), self.flags, self.settings)


def is_range(name: str, text: str, kind: type[configs.Config]) -> bool:
    """Returns whether a text is meant as a range; only settings SECTION.KEY that are numbers have one."""
    field = configs.fields(kind).get(name)
    return field is not None and type(field.default) in (int, float) and ":" in text


def read_range(name: str, text: str, kind: type[configs.Config]) -> distributions.BaseDistribution:
    """Returns the range in log:LOW:HIGH or uniform:LOW:HIGH, of whole numbers if the setting is one.

    kind: see `sweeps.kind_of`. Raises UsageError for an impossible range, and ConfigError for an end that the setting
    cannot have.
    """
    from optuna import distributions

    field, flag, (scale, *ends) = configs.fields(kind)[name], f"--{run_groups.short(name)}={text}", text.split(":")
    if scale not in _RANGES or len(ends) != 2:
        raise errors.UsageError(
            f"{flag}: expected a range as log:LOW:HIGH or uniform:LOW:HIGH, or values separated by commas"
        )
    low, high = (options.parse(run_groups.short(name), end, type(field.default)) for end in ends)
    if not (abs(low) < float("inf") > high > low and (scale != "log" or low > 0)):
        lowest = "above 0, " if scale == "log" else ""
        raise errors.UsageError(f"{flag}: expected two finite numbers, {lowest}the lower one first")
    kept = distributions.IntDistribution if isinstance(low, int) else distributions.FloatDistribution
    return kept(low, high, log=scale == "log")


def plan(
    texts: Mapping[str, str], flags: Mapping[str, str], settings: Mapping[str, str], directory: str, **fields: Any
) -> SearchPlan:
    """Returns a search. texts: a range, values or a single value of each setting. fields: of `SearchPlan`.

    Raises UsageError for mistakes, as `sweeps.plan`, and if Optuna is missing.
    """
    try:
        import optuna
    except ImportError as error:
        raise errors.UsageError(
            f"--trials needs Optuna ({error}); install it: {packages.install_command('optuna')}"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    root = sweeps.find_root({name: [text] for name, text in texts.items()}, flags, settings, directory, "search")
    kind = sweeps.kind_of(texts, settings)
    ranges = {name for name, text in texts.items() if is_range(name, text, kind)}
    lists = {name: sweeps.read_values(name, text, kind) for name, text in texts.items() if name not in ranges}
    space = {name: read_range(name, texts[name], kind) for name in texts if name in ranges}
    several = {name: found for name, found in lists.items() if len(found) > 1}
    space |= {name: optuna.distributions.CategoricalDistribution(found) for name, found in several.items()}
    if run_groups.SEED in space:
        raise errors.UsageError("a trial has one seed: give --seed=N, and train the best settings with others later")
    if not space:
        raise errors.UsageError(
            "--trials needs settings to search before --: a range, as --optimizer.learning_rate=log:1e-5:1e-3, or "
            "several values"
        )
    fixed = sweeps.make(root, {name: found[0] for name, found in lists.items() if name not in space}, flags, settings)
    return SearchPlan(root, space, fixed.flags, fixed.settings, **fields)


def check(found: SearchPlan) -> None:
    """Raises UsageError for wrong settings, as `seedzero train` would, and for trials without an end or objective.

    Each value of a list and both ends of each range are tried once. Other combinations may be wrong all the same: such
    a trial fails.
    """
    tried = {name: getattr(kind, "choices", None) or (kind.low, kind.high) for name, kind in found.space.items()}
    for index in range(max(map(len, tried.values()))):
        run = found.run(0, {name: values[min(index, len(values) - 1)] for name, values in tried.items()})
        config = request.check_early(request.make(run.flags, run.settings)).config
        if not any(_limits(config.run)):
            raise errors.UsageError(
                "a trial with bad settings needs an end: give --max_env_steps=N, --max_updates=N or --max_seconds=N "
                "after --"
            )
        if found.objective.startswith("evaluation_") and not config.evaluation.every_updates:
            raise errors.UsageError(
                f"--objective={found.objective} needs evaluations, which --evaluation.every_updates=0 turns off; "
                f"--objective={series.TRAINING} is the return of training episodes"
            )


def _shown(own: Mapping[str, Any]) -> dict[str, str]:
    """Returns values as on a command line; numbers of ranges are rounded."""
    rounded = {name: float(f"{value:.{_DIGITS}g}") for name, value in own.items() if isinstance(value, float)}
    return {name: sweeps.plain(value) for name, value in {**own, **rounded}.items()}


def _limits(run: sections.RunConfig) -> tuple[float, float, float]:
    """Returns what ends a run, in the order of `series.RowPlace`."""
    return run.max_updates, run.max_env_steps, run.max_seconds


def percent(place: Sequence[float], run: sections.RunConfig) -> int:
    """Returns how much of a run's budget is used at a `series.RowPlace`, rounded down."""
    return int(100 * max(done / limit for done, limit in zip(place, _limits(run), strict=True) if limit))


def is_worse(curves: Sequence[Mapping[int, float]], number: int) -> bool:
    """Returns whether a trial is to be stopped after its newest evaluation.

    A trial is compared twice: at its first evaluation after each rung, and no evaluation serves both, so that trials
    are stopped equally often however often they are evaluated. curves: each trial's values by percent of its budget; 0
    is untrained play, which says nothing about settings.
    """
    own = sorted(filter(None, curves[number]))
    compared = list[int]()
    for rung in _RUNGS:
        compared += [step for step in own if step >= rung and step not in compared][:1]
    newest = own[-1]
    if newest not in compared or own[0] >= _TOO_LATE or newest >= 100:
        return False
    found = [value for curve in curves if (value := value_at(curve, newest)) is not None]
    return sum(value > curves[number][newest] for value in found) >= max(1, len(found) // _KEEP)


def value_at(curve: Mapping[int, float], place: int) -> float | None:
    """Returns a trial's value on a straight line between its trained evaluations; None before and after them."""
    own = sorted(filter(None, curve))
    if not own or not own[0] <= place <= own[-1]:
        return None
    return float(np.interp(place, own, [curve[step] for step in own]))


class Search(sweeps.Grid):
    """The trials of a search, in an Optuna study that its directory's journal keeps; for any thread.

    Trials that did not end, or failed, are running ones in the study, and the next search in the directory resumes
    them.
    """

    def __init__(self, asked: SearchPlan, say: Callable[[str], None]) -> None:
        """Raises UsageError if the directory holds another search, or a journal that cannot be read."""
        import optuna

        super().__init__((), asked.root, asked.num_trials, list(asked.space))
        self._asked, self._lock, self._seen_bytes = asked, threading.Lock(), dict[str, int]()
        self._say, self._has_told = say, False
        self.journal = SearchJournal(asked.root / JOURNAL, say)
        self._study = optuna.create_study(
            storage=optuna.storages.JournalStorage(self.journal),
            study_name="seedzero",
            direction="maximize",
            load_if_exists=True,
        )
        self._check_same()
        for trial in self._study.get_trials():
            run = asked.run(trial.number, trial.params)
            if trial.params.keys() != asked.space.keys() and not trial.state.is_finished():
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
                say(f"{run.name} was interrupted before its settings were saved; another trial takes its place")
            elif trial.state != optuna.trial.TrialState.FAIL:
                self.planned.append(run)
                if trial.state.is_finished():
                    is_early = trial.state == optuna.trial.TrialState.PRUNED
                    self.states[run.name] = (EARLY, "") if is_early else (sweeps.SKIPPED, sweeps.finished(run))

    def _check_same(self) -> None:
        asked = self._asked
        space = {name: f"{kind}" for name, kind in asked.space.items()}
        now = {**asked.flags, "run_dir": "", **asked.settings, **space, "objective": asked.objective}
        before = self._study.user_attrs.get(_ASKED, now)
        if different := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
            raise errors.UsageError(
                f"{self.root} holds a search with another --{run_groups.short(different[0])}: repeat its command to "
                "resume it, or give another --run_dir"
            )
        self._study.set_user_attr(_ASKED, now)

    def todo(self) -> Iterator[sweeps.PlannedRun]:
        """Yields the trials to train, those that did not end first, each when there is room for it."""
        for run in [run for run in self.planned if run.name not in self.states]:
            if not sweeps.finished(run) or self.end(run, "")[0] == sweeps.STOPPED:
                yield run
        while len(self.planned) < self.total:
            yield self._ask()

    def _ask(self) -> sweeps.PlannedRun:
        import optuna

        samplers = optuna.samplers
        kind = samplers.RandomSampler if self._asked.sampler == "random" else samplers.TPESampler
        with self._lock:
            while True:
                # Seeded by the trial's number: every search begins alike, and a resumed one repeats no draw.
                self._study.sampler = kind(seed=len(self._study.get_trials(deepcopy=False)))
                trial = self._study.ask(dict(self._asked.space))
                run = self._asked.run(trial.number, trial.params)
                if not os.path.lexists(run.path):
                    self.planned.append(run)
                    return run
                # Of a trial that the journal has lost: it was drawn with other settings.
                self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
                self._say(f"{run.path} is of a trial that {JOURNAL} does not have; another trial takes its place")

    def is_bad(self, run: sweeps.PlannedRun) -> bool:
        """Tells the study a trial's new values; returns whether it is worse than others, and marks it so for good."""
        import optuna

        with self._lock, contextlib.suppress(FileNotFoundError):
            size = os.stat(run.path / metrics_log.METRICS_FILE).st_size
            if run.name not in self.states and size != self._seen_bytes.get(run.name):
                self._seen_bytes[run.name] = size
                if reason := self._report(run)[0]:
                    self._study.tell(_number(run), state=optuna.trial.TrialState.PRUNED)
                    self.states[run.name] = EARLY, reason
                    return True
        return False

    def _report(self, run: sweeps.PlannedRun) -> tuple[str, series.Series]:
        """Tells the study a trial's new values; returns why it is worse than others, or "", and all values."""
        import optuna

        config = run_dirs.read_saved(run.path).config
        found = series.read(run.path, (self._asked.objective,))
        before = self._study.get_trials(deepcopy=False)[_number(run)]
        trial, last, reason = optuna.trial.Trial(self._study, before._trial_id), before.last_step, ""
        for index, (place, value) in enumerate(zip(found.places, found.values[:, 0].tolist(), strict=True)):
            is_baseline = not index and self._asked.objective.startswith("evaluation_")
            is_baseline = is_baseline and place[0] < config.evaluation.every_updates
            step = 0 if is_baseline else max(1, percent(place, config.run))
            if last is None or step > last:
                trial.report(value, step)
                last = step
                if step and self._asked.halves:
                    reason = reason or self._compare(_number(run), step)
        return reason, found

    def _compare(self, number: int, step: int) -> str:
        """Returns why a trial is worse than others at its newest evaluation, or ""."""
        curves = [trial.intermediate_values for trial in self._study.get_trials(deepcopy=False)]
        if min(filter(None, curves[number])) >= _TOO_LATE and not self._has_told:
            self._has_told = True
            self._say(
                "no trial is stopped early if fewer than three evaluations fit into its budget, as into that of trial "
                f"{number}: evaluate more often, or give a larger budget"
            )
        return f"{curves[number][step]:.4g} at {step} % of its budget" if is_worse(curves, number) else ""

    def end(self, run: sweeps.PlannedRun, failure: str) -> tuple[str, str]:
        """Takes a run's end, as a grid does; the study takes the objective of a finished one."""
        with self._lock:
            if run.name not in self.states and super().end(run, failure)[0] == sweeps.FINISHED:
                _, found = self._report(run)
                if len(found.values):
                    self._study.tell(_number(run), float(found.values[-1, 0]))
                else:
                    known = ", ".join(found.names) or "no number"
                    reason = f"metrics.jsonl has no {self._asked.objective}, but {known}; give another --objective"
                    self.states[run.name] = sweeps.FAILED, reason
            return self.states[run.name]

    def ranking(self) -> list[dict[str, Any]]:
        """Returns the trials with a value, the best first; those that were stopped early follow the finished ones."""
        rows, found = [], self._study.get_trials(deepcopy=False)
        for run in self.planned:
            trial = found[_number(run)]
            value = trial.value if trial.value is not None else trial.intermediate_values.get(trial.last_step or 0)
            state = self.states.get(run.name, (sweeps.STOPPED, ""))[0]
            if value is not None:
                rows.append({"trial": run.name, "value": value, "state": state, "settings": _shown(trial.params)})
        return sorted(rows, key=lambda row: (row["state"] not in (sweeps.FINISHED, sweeps.SKIPPED), -row["value"]))


def _number(run: sweeps.PlannedRun) -> int:
    """Returns the number of a trial in the study."""
    return int(run.name.rpartition("-")[2])


@contextlib.contextmanager
def opened(asked: SearchPlan, say: Callable[[str], None] = printable.say) -> Iterator[Search]:
    """Yields the search in its directory, which no other process may search meanwhile. Raises Occupied.

    say: receives messages for the user.
    """
    with contextlib.ExitStack() as undo:
        run_lock.take(asked.root, undo, name=_LOCK, who="search")
        search = Search(asked, say)
        undo.callback(search.journal.save)
        yield search
