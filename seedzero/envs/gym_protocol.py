"""Checks what an environment returns against Gymnasium's protocol and its spaces, and explains each fault.

Without this, Gymnasium's groups of environments would raise in numpy, far from the mistake, or show another value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seedzero.core import errors, infos
from seedzero.envs import env_base, gym_masks

# Reads numbers that an environment reports in the info of an episode's last step.
METRICS, SUCCESS = "metrics", "is_success"
_LARGEST = float(np.finfo(np.float32).max)


def read_infos(info: Mapping[str, Any], keys: Sequence[str]) -> dict[str, float]:
    """Returns the numbers in an episode's last info by name, NaN for None. Raises ValueError for anything else."""
    given = info.get(METRICS, {})
    if not isinstance(given, Mapping):
        raise ValueError(f"a {type(given).__name__} as info[{METRICS!r}]; expected a dict from names to numbers")
    if missing := [key for key in keys if key not in info]:
        raise ValueError(
            f"no info[{missing[0]!r}] in an episode's last step, which --metrics.info_keys asks for; it has "
            f"{', '.join(map(str, info)) or 'nothing'}"
        )
    named = {**given, **{key: info[key] for key in (*keys, *([SUCCESS] if SUCCESS in info else []))}}
    if len(named) > infos.MAX_INFOS:
        raise ValueError(f"{len(named)} numbers in an episode's last info; expected at most {infos.MAX_INFOS}")
    return {_name(name): _number(name, value) for name, value in named.items()}


def _name(name: object) -> str:
    if not infos.is_name(name):
        raise ValueError(
            f"a number with the name {str(name)[:100]!r} in its info; expected text of 1 to {infos.MAX_NAME} "
            "printable characters"
        )
    return str(name)


def _number(name: str, value: Any) -> float:
    array = _array(f"{name!r} in its info", value)
    is_number = array.dtype.kind in "biuf" and array.size == 1
    if not is_number or abs(found := float(array.item())) > _LARGEST:
        raise ValueError(f"{str(value)[:100]!r} as {name!r} in its info; expected one finite number, or NaN for none")
    return found


def join_infos(name: str, found: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray] | None:
    """Returns the numbers of E environments by name, [E] float32 with NaN for missing ones; None if there are none.

    name: the environment's, for the EnvironmentFailure about too many names.
    """
    names = dict.fromkeys(name for info in found for name in info)
    if len(names) > infos.MAX_INFOS:
        raise errors.EnvironmentFailure(
            f"environment {name!r} has {len(names)} names of numbers in its infos, such as {', '.join([*names][:3])}; "
            f"expected at most {infos.MAX_INFOS}"
        )
    arrays = {key: np.array([info.get(key, math.nan) for info in found], np.float32) for key in names}
    return arrays or None


_STEP = "(observation, reward, terminated, truncated, info)"
_FIX = "fix it there, or in a wrapper that your own function returns: --env=python:MODULE:FUNCTION"


class Fault(ValueError):
    """A returned value that breaks the protocol or does not fit its space.

    The text has the value and the expectation.
    """


