"""The thread of the device loop, and how it ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from seedzero.core import errors
from seedzero.learner import device_loop

_log = logging.getLogger(__name__)


class LoopThread:
    """Runs a device loop to its end.

    Args:
      loop: to run.
      on_end: called on the thread.

    Attributes:
      reason: why the run is over; None: it is not, or the loop failed.
      failure: what the loop raised.
    """

    def __init__(self, loop: device_loop.DeviceLoop, on_end: Callable[[], None]) -> None:
        self.reason: str | None = None
        self.failure: errors.Error | None = None
        self._loop = loop
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name="device-loop")

    def __enter__(self) -> LoopThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.stop("stopped")
        self._thread.join()
        self._loop.close()

    @property
    def is_alive(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Waits for the loop's end."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self.reason = self._loop.run()
        except errors.Error as error:
            self.failure = error
        except Exception as error:  # whatever ends the device loop ends the run, with its reason
            _log.error("the device loop failed", exc_info=error)
            self.failure = errors.TrainingFailure(
                f"the device loop failed ({type(error).__name__}: {error}); run the same command again to resume from "
                f"the last checkpoint"
            )
        self._on_end()
