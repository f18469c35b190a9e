"""A learner's parts without processes, and a log of their work."""

from __future__ import annotations

import pathlib
import types as python_types
from collections.abc import Callable
from typing import Any, cast

from seedzero.config import configs, sections
from seedzero.core import types
from seedzero.device import batches
from seedzero.envs import registry
from seedzero.learner import callbacks, endings, learner_parts, stages
from seedzero.learner.loop import rosters
from seedzero.monitoring import progress_lines
from seedzero.monitoring.metrics import counts
from seedzero.transport import messages

_Named = python_types.SimpleNamespace

CATCH = registry.spec(sections.EnvConfig(id="catch"))


Make = Callable[..., "PartsWorld"]


class Ending(endings.Ending):
    """Time passes as long as the world says; its news come while one waits."""

    def __init__(self, world: PartsWorld) -> None:
        super().__init__()
        self._world = world

    def wait(self, seconds: float) -> None:
        self._world.calls.append("wait")
        self._world.now += seconds
        self._world.news()


class PartsWorld:
    """The parts of a learner of Catch, of which stage, ending, reception and progress are real."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        spec: types.EnvSpec | None = None,
        resumed: bool = False,
        has_bucket: bool = False,
        **settings: Any,
    ) -> None:
        self.calls: list[Any] = []
        self.stops: list[float] = []
        self.said: list[str] = []
        self.rows: list[Any] = []
        self.now = 0.0
        self.seen = counts.Snapshot(num_updates=25, is_compiled=True)
        self.news: Any = lambda: None
        self.on_status: Any = lambda: None
        self.address: Any = lambda: "unix:/nowhere"
        self.progress = progress_lines.RunProgress(lambda: self.now)
        self.ending = Ending(self)
        given = {"env.id": "catch", "worker.num": 1, "worker.num_groups": 2, "worker.envs_per_group": 2}
        changes = {name.replace("__", "."): value for name, value in settings.items()}
        config = configs.override(configs.Config(), {**given, **changes})
        roster = rosters.Roster(config, batches.Layout(1, 8, 2), 8)
        view: Any = _Named(
            screen=_Named(message=lambda *texts: self.said.append(" ".join(texts)), abandon=self.said.append),
            progress=self.progress,
            write_row=lambda row, gathered=True: self.rows.append(row),
            write_status=lambda alive, finished=None: self._status(),
            observe=lambda now, last=False: None,
        )
        self.loop: Any = _Named(
            close=lambda: self.calls.append("close"),
            look=lambda: self.seen,
            pulse=lambda: 7,
            stop=lambda reason: self.calls.append(reason),
            end=lambda reason: self.calls.append(reason),
            state=lambda: "state",
        )
        directory: Any = _Named(
            path=path,
            config=config,
            resumed=resumed,
            check_ours=lambda: self.calls.append("ours"),
            write_learner=lambda address, started, local: self.calls.append(address),
        )
        self.checkpointer = _Named(
            busy=False,
            wait=lambda: self.calls.append("wait for saves"),
            hurry=lambda: None,
            check=lambda: None,
        )
        self.saves: Any = _Named(
            durable_update=None,
            checkpointer=self.checkpointer,
            config=config,
            directory=directory,
            report=self.said.append,
            save=lambda state: self.calls.append("save"),
            save_state=lambda state: self.calls.append("save state"),
            close=lambda: self.calls.append("saves end"),
            abandon=lambda: self.calls.append("abandon"),
            check=lambda: None,
        )
        workers: Any = _Named(
            finish=lambda: None, stop=self.stops.append, kill=lambda: self.calls.append("kill"), restart=None
        )
        server: Any = _Named(
            start=lambda: self.address(), stop=lambda finished, reason: None, reply=None, restart=None
        )
        mirrored: Any = _Named(
            begin=lambda on_lost: self.calls.append("bucket begins"),
            finish=lambda: self.calls.append("bucket ends"),
            uploads=_Named(report_progress=lambda: None),
            url="url",
        )
        self.reception = learner_parts.Reception(
            config, roster, view, self.said.append, lambda: None, lambda name: None, lambda spec: None
        )
        if spec is not None:
            self.reception.show(spec)
        self.stage = stages.RunStage(self.built, self.progress.follow)
        self.parts = learner_parts.LearnerParts(
            directory=directory,
            mirrored=mirrored if has_bucket else None,
            local="unix:/nowhere",
            expected=None,
            ending=self.ending,
            saves=self.saves,
            view=view,
            reception=self.reception,
            workers=workers,
            server=server,
            films=cast(Any, _Named(stop=lambda: None)),
            stage=self.stage,
            callbacks=callbacks.Callbacks({}, self.ending),
        )

    def _status(self) -> None:
        self.calls.append("status")
        self.on_status()

    def built(self, spec: types.EnvSpec) -> Any:
        """The device loop, as the one that builds it returns it."""
        self.calls.append("build")
        return self.loop

    def build(self) -> None:
        """There is a loop."""
        self.stage.build(CATCH)
        self.calls.clear()

    def joins(self, role: types.Role = types.Role.TRAIN) -> None:
        """A worker's environments are there."""
        hello = messages.Hello("a", "", (role,), ("catch",), 4)
        self.reception.begin(self.reception.assign(hello).session_id, CATCH)
        self.said.clear()