class Checked:
    """An environment whose returned values are checked, and converted to plain numbers and an empty info.

    Gymnasium's groups would make arrays of infos, which raises if two environments have different ones; they would
    also raise for a number in a list or of shape [1]. Raises EnvironmentFailure, with the step of the episode, if the
    environment returns something that does not fit its spaces or Gymnasium's interface.

    Attributes:
      mask: [A] bool of the last observation, true: legal; None: the environment shows no masks.
      mask_place: where it shows masks, if it does.
      info: numbers that it reports about the episode that the last step ended; {} while an episode continues.
    """

    def __init__(
        self, name: str, env: gymnasium.Env[Any, Any], sizes: Sequence[int] = (), info_keys: Sequence[str] = ()
    ) -> None:
        """sizes: the numbers of values of each whole number in an action; if empty, masks are not read.

        info_keys: see `read_infos`.
        """
        self.env, self._name, self._num_steps, self._sizes = env, name, 0, sizes
        self.info: dict[str, float] = {}
        self._info_keys = info_keys
        self._check = observation_check(env.observation_space)
        self.mask: np.ndarray | None = None
        self.mask_place, self._find_mask = gym_masks.finder(env)
        self._is_masked: bool | None = None  # set by the first reset

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """See the environment's method; options: seed and options."""
        self._num_steps, self.info = 0, {}
        shown: Any = self.env.reset(**options)
        try:
            if not (isinstance(shown, tuple) and len(shown) == 2 and isinstance(shown[1], Mapping)):
                raise Fault(f"{described(shown)}; expected (observation, info), info a dict")
            self._check(shown[0])
            self._read_mask(*shown)
        except Fault as fault:
            raise self._wrong("reset", fault) from None
        return shown[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See the environment's method."""
        self._num_steps += 1
        try:
            after: Any = self.env.step(action)
        except ValueError as error:
            if not _is_unpacking(error):
                raise
            fault = Fault(f"the wrong number of values ({error}); expected {_STEP}")
            raise self._wrong("step", fault) from error
        try:
            if not (isinstance(after, tuple) and len(after) == 5):
                raise Fault(f"{described(after)}; expected {_STEP}")
            observation, reward, terminated, truncated, info = after
            if not isinstance(info, Mapping):
                raise Fault(f"{described(info)} as info; expected a dict")
            self._check(observation)
            is_over, is_cut = flag("terminated", terminated), flag("truncated", truncated)
            if not is_over:
                self._read_mask(observation, info, is_cut=is_cut)
            elif self._is_masked:  # nothing is legal now, so the environment need not report it
                self.mask = np.ones(math.prod(self._sizes), bool)
            self.info = self._read_info(info) if is_over or is_cut else {}
            return observation, number(reward), is_over, is_cut, {}
        except Fault as fault:
            raise self._wrong("step", fault) from None

    def _read_info(self, info: Mapping[str, Any]) -> dict[str, float]:
        try:
            return read_infos(info, self._info_keys)
        except ValueError as error:
            raise Fault(str(error)) from None

    def _read_mask(self, observation: Any, info: Mapping[str, Any], *, is_cut: bool = False) -> None:
        """Reads the mask of an observation.

        is_cut: whether the observation is the last of a truncated episode, where agents still search.
        """
        if not self._sizes:
            return
        state = (
            "its episode is only truncated: agents still search in that state" if is_cut else "the episode continues"
        )
        where = f"{self.mask_place}, though {state}" if is_cut else self.mask_place
        with env_base.failures_of(f"environment {self._name!r} raised in {where}"):
            found = self._find_mask(observation, info)
        if self._is_masked is None:
            self._is_masked = found is not None
        if self._is_masked and found is None:
            raise Fault(f"no {self.mask_place}, which its first reset had; expected it after each reset and step")
        if found is not None and not self._is_masked:
            raise Fault(
                f"{self.mask_place}, which its first reset had not; expected it after each reset and step, or never "
                f"({gym_masks.IGNORE})"
            )
        try:
            mask = None if found is None else gym_masks.read(found, self._sizes)
        except ValueError as error:
            raise Fault(str(error)) from None
        if mask is not None and not mask.any():
            raise Fault(f"an {gym_masks.KEY} without a legal action, though {state}")
        self.mask = mask

    def _wrong(self, call: str, fault: Fault) -> errors.EnvironmentFailure:
        where = f"step (number {self._num_steps} of an episode)" if call == "step" else call
        return errors.EnvironmentFailure(f"environment {self._name!r} returned in {where} {fault}; {_FIX}")


def check(
    name: str,
    env: gymnasium.Env[Any, Any],
    num_steps: int = 1,
    *,
    sizes: Sequence[int] = (),
    info_keys: Sequence[str] = (),
    decode: Callable[[np.ndarray], Any] = np.asarray,
    goes_on: Callable[[], bool] = lambda: True,
) -> bool:
    """Resets and steps an environment; returns whether it shows masks. The next use must begin with a reset.

    sizes, info_keys: see `Checked`. decode: takes legal actions [E] by a mask and returns a batch of the environment's
    actions. Raises EnvironmentFailure if the environment raises, and as `Checked`.
    """
    env.action_space.seed(1)  # not the resets' seed, by which it would draw the same numbers as the environment
    random = np.random.default_rng(1)
    checked, is_over = Checked(name, env, sizes, info_keys), True
    for _ in range(num_steps):
        if is_over:
            with env_base.failures_of(f"environment {name!r} raised in reset"):
                checked.reset(seed=0)
        legal = None if checked.mask is None else random.choice(np.flatnonzero(checked.mask))
        action = env.action_space.sample() if legal is None else decode(np.array([legal]))[0]
        with env_base.failures_of(f"environment {name!r} raised in step"):
            _, _, terminated, truncated, _ = checked.step(action)
        is_over = terminated or truncated
        if not goes_on():
            break
    return checked.mask is not None


def _is_unpacking(error: ValueError) -> bool:
    """Returns whether one of Gymnasium's wrappers, rather than a user's code, got too few or too many values."""
    code, frame = "", error.__traceback__
    while frame is not None:
        code, frame = frame.tb_frame.f_globals.get("__name__", ""), frame.tb_next
    return code.startswith(("gymnasium.core", "gymnasium.wrappers.")) and "to unpack" in str(error)


def described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}{list(value.shape)}"
    if isinstance(value, tuple):
        return f"{len(value)} values"
    return f"{value!r:.40}" if value is None else f"a {type(value).__name__}"


