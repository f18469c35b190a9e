"""Diagnoses a run while it trains: prints each symptom once on the console, and never ends training."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections.abc import Callable, Mapping

from seedzero.config import configs
from seedzero.core import errors, types
from seedzero.monitoring import diagnosis, learning_curves, metrics_log, symptoms


class Watch:
    """Looks for symptoms (`diagnosis.RULES`) in each new row of a run, and reports each once; thread-safe."""

    def __init__(self, config: configs.Config, path: pathlib.Path, tell: Callable[[str], None]) -> None:
        """path: the run directory. A resumed run's earlier rows are read before its first new row."""
        self._config, self._path, self._tell = config, path, tell
        self._curve: learning_curves.LearningCurve | None = None
        self._told: set[str] = set()
        self._is_off = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Reads the rows from before a resume; called before the first new row is written."""
        with self._lock:
            if self._curve is None:
                self._curve = learning_curves.LearningCurve()
                with contextlib.suppress(errors.ResumeError):  # the log reports its failures itself
                    self._curve, _ = learning_curves.read(self._path)

    def see(self, row: Mapping[str, metrics_log.Value], spec: types.EnvSpec | None) -> None:
        """Adds a row and reports new symptoms. An unexpected row is reported, too, and ends the diagnosis."""
        with self._lock:
            if self._is_off:
                return
            try:
                new = self._find_new(row, spec)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                self._is_off = True
                new = [
                    f"a row of metrics cannot be checked ({type(error).__name__}: {error}), so symptoms are no longer "
                    f"looked for; training continues, and `seedzero diagnose {self._path}` reads the other rows"
                ]
        for text in new:
            self._tell(text)

    def finds(self, find: Callable[[symptoms.RunCase], str], spec: types.EnvSpec | None) -> str:
        """Returns what a function finds in the rows so far."""
        with self._lock:
            curve = self._curve or learning_curves.LearningCurve()
        return find(symptoms.RunCase(self._config, spec, curve))

    def _find_new(self, row: Mapping[str, metrics_log.Value], spec: types.EnvSpec | None) -> list[str]:
        self._curve = (self._curve or learning_curves.LearningCurve()).after(row)
        found = dict(diagnosis.warnings(symptoms.RunCase(self._config, spec, self._curve)))
        new = [name for name in found if name not in self._told]
        self._told.update(new)
        return [found[name] for name in new]
