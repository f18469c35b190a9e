"""Data shared by layers: specs and step batches. numpy only.

Shape letters: E environments of one group, A actions, D numbers of a continuous action.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seedzero.core import errors, infos, json_object, opponents

OBSERVATION = "observation"
"""Name of the array in environments that show a single one; agents see observations as named arrays."""
TARGETS_CLIPPED = "targets_clipped"
"""Name of an update's metric: the share of targets that exceed the largest number the network can show."""
GREEDY, SAMPLE, EXPLORE = np.int8(0), np.int8(1), np.int8(2)
"""How to act: take the policy's best action; draw from the policy; add the noise of training."""
MODES: Mapping[str, np.int8] = {"greedy": GREEDY, "sample": SAMPLE, "explore": EXPLORE}
SUPPORTED_OBSERVATION_DTYPES = ("uint8", "int32", "float32")

_SEQUENCES = ("observation_shape", "action_low", "action_high", "tasks", "seats")

MAX_ACTION_NAMES = 1_000

SMALLEST_IMAGE = 32
"""Grids whose shorter side has at least this many cells are treated as images."""


class Role(enum.Enum):
    """What a worker's environments are for."""

    TRAIN = "train"
    EVALUATE = "evaluate"


def _dtype_name(dtype: Any) -> str:
    """Returns the name of a dtype, which users may give as numpy accepts it: np.dtype("float32") equals "float32"."""
    return dtype if isinstance(dtype, str) else np.dtype(dtype).name


