"""Keeps track of the hosts that join a run, and of their common checkpoint, without threads, clocks or files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from seedzero.core import errors
from seedzero.learner.cluster import messages, reach


class Made(NamedTuple):
    """A checkpoint of host 0."""

    num_hosts: int  # hosts of the run that made it
    state_sha256: str = ""  # digest of its parameters; "" for a single host


class Roll:
    """The hosts that have joined so far; `own` is host 0's hello."""

    def __init__(self, own: messages.HostHello) -> None:
        self._own = own
        self.joined: dict[int, messages.HostHello] = {own.index: own}

    @property
    def missing(self) -> list[int]:
        """The hosts that have not joined yet."""
        return [index for index in range(self._own.num) if index not in self.joined]

    def leave(self, index: int) -> None:
        """Removes a host that has ended before all have joined."""
        del self.joined[index]

    def admit(self, hello: messages.HostHello) -> None:
        """Adds a host. Raises UsageError if it does not belong to this run, Occupied if it has joined already."""
        own, name = self._own, f"host {hello.index}"
        if hello.version != own.version or hello.program != own.program:
            raise errors.UsageError(
                f"{name} runs {hello.program} (messages {hello.version}), and host 0 {own.program} (messages "
                f"{own.version}); install the same versions on all hosts, with the same JAX_ENABLE_X64"
            )
        if hello.num != own.num:
            raise errors.UsageError(
                f"{name} was started with --cluster.num_hosts={hello.num}, and host 0 with "
                f"--cluster.num_hosts={own.num}; give all "
                "the same"
            )
        if hello.index in self.joined:
            raise errors.Occupied(
                f"--cluster.index={hello.index} has joined already; start each host with an index of its own, "
                f"{self._range()} beside host 0"
            )
        if not 0 < hello.index < own.num:
            raise errors.UsageError(
                f"--cluster.index={hello.index}: beside host 0 this run of {own.num} has {self._range()}"
            )
        if hello.settings != own.settings:
            raise errors.UsageError(
                f"{name} has other settings than host 0; give all hosts the same command but for --cluster.index, "
                "--run_dir, --listen and the settings of files and local workers"
            )
        if reach.are_apart(hello.reached_at, own.reached_at):
            raise errors.UsageError(
                f"{name} is reached at {hello.reached_at}, and host 0 at {own.reached_at}: between these no gradients "
                "can be sent; give --cluster.coordinator an address of host 0 in the network of all hosts, or "
                "each host its --cluster.interface there"
            )
        self.joined[hello.index] = hello

    def warnings(self) -> list[str]:
        """Returns a sentence for each host whose programs may not compute the same bits as host 0's."""
        return [
            f"host {index} has XLA_FLAGS={hello.xla_flags or '(none)'}, and host 0 {self._own.xla_flags or '(none)'}: "
            "flags that change the arithmetic let the hosts' parameters drift apart; give all hosts the same"
            for index, hello in sorted(self.joined.items())
            if hello.xla_flags != self._own.xla_flags
        ]

    def _range(self) -> str:
        last = self._own.num - 1
        return "--cluster.index=1" if last == 1 else f"--cluster.index=1 to {last}"


def common_step(own: Mapping[int, Made], others: Mapping[int, Mapping[int, str] | None]) -> int:
    """Returns the update of the newest checkpoint that all the hosts that made it have, or -1 if there is none.

    A checkpoint with other parameters is a different one, from an abandoned past or another run. If there is none, and
    more than the run's first checkpoint was made, host 0's newest is taken. Hosts without it begin with an empty
    replay, because their disks are lost although the parameters are not.

    Args:
      own: host 0's checkpoints by their updates.
      others: those of each other host, as in `HostHello.steps`.

    Raises UsageError if only other hosts have checkpoints.
    """
    if not own:
        if having := [index for index, steps in others.items() if steps]:
            raise errors.UsageError(
                f"host {min(having)} has checkpoints and host 0 has none; start every host with the run directory "
                "that it had, or a new run in new ones"
            )
        return -1
    for step in sorted(own, reverse=True):
        made = own[step]
        needed = [steps for index, steps in others.items() if index < made.num_hosts and steps is not None]
        if all(steps.get(step) == made.state_sha256 for steps in needed):
            return step
    # these hosts ended while it was written
    is_first = len(own) == 1 and any(steps == {} for steps in others.values())
    return -1 if is_first else max(own)