def _array(title: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except Exception as error:  # converts by a value's own method, which is foreign code
        reason = env_base.told(error)
        raise Fault(f"{described(value)} as {title}, which numpy cannot read ({reason})") from error


def number(value: Any) -> float:
    """Converts a reward, of any numeric type and any shape with one number."""
    if type(value) is float:
        return value
    array = _array("reward", value)
    if array.dtype.kind not in "biuf" or array.size != 1:
        raise Fault(f"{described(value)} as reward; expected one number")
    return float(array.item())


def flag(part: str, value: Any) -> bool:
    """Converts a flag, which is a bool, or 0 or 1."""
    if value is True or value is False:
        return value
    array = _array(part, value)
    if array.dtype.kind not in "biu" or array.size != 1 or array.item() not in (0, 1):
        came = f"{array.item()!r}" if array.dtype.kind in "biuf" and array.size == 1 else described(value)
        raise Fault(f"{came} as {part}; expected a truth value")
    return bool(array.item())


# Observations ------------------------------------------------------------------------------------------------------


def observation_check(space: spaces.Space[Any], place: str = "") -> Callable[[Any], None]:
    """Returns a function that raises Fault for a wrong shape or dtype, or an invalid whole number."""
    title = f"the observation{place}"
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return _array_check(space, title)
    is_tuple = isinstance(space, spaces.Tuple)
    named = dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else space.spaces
    parts = {key: observation_check(part, f"{place}, at {key!r}") for key, part in named.items()}

    def check_parts(value: Any) -> None:
        if is_tuple:
            fits = isinstance(value, tuple | list) and len(value) == len(parts)
        else:
            fits = isinstance(value, Mapping) and parts.keys() <= value.keys()
        if not fits:
            has = f" with {', '.join(map(str, value)) or 'nothing'}" if isinstance(value, Mapping) else ""
            raise Fault(f"{described(value)}{has} as {title}; its space has the parts {', '.join(map(str, parts))}")
        for key, check_part in parts.items():
            check_part(value[key])

    return check_parts


def _array_check(space: spaces.Space[Any], title: str) -> Callable[[Any], None]:
    shape, dtype, bounds = space.shape or (), space.dtype, _bounds(space)

    def check_array(value: Any) -> None:
        array = value if isinstance(value, np.ndarray) else _array(title, value)
        if array.dtype == object and array.ndim == 0:  # None, a dict, or another object
            raise Fault(f"{described(value)} as {title}; its space says {space}")
        if array.shape != shape:
            raise Fault(f"{title} with shape {list(array.shape)}; its space says {list(shape)}")
        if array.dtype != dtype and dtype is not None:
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise Fault(f"{title} of dtype {array.dtype}; its space says {dtype}")
            if dtype.kind in "iu" and bounds is None:  # for a Box, which would store other numbers
                limits = np.iinfo(dtype.name)
                _check_inside(space, title, array, limits.min, limits.max)
        if bounds is not None:
            _check_inside(space, title, array, *bounds)

    return check_array


def _bounds(space: spaces.Space[Any]) -> tuple[Any, Any] | None:
    """Returns the bounds of whole numbers, beyond which another number would be stored; None for other spaces."""
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def _check_inside(space: spaces.Space[Any], title: str, array: np.ndarray, low: Any, high: Any) -> None:
    inside = (array >= low) & (array <= high)
    if not inside.all():
        raise Fault(f"{title} with the value {array[~inside].reshape(-1)[0]}; its space says {space}")