def _whole(title: str, value: Any) -> int:
    """Returns a whole number, numpy's too, as a Python int; raises SpecMismatch for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        raise errors.SpecMismatch(f"{title} is {value!r}; expected a whole number") from None


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """A named array of an observation.

    Attributes:
      name: the array's name; parts of nested spaces are joined by "/", as in "robot/camera".
      shape: of the newest frame of one environment, e.g. (96, 96, 1) or (4,).
      dtype: one of SUPPORTED_OBSERVATION_DTYPES.
      low: smallest value of any element (-inf if unbounded).
      high: largest value of any element (inf if unbounded).
      text: whether it is UTF-8 in [N] uint8, padded with zeros (`packing.encode_texts`); most networks ignore it.
      acting_only: only acting sees it; it is never stored, so no update reads it.
      training_only: only updates see it; it is stored, but neither acting nor a saved agent reads it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float = -np.inf
    high: float = np.inf
    text: bool = False
    acting_only: bool = False
    training_only: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))
        sizes = tuple(_whole(f"{self._title} shape {self.shape}: a size", size) for size in self.shape)
        object.__setattr__(self, "shape", sizes)
        if self.text and (self.dtype != "uint8" or len(self.shape) != 1):
            raise errors.SpecMismatch(
                f"{self._title} text has the shape {self.shape} and dtype {self.dtype}; expected one axis of uint8"
            )
        if self.dtype not in SUPPORTED_OBSERVATION_DTYPES:
            raise errors.SpecMismatch(
                f"{self._title} dtype {self.dtype!r} is not supported; "
                f"send one of {', '.join(SUPPORTED_OBSERVATION_DTYPES)}"
            )
        if not all(size > 0 for size in self.shape):
            raise errors.SpecMismatch(f"{self._title} shape {self.shape} has an empty axis")

    @property
    def _title(self) -> str:
        return "observation" if self.name == OBSERVATION else f"observation {self.name!r}:"

    @property
    def num_bytes(self) -> int:
        """Number of bytes of a frame of one environment."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def is_grid(self) -> bool:
        """Whether it has the shape of an image: [height, width] or [height, width, channels]."""
        return len(self.shape) in (2, 3)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as a page shows them, with None for an infinite bound."""
        low, high = (bound if math.isfinite(bound) else None for bound in (self.low, self.high))
        return {**dataclasses.asdict(self), "low": low, "high": high}


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The interface of one environment, shared by all environments of a learner.

    Attributes:
      observation_shape, observation_dtype, observation_low, observation_high: as in ArraySpec.
      num_actions: discrete actions are 0 .. num_actions - 1; 0 for continuous actions.
      num_players: 1, or 2 for zero-sum games in turn.
      has_action_mask: whether every step carries a mask of legal actions.
      frames_per_step: number of emulator frames in one step (Atari's frame skip), for reports.
      action_low: [D] smallest values of a continuous action's numbers, finite float32; empty for discrete actions.
      action_high: [D] largest ones.
      num_states: how many states there are, if observations are one-hot vectors of a state's number; otherwise 0.
      packed: the named arrays, if observations have several. An observation is then their bytes, [N] uint8, one array
        after the other, see core/packing.py. Empty with one array.
      tasks: names of the tasks that a run's environments share, such as levels; empty if there is one.
      spaces: Gymnasium's spaces of observations and actions, as text (`envs/space_text.py`): the values of `reset` and
        `step`, which policies take and return. "" if the other fields describe them.
      seats: names of the seats of a game with hidden information or simultaneous moves. A row of a training group is
        then a seat: each game has as many rows as seats, one after the other. A row's chair, its index here during an
        episode, is its task. An evaluating environment plays the other seats itself.
      moves_again: whether one of two players may move several times in a row. Then the last number of each observation
        is the mover, 0 or 1. False if they alternate.
      has_chance: whether the game's rules have chance; false if not, or if that is unknown.
      fixed_seats: whether seats are the agents of an environment. A row then keeps its chair in all episodes, row 0 of
        a game the first one, and an evaluating environment shows all of its seats, too.
      action_names: names of discrete actions, each another one, for people to read; empty if there are none. Specs
        that differ in them are equal.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: str
    num_actions: int
    observation_low: float = -np.inf
    observation_high: float = np.inf
    num_players: int = 1
    has_action_mask: bool = False
    frames_per_step: int = 1
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    num_states: int = 0
    packed: tuple[ArraySpec, ...] = ()
    tasks: tuple[str, ...] = ()
    spaces: str = ""
    seats: tuple[str, ...] = ()
    moves_again: bool = False
    has_chance: bool = False
    fixed_seats: bool = False
    action_names: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "observation_dtype", _dtype_name(self.observation_dtype))
        _check_spaces(self.spaces)
        for name in ("num_actions", "num_players", "frames_per_step", "num_states"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        sizes = tuple(_whole(f"observation shape {self.observation_shape}: a size", n) for n in self.observation_shape)
        object.__setattr__(self, "observation_shape", sizes)
        if not all(isinstance(task, str) for task in self.tasks):
            raise errors.SpecMismatch(f"the names of the tasks are {list(self.tasks)}; expected strings")
        if len(set(self.tasks)) < len(self.tasks):
            raise errors.SpecMismatch(f"the names of the tasks are {list(self.tasks)}; expected each once")
        if self.seats and (self.num_players != 1 or len(self.seats) < 2 or not opponents.fit(self.tasks, self.seats)):
            raise errors.SpecMismatch(
                f"seats are {list(self.seats)}, tasks {list(self.tasks)} and num_players {self.num_players}; expected "
                "two seats or more, the same names as tasks, and 1: a row is a seat"
            )
        if self.moves_again and (self.num_players != 2 or len([a for a in self.arrays if not a.acting_only]) != 1):
            raise errors.SpecMismatch(
                f"moves_again is true, num_players {self.num_players}, and observations have {len(self.arrays)} "
                "arrays; expected 2 players, and one array (but for acting_only) whose last number is the mover"
            )
        if len(self.action_names) not in (0, self.num_actions) or len(set(self.action_names)) < len(self.action_names):
            raise errors.SpecMismatch(
                f"action_names are {list(self.action_names)}; expected none, or {self.num_actions} different names"
            )
        if self.fixed_seats and not self.seats:
            raise errors.SpecMismatch("fixed_seats is True without seats; expected their names")
        names, num_bytes = [array.name for array in self.arrays], sum(array.num_bytes for array in self.arrays)
        if len(set(names)) < len(names):
            raise errors.SpecMismatch(f"the names of an observation's arrays are {names}; expected each once")
        if self.packed and (self.observation_shape, self.observation_dtype) != ((num_bytes,), "uint8"):
            raise errors.SpecMismatch(
                f"observations have the shape {self.observation_shape} and dtype {self.observation_dtype}; expected "
                f"the {num_bytes} bytes of {', '.join(names)}"
            )
        flags = [array.acting_only + 2 * array.training_only for array in self.packed]
        if flags != sorted(flags) or len({*flags, 0}) > 2 or (flags and all(flags)):
            raise errors.SpecMismatch(
                f"the arrays {', '.join(names)} are for all (0), acting (1), training (2) or nothing (3): {flags}; "
                "expected those of 1, or those of 2, after the others"
            )
        if self.num_states and self.arrays[0].shape != (self.num_states,):
            raise errors.SpecMismatch(
                f"num_states is {self.num_states}, but observations have the shape {self.observation_shape}; expected "
                "a one-hot vector"
            )
        if self.is_continuous or self.action_high:
            self._check_continuous()
        elif self.num_actions < 1:
            raise errors.SpecMismatch(f"num_actions is {self.num_actions}; at least 1 is needed")

    def _check_continuous(self) -> None:
        low, high = self.action_low, self.action_high
        has_range = len(low) == len(high) and all(
            np.isfinite(np.float32(b) - np.float32(a)) and np.float32(a) < np.float32(b)
            for a, b in zip(low, high, strict=True)
        )
        if not has_range:
            raise errors.SpecMismatch(
                f"action_low is {list(low)} and action_high {list(high)}; expected equally many finite numbers, each "
                "of the first below its partner: scale or clip unbounded actions in the environment"
            )
        if self.num_actions or self.has_action_mask:
            raise errors.SpecMismatch(
                f"actions are {len(low)} continuous numbers, but num_actions is {self.num_actions} and "
                f"has_action_mask {self.has_action_mask}; expected 0 and False"
            )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> EnvSpec:
        """Returns the spec in a JSON object, where infinities may be text.

        Raises ValueError, TypeError or KeyError.
        """
        bounds = {name: float(values[name]) for name in ("observation_low", "observation_high")}
        tuples = {name: tuple(values[name]) for name in _SEQUENCES}
        tuples["action_names"] = tuple(values.get("action_names", ()))  # older files have none
        packed = tuple(
            ArraySpec(**{**array, "shape": tuple(array["shape"]), **{k: float(array[k]) for k in ("low", "high")}})
            for array in values["packed"]
        )
        return cls(**{**values, **tuples, **bounds, "packed": packed})

    @classmethod
    def of_arrays(cls, arrays: Sequence[ArraySpec], **others: Any) -> EnvSpec:
        """Returns the spec of observations made of named arrays.

        others: the fields that are not about observations.
        """
        num_bytes = sum(array.num_bytes for array in arrays)
        return cls((num_bytes,), "uint8", observation_low=0, observation_high=255, packed=tuple(arrays), **others)

    @property
    def arrays(self) -> tuple[ArraySpec, ...]:
        """The arrays of an observation in the agents' form; there is at least one."""
        alone = (self.observation_shape, self.observation_dtype, self.observation_low, self.observation_high)
        return self.packed or (ArraySpec(OBSERVATION, *alone),)

    def movers(self, observation: Any) -> Any:
        """Returns the players to move [B] of observations [B, ...] in numpy or JAX, or None if players alternate."""
        if self.packed and self.moves_again:
            observation = np.ascontiguousarray(observation[:, : self.packed[0].num_bytes]).view(self.packed[0].dtype)
        return observation.reshape(len(observation), -1)[:, -1] if self.moves_again else None

    @property
    def kept(self) -> EnvSpec:
        """The spec of stored observations: the beginning of acting's bytes, without arrays that only acting sees."""
        arrays = tuple(array for array in self.packed if not array.acting_only)
        if len(arrays) == len(self.packed):
            return self
        num_bytes = sum(array.num_bytes for array in arrays)
        return dataclasses.replace(self, observation_shape=(num_bytes,), packed=arrays)

    @property
    def num_tasks(self) -> int:
        """Number of tasks, at least 1."""
        return max(1, len(self.tasks))

    @property
    def default_mode(self) -> np.int8:
        """How a finished agent acts by default; one that never mixes its actions loses games with seats."""
        return SAMPLE if self.seats and not self.fixed_seats else GREEDY

    def num_seats(self, role: Role) -> int:
        """Returns how many rows make up a game if the rows of a role are seats, else 0."""
        return len(self.seats) if self.fixed_seats or role is Role.TRAIN else 0

    @property
    def action_bounds(self) -> np.ndarray:
        """[2, D] float32: the lowest and the highest continuous action; both are allowed."""
        return np.array([self.action_low, self.action_high], np.float32)

    @property
    def is_continuous(self) -> bool:
        """Whether an action is continuous, a vector [D] of float32, instead of one of num_actions numbers."""
        return bool(self.action_low)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of an environment's action: () or (D,)."""
        return (len(self.action_low),) if self.is_continuous else ()

    @property
    def observation_bytes(self) -> int:
        """Bytes of one observation as it travels."""
        return math.prod(self.observation_shape) * np.dtype(self.observation_dtype).itemsize


def _check_spaces(text: str) -> None:
    """Raises SpecMismatch for a text that does not describe spaces."""
    try:
        fits = isinstance(text, str) and (not text or {"observation", "action"} <= json_object.parse(text).keys())
    except ValueError:
        fits = False
    if not fits:
        raise errors.SpecMismatch(
            f"spaces is {str(text)[:100]!r}; expected JSON of observation and action, or nothing"
        )


def shown(arrays: Sequence[ArraySpec]) -> str:
    """Returns what decides preset and network: images, small grids or vectors, the first among the arrays."""
    sides = [min(array.shape[:2]) for array in arrays if array.is_grid]
    if not sides:
        return "vectors"
    return "images" if max(sides) >= SMALLEST_IMAGE else "small grids"


class EnvStep(NamedTuple):
    """The state of a group of E environments after one step (or a reset), with next-step auto-reset.

    Every observation of an episode is sent once, including the last one, where `terminated` or `truncated` is true.
    The action that answers a last observation is ignored; the next step shows the first observation of the next
    episode, with reward 0 and both flags false.

    With two players who take turns, a training environment is played by both: each observation is the view of the
    player to move, each reward that of the other player, who moved before; the mover loses as much. An evaluating
    environment moves for the opponent itself: it shows the agent's turns and rewards.

    Where rows are seats (`EnvSpec.seats`), a step shows a game's rows that have a turn, or whose episode ends. A row's
    rewards since its last shown row add up; those before its first one go to its second. A game continues while a
    shown row has a turn; then it is over, and its next step begins another game.

    Attributes:
      observation: [E, *observation_shape] of the spec's dtype: the newest frame, or the bytes of several arrays.
      reward: [E] float32, received on the way to this observation; 0 on first observations.
      terminated: [E] bool, true: the episode ended in a terminal state (its value is 0).
      truncated: [E] bool, true: the episode was cut off (its value is bootstrapped).
      action_mask: [E, A] bool, true: legal; None where the spec has no mask.
      task: [E] int32, each environment's index in `EnvSpec.tasks`, constant during an episode; None stands for 0.
      shown: [E] bool, false: the row has no new observation, its values and action mean nothing; None: all true.
      played: [E] int32, the actions that led here, if a worker's bots chose some; None: the learner's actions did.
      info: {name: [E] float32} the environment's own numbers about episodes that end here, as in `infos`.
    """

    observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    action_mask: np.ndarray | None = None
    task: np.ndarray | None = None
    shown: np.ndarray | None = None
    played: np.ndarray | None = None
    info: Mapping[str, np.ndarray] | None = None

    @classmethod
    def first(cls, observation: np.ndarray) -> EnvStep:
        """Returns the step of first observations [E, ...], without mask and task."""
        num_envs = len(observation)
        return cls(observation, np.zeros(num_envs, np.float32), np.zeros(num_envs, bool), np.zeros(num_envs, bool))

    def those(self, chosen: np.ndarray) -> EnvStep:
        """Selects environments, by [E] bool or [N] int."""
        arrays = {name: array[chosen] for name, array in self._asdict().items() if isinstance(array, np.ndarray)}
        return self._replace(**arrays, info=infos.those(self.info, chosen))

    @property
    def tasks(self) -> np.ndarray:
        """[E] int32, 0 in environments without tasks."""
        return np.zeros(len(self.reward), np.int32) if self.task is None else self.task

    @property
    def final(self) -> np.ndarray:
        """[E] bool, true: the observation is the last of its episode."""
        final: np.ndarray = self.terminated | self.truncated
        return final


@dataclasses.dataclass(frozen=True)
class Assignment:
    """What the learner answers to a joining worker."""

    session_id: str  # names the environments until they are reset; sequence numbers count within it
    role: Role
    env: str  # environment id ("catch", "gym:CartPole-v1", "atari:Pong"), or "yours" for the worker's own
    env_settings: str  # JSON object of keyword settings for the environment (EnvConfig without its id)
    num_groups: int  # groups of environments that step alternately
    envs_per_group: int
    seeds: tuple[int, ...]  # [num_groups * envs_per_group] one for each environment, group by group
    resumed: bool = False  # true: the session is still alive; continue without a reset and repeat unanswered messages
    # [num_groups * envs_per_group] the environments' numbers among all of the run with this role, which spread tasks
    # evenly. Empty if the learner does not report them.
    indices: tuple[int, ...] = ()
    bots: tuple[str, ...] = ()  # names of bots that the worker may have to play, numbered from 1 in `messages.Actions`
