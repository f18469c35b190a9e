"""Keeps the workers' sessions and the slots of their environments, and assigns both to workers that join.

A new environment goes to the emptiest shard; with several places, a group goes to the least filled one. The server's
thread and the loop's use this, so a lock guards the tables.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np

from seedzero.config import configs, seats_config, sections, worker_options
from seedzero.core import env_ids, errors, opponents, types
from seedzero.device import batches
from seedzero.transport import links, messages

_EVALUATION_SEED = 1


@dataclasses.dataclass(frozen=True)
class Session:
    """A worker's environments from one reset to the next."""

    session_id: str
    worker_id: str
    role: types.Role
    slots: tuple[np.ndarray, ...]  # [num_groups][envs_per_group] int32, global slot of each environment
    is_local: bool = False  # the learner itself started the worker
    started: bool = False  # the worker's spec was accepted
    tasks: tuple[str, ...] = ()  # of its spec
    num_seats: int = 0  # as in `EnvSpec.num_seats`
    knows_bots: bool = False  # the worker plays a league's bots
    max_envs: int = 0  # as in `messages.Hello`

    @property
    def all_slots(self) -> np.ndarray:
        """[num_groups * envs_per_group] int32."""
        return np.concatenate(self.slots)


class Roster:
    """Assigns slots and seeds to sessions.

    layout: the first place's. max_group: most environments of a group, over all shards. key: shared with the workers
    that the learner starts, because any worker may be called local-0. table: [S] number of each training slot's place,
    as in `setups.places_table`; None if there is one place. follows_links: workers elsewhere may get other groups than
    worker.num_groups.
    """

    def __init__(
        self,
        config: configs.Config,
        layout: batches.Layout,
        max_group: int,
        key: str = "",
        table: np.ndarray | None = None,
        *,
        follows_links: bool = False,
    ) -> None:
        self._config = config
        self._key = key
        self._layout = layout
        self._max_group = max_group
        self._table = table
        # Players of leagues and seats are at home in groups of one size, and your own worker may count on its groups.
        is_plain = not (config.run.deterministic or config.league.on or seats_config.of_config(config).asked)
        self._follows_links = follows_links and is_plain and table is None and config.env.id != env_ids.REMOTE
        # By worker: the time of its last new groups, and these, until it has joined with them.
        self._regrouped: dict[str, tuple[float, tuple[int, int] | None]] = {}
        self._is_crowded = False  # a worker found no room
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._free = {
            types.Role.TRAIN: set(range(layout.num_slots) if table is None else np.flatnonzero(table >= 0).tolist()),
            types.Role.EVALUATE: set(range(layout.num_slots, layout.num_slots + layout.num_evaluate)),
        }
        self.has_evaluation = layout.num_evaluate > 0
        self.awaits_worker = config.env.id == env_ids.REMOTE
        """Whether a remote environment's first worker has yet to come in this process."""
        self.spec: types.EnvSpec | None = None
        """The environments' spec once it is known; if rows are seats, groups then have whole games."""
        self.num_assigned = 0
        """Number of assignments so far, across resumes, which is part of the environments' seeds; 0 in deterministic
        mode."""
        self.epoch = 0
        """Deterministic mode: number of the checkpoint at which environments were last reset."""
        self.evaluation_index = 0
        """Number of the next evaluation, which is part of its environments' seeds."""

    def assign(self, hello: messages.Hello) -> types.Assignment:
        """Returns a joining worker's assignment, and reserves its slots.

        Raises:
          SlotsExhausted: there is no room for another environment of a role that the worker takes.
          SpecMismatch: the worker cannot make this run's environment.
        """
        env = self._config.env
        remote = env.id == env_ids.REMOTE
        kind = env.id.split(":")[0]
        if not remote and kind not in hello.environments:
            raise errors.SpecMismatch(
                f"worker {hello.worker_id} offers {', '.join(hello.environments) or 'no environments'}; this "
                f"learner needs {kind}: install the package for it, or start the learner with --env=remote"
            )
        if remote and env_ids.YOURS not in hello.environments:
            raise errors.SpecMismatch(
                f"this learner runs --env=remote and worker {hello.worker_id} brings no environment; "
                "start your own worker, as examples/remote_worker.py, or the learner with another --env"
            )
        with self._lock:
            role = self._choose_role(hello)
            slots = self._reserve(role, hello)
            if not self._config.run.deterministic:  # there, a checkpoint must not depend on how often workers joined
                self.num_assigned += 1
            session = Session(
                uuid.uuid4().hex,
                hello.worker_id,
                role,
                slots,
                hello.key == self._key,
                knows_bots=hello.knows_bots and role is types.Role.TRAIN,
                max_envs=hello.max_envs,
            )
            self._sessions[session.session_id] = session
            seeds = tuple(self._seed(role, int(slot)) for slot in session.all_slots)
            indices = tuple(_place(self._config.cluster, self._layout, int(slot)) for slot in session.all_slots)
        settings = dataclasses.asdict(env if role is types.Role.TRAIN else env.of_evaluation)
        del settings["id"]
        if role is types.Role.TRAIN or env.opponents == opponents.RANDOM:
            del settings["opponents"]  # which earlier versions of workers do not know
        if not env.info_keys:
            del settings["info_keys"]  # likewise
        return types.Assignment(
            session_id=session.session_id,
            role=role,
            env=env_ids.YOURS if remote else env.id,
            env_settings=json.dumps(settings),
            num_groups=len(slots),
            envs_per_group=len(slots[0]),
            seeds=seeds,
            indices=indices,
            bots=self._config.league.bots if session.knows_bots else (),
        )

    def _choose_role(self, hello: messages.Hello) -> types.Role:
        """Returns training first; a second worker of a remote environment evaluates if it is willing."""
        num_training = sum(session.role is types.Role.TRAIN for session in self._sessions.values())
        taken = any(session.role is types.Role.EVALUATE for session in self._sessions.values())
        wants_evaluation = types.Role.EVALUATE in hello.roles and bool(self._free[types.Role.EVALUATE]) and not taken
        if types.Role.TRAIN not in hello.roles:
            if not wants_evaluation:
                raise errors.SlotsExhausted(
                    f"worker {hello.worker_id} only evaluates, and another worker does already (or evaluation is off: "
                    f"{self._layout.num_evaluate} environments evaluate); end the other one, or start it to train"
                )
            return types.Role.EVALUATE
        remote_evaluator = self._config.env.id == env_ids.REMOTE and wants_evaluation and num_training > 0
        return types.Role.EVALUATE if remote_evaluator else types.Role.TRAIN

    def _reserve(self, role: types.Role, hello: messages.Hello) -> tuple[np.ndarray, ...]:
        free = self._free[role]
        worker = self._config.worker
        if role is types.Role.EVALUATE:
            size = min(len(free), hello.max_envs, self._max_group)
            num_groups = 1
        else:
            num_groups = min(worker.num_groups, hello.max_envs)
            size = min(worker.envs_per_group, hello.max_envs // num_groups, self._max_group)
            at, planned = self._regrouped.get(hello.worker_id, (0.0, None))
            if planned is not None:
                self._regrouped[hello.worker_id] = at, None
                if math.prod(planned) <= min(len(free), hello.max_envs):  # other workers may have come meanwhile
                    num_groups, size = planned
        num_seats = self.spec.num_seats(role) if self.spec else 0
        if 0 < size < num_seats:
            raise errors.SpecMismatch(
                f"worker {hello.worker_id}: a game has {num_seats} seats, each an environment of its own, and "
                f"--num_envs={hello.max_envs} leaves {size} for each of {num_groups} group(s); start the worker with "
                f"--num_envs={num_groups * num_seats} or more"
            )
        size -= size % max(1, num_seats)
        number, num_players = num_groups * size, self._config.league.most_players
        by_seat = seats_config.of_config(self._config).asked
        if (num_players > 1 or by_seat) and role is types.Role.TRAIN and size != worker.envs_per_group:
            who = f"the policies of {by_seat}" if by_seat else f"{num_players} players"
            raise errors.SlotsExhausted(
                f"worker {hello.worker_id} takes groups of {size} environments, but {who} learn, each at home in "
                f"groups of worker.envs_per_group={worker.envs_per_group}; let it take "
                f"{num_groups * worker.envs_per_group} environments"
            )
        if number == 0 or number > len(free):
            self._is_crowded |= role is types.Role.TRAIN
            raise errors.SlotsExhausted(
                f"worker {hello.worker_id} needs {number} {role.value} slots and {len(free)} are free; start a new "
                f"run with --worker.num_remote=N or more --replay.num_slots (now {self._layout.num_slots}), or lower "
                "--worker.envs_per_group"
            )
        if self._config.run.deterministic and role is types.Role.TRAIN:
            chosen = self._fixed_block(hello, number)
        elif self._table is not None and role is types.Role.TRAIN:
            chosen = _least_filled_first(self._table, free, num_groups, size)
        else:
            chosen = _emptiest_first(self._layout, free, number)
        groups = np.array(chosen, np.int32).reshape(num_groups, size)
        if self._table is None or role is types.Role.EVALUATE:  # otherwise groups are whole and spread evenly
            _check_shards(self._layout, self._max_group, hello, groups)
        free.difference_update(chosen)
        self._is_crowded &= role is not types.Role.TRAIN
        return tuple(groups)

    def _fixed_block(self, hello: messages.Hello, number: int) -> list[int]:
        """Gives local worker i block i, in whatever order the workers come."""
        name, _, index = hello.worker_id.rpartition("-")
        if hello.key != self._key or name != "local":
            raise errors.SlotsExhausted(
                f"worker {hello.worker_id} is not one of the {self._config.worker.num} local workers, and a "
                f"deterministic run takes no others; start the learner without --deterministic"
            )
        block = list(range(int(index) * number, (int(index) + 1) * number))
        if not self._free[types.Role.TRAIN].issuperset(block):
            raise errors.SlotsExhausted(f"the slots of worker {hello.worker_id} are still taken by its last session")
        return block

    def _seed(self, role: types.Role, slot: int) -> int:
        run = self._config.run
        if role is types.Role.EVALUATE:
            key = [run.seed, _EVALUATION_SEED, slot, self.evaluation_index]
        else:
            key = [run.seed, 0, slot, self.epoch if run.deterministic else self.num_assigned]
        return int(np.random.SeedSequence(key).generate_state(1)[0]) >> 1

    def regroup(self, session_id: str, link: links.WorkerLink, now: float) -> tuple[int, int] | None:
        """Returns number and size of the groups that a session's worker shall have instead, or None to leave it.

        Its next Hello gets them. now: in seconds. At most once in `links.PAUSE_SECONDS`, but a worker that has more
        environments than the settings say makes room for one that found none.
        """
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None or not self._follows_links or session.is_local or session.role is not types.Role.TRAIN:
                return None
            worker, present = self._config.worker, len(session.all_slots)
            usual = worker.num_groups * worker.envs_per_group
            recent = {name: pair for name, pair in self._regrouped.items() if now - pair[0] < links.PAUSE_SECONDS}
            planned = None
            if self._is_crowded and present > usual:
                self._is_crowded, planned = False, (worker.num_groups, worker.envs_per_group)
            elif session.worker_id not in recent and not session.num_seats:
                num_here = sum(one.role is types.Role.TRAIN for one in self._sessions.values())
                num_awaited = max(0, worker.num + worker.num_remote - num_here)
                room = max(0, len(self._free[types.Role.TRAIN]) - num_awaited * usual)
                # Without a number from its user, the worker's machine may have no memory for more.
                most = session.max_envs if session.max_envs < worker_options.UNLIMITED_ENVS else present
                planned = links.plan(link, min(most, present + room))
            if planned is not None:
                self._regrouped = {**recent, session.worker_id: (now, planned)}
            return planned

    def begin(self, session_id: str, tasks: tuple[str, ...] = (), num_seats: int = 0) -> Session:
        """Marks a session as started and returns it. tasks, num_seats: those of its environments."""
        with self._lock:
            joined = self._sessions[session_id]
            session = dataclasses.replace(joined, started=True, tasks=tasks, num_seats=num_seats)
            self._sessions[session_id] = session
            self.awaits_worker = False
            return session

    def get(self, session_id: str) -> Session | None:
        with self._lock:
            return self._sessions.get(session_id)

    def remove(self, session_id: str) -> Session | None:
        """Ends a session, frees its slots and returns it; None if it has ended already."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
            if session is not None:
                self._free[session.role].update(int(slot) for slot in session.all_slots)
            return session

    def to_json(self) -> dict[str, int]:
        """Returns the part of a checkpoint's counters."""
        return {"evaluation_index": self.evaluation_index, "epoch": self.epoch, "num_assigned": self.num_assigned}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restores a checkpoint's counters."""
        self.evaluation_index, self.epoch = saved["evaluation_index"], saved["epoch"]
        self.num_assigned = saved["num_assigned"]

    def sizes(self) -> list[int]:
        """Returns the number of environments of each training worker."""
        return [len(session.all_slots) for session in self.started(types.Role.TRAIN)]

    def num_free(self) -> int:
        """Returns how many more training environments fit."""
        with self._lock:
            return len(self._free[types.Role.TRAIN])

    def started(self, role: types.Role) -> list[Session]:
        """Returns the living sessions of a role with accepted environments."""
        with self._lock:
            return [session for session in self._sessions.values() if session.role is role and session.started]


def knows_bots(roster: Roster, slot: int) -> bool:
    """Returns whether the worker of a training slot plays a league's bots."""
    return any(one.knows_bots and slot in one.all_slots for one in roster.started(types.Role.TRAIN))


def _place(cluster: sections.ClusterConfig, layout: batches.Layout, slot: int) -> int:
    """Returns an environment's number in the run.

    Hosts take turns, because each may have any number of environments.
    """
    if slot >= layout.num_slots:
        return slot - layout.num_slots  # in evaluations, only host 0 counts
    return slot * cluster.num_hosts + max(0, cluster.index)


def _check_shards(layout: batches.Layout, max_group: int, hello: messages.Hello, groups: np.ndarray) -> None:
    """Checks that a message fits into one batch on every shard; free slots may be uneven after others left."""
    most = max(int(np.bincount(layout.place(group)[0]).max()) for group in groups)
    max_rows = max_group // layout.num_shards
    if most > max_rows:
        raise errors.SlotsExhausted(
            f"worker {hello.worker_id} would have {most} environments of a group on one device and a batch takes "
            f"{max_rows}; wait until others leave, or raise --batcher.max_batch"
        )


def _emptiest_first(layout: batches.Layout, free: set[int], number: int) -> list[int]:
    """Returns `number` free slots, each time the lowest one of the shard with the most free slots."""
    slots = np.array(sorted(free, reverse=True), np.int32)
    by_shard: list[list[int]] = [[] for _ in range(layout.num_shards)]
    for slot, shard in zip(slots.tolist(), layout.place(slots)[0].tolist(), strict=True):
        by_shard[shard].append(slot)
    return [max(by_shard, key=len).pop() for _ in range(number)]


def _least_filled_first(table: np.ndarray, free: set[int], num_groups: int, size: int) -> list[int]:
    """Returns the slots of free groups, each time the lowest of the place with the smallest share taken.

    table: as in `Roster`. size: that of all groups.
    """
    places = table[: len(table) // size * size : size]  # of each group
    total = np.bincount(places[places >= 0])
    left = [group for group in range(len(places)) if group * size in free]
    taken = total - np.bincount(places[left], minlength=len(total))
    chosen: list[int] = []
    for _ in range(num_groups):
        group = min(left, key=lambda group: taken[places[group]] / total[places[group]])
        left.remove(group)
        taken[places[group]] += 1
        chosen += range(group * size, (group + 1) * size)
    return chosen
