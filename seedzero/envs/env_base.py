"""The interface between environment families and a worker: a group of environments, stepped together and drawn."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import difflib
import math
import pathlib
import re
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from seedzero.core import errors, json_object, types

# Draws boards for environments without pictures, and converts pictures of other environments.
_PIXELS_PER_CELL = 32
_COLOURS = np.array(
    [[78, 121, 167], [242, 142, 43], [225, 87, 89], [118, 183, 178], [89, 161, 79], [237, 201, 72], [176, 122, 161],
     [255, 157, 167], [156, 117, 95], [186, 176, 172]], np.uint8
)  # fmt: skip


def paint(planes: np.ndarray) -> np.ndarray:
    """Draws [H, W, C] as [32 H, 32 W, 3] uint8: a cell has the colour of its last non-zero plane."""
    lit = planes != 0
    last = lit.shape[-1] - 1 - np.argmax(lit[..., ::-1], axis=-1)
    picture = np.where(lit.any(axis=-1, keepdims=True), _COLOURS[last % len(_COLOURS)], np.uint8(0))
    return enlarged(picture, _PIXELS_PER_CELL)


def enlarged(picture: np.ndarray, factor: int) -> np.ndarray:
    """Enlarges a picture [H, W, C] to [factor H, factor W, C] of the same dtype."""
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)


def converted(value: Any) -> np.ndarray:
    """Converts an environment's picture to [H, W, 3] uint8.

    Args:
      value: [H, W], [H, W, 1], [H, W, 3], or [H, W, 4] with opacity, which is shown on white. uint8 stays unchanged;
        truth values, and numbers from 0 to 1 of every other dtype, become 0 to 255; whole numbers from 0 to 255 stay.
        A list of arrays (Gymnasium's `rgb_array_list`) stands for its newest.

    Raises ValueError, with a description of the value and of what was expected, for everything else, including NaN.
    """
    if isinstance(value, list | tuple) and value and isinstance(value[-1], np.ndarray):
        value = value[-1]
    try:
        picture = np.asarray(value)
    except Exception as error:  # ragged lists, and errors in foreign conversions
        raise ValueError(f"{type(value).__name__}, not an array [height, width, 3]") from error
    if picture.dtype.kind not in "biuf" or picture.ndim == 0:
        raise ValueError(f"{type(value).__name__}, not an array [height, width, 3] of numbers")
    if picture.ndim == 2:
        picture = picture[..., None]
    if picture.ndim != 3 or picture.shape[2] not in (1, 3, 4) or 0 in picture.shape:
        raise ValueError(
            f"an array of shape {list(np.shape(value))}; expected [height, width], or [height, width, channels] with "
            "1 channel (gray), 3 (red, green, blue) or 4 (and opacity)"
        )
    return _opaque(_as_bytes(picture))


def _as_bytes(picture: np.ndarray) -> np.ndarray:
    """Converts a picture's numbers to uint8 of 0 to 255. Raises ValueError for numbers on an unknown scale."""
    if picture.dtype == np.uint8:
        return picture
    low, high = picture.min(), picture.max()
    if low >= 0 and high <= 1:
        return np.rint(picture * 255.0).astype(np.uint8)
    if low >= 0 and high <= 255 and np.array_equal(picture, np.rint(picture)):
        return picture.astype(np.uint8)
    raise ValueError(
        f"{picture.dtype} from {low} to {high}; expected numbers from 0 to 1, or whole numbers from 0 to 255, as of "
        "np.clip(picture, 0, 255).astype(np.uint8)"
    )


def _opaque(picture: np.ndarray) -> np.ndarray:
    """Converts a picture [H, W, 1, 3 or 4] uint8 to [H, W, 3]; puts one with opacity on white."""
    if picture.shape[2] == 1:
        return picture.repeat(3, axis=2)
    if picture.shape[2] == 3:
        return picture
    opacity = picture[..., 3:] / 255
    return np.rint(picture[..., :3] * opacity + 255 * (1 - opacity)).astype(np.uint8)


# Imports foreign packages without their parts for drawing and acceleration.
@contextlib.contextmanager
def imports_without(*names: str) -> Iterator[None]:
    """Prevents the import of the named modules, unless already imported, while the context is entered."""
    hidden: dict[str, Any] = {name: None for name in names if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


class Closable(Protocol):
    """An object with resources."""

    def close(self) -> None:
        """Frees the resources."""


_HELP_AT = contextvars.ContextVar("_HELP_AT", default=math.inf)
"""Monotonic time from which objects are closed in parallel; groups pass it on to their environments."""

_PACKAGE = re.escape(str(pathlib.Path(__file__).parents[1]))
_OWN_FRAMES = re.compile(rf'(?:  File "{_PACKAGE}/.*\n(?:    .*\n)*)+')
"""Consecutive frames of seedzero in a traceback, with their source."""

_Closable = TypeVar("_Closable", bound=Closable)


class VectorEnv(Protocol):
    """A group of E = `num_envs` environments with next-step auto-reset (see types.EnvStep), described by `spec`."""

    spec: types.EnvSpec
    num_envs: int

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        """Starts a new episode everywhere and returns the first observations.

        seeds: [E] non-negative; the same seeds and actions give the same steps.
        """

    def step(self, actions: np.ndarray) -> types.EnvStep:
        """Applies actions [E] int32 or [E, D] float32; a final observation is followed by a first one.

        Raises InvalidMessage for a wrong shape or an action out of range, and EnvironmentFailure if an environment
        raised.
        """

    def render(self) -> np.ndarray:
        """Returns a picture of environment 0, [H, W, 3] uint8; only if made with render=True."""

    def close(self) -> None:
        """Frees the environments' resources; they cannot be used afterwards."""


class ArrayEnv:
    """E environments in arrays, each with its own generator. Families build on it for `VectorEnv`."""

    spec: types.EnvSpec

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._generators: list[np.random.Generator] = []

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        check_seeds(seeds, self.num_envs)
        self._generators = [np.random.default_rng(seed) for seed in seeds]
        self._begin_episodes(np.ones(self.num_envs, bool))
        return types.EnvStep.first(self._show())

    def close(self) -> None:
        pass

    def _begin_episodes(self, where: np.ndarray) -> None:
        """Starts an episode in the environments that are marked true, [E] bool."""
        raise NotImplementedError

    def _show(self) -> np.ndarray:
        """Returns the observations [E, ...]."""
        raise NotImplementedError


def check_actions(actions: np.ndarray, num_envs: int, spec: types.EnvSpec) -> None:
    """Raises InvalidMessage unless actions are [num_envs] whole numbers, or vectors, within the spec's bounds."""
    shape = (num_envs, *spec.action_shape)
    kind, kind_name = (np.float32, "float32") if spec.is_continuous else (np.integer, "whole numbers")
    if actions.shape != shape or not np.issubdtype(actions.dtype, kind):
        raise errors.InvalidMessage(
            f"actions are {actions.dtype}{list(actions.shape)}; expected {kind_name} of shape {list(shape)}"
        )
    low, high = spec.action_bounds if spec.is_continuous else (0, spec.num_actions - 1)
    wrong = np.argwhere(~((actions >= low) & (actions <= high)))  # NaN is wrong too
    if wrong.size:
        env, *index = wrong[0]
        lowest, highest = spec.action_bounds[:, index[0]] if index else (low, high)
        expected = f"number {index[0]} from {lowest} to {highest}" if index else f"{lowest} to {highest}"
        raise errors.InvalidMessage(
            f"action {actions[env].tolist()} for environment {env} is out of range; expected {expected}"
        )


def check_legal(actions: np.ndarray, mask: np.ndarray, game: str) -> None:
    """Raises InvalidMessage unless actions [E] are legal by a mask [E, A] bool. game: its name."""
    if (illegal := np.flatnonzero(~mask[np.arange(len(actions)), actions])).size:
        raise errors.InvalidMessage(
            f"action {actions[illegal[0]]} is not legal in environment {illegal[0]} of game {game!r}; "
            f"expected one of its action_mask: {np.flatnonzero(mask[illegal[0]]).tolist()}"
        )


def check_seeds(seeds: Sequence[int], num_envs: int) -> None:
    """Raises InvalidMessage unless each environment has a single non-negative seed."""
    if len(seeds) != num_envs or any(seed < 0 for seed in seeds):
        raise errors.InvalidMessage(f"got seeds {list(seeds)}; expected {num_envs} that are not negative")


def check_whole(num_envs: int, size: int, thing: str) -> None:
    """Raises EnvironmentFailure unless rows make whole games of `size` rows. thing: a game and its rows, in words."""
    if num_envs % size:
        below = num_envs // size * size
        sizes = " or ".join(str(rows) for rows in (below, below + size) if rows)
        raise errors.EnvironmentFailure(
            f"a group has {num_envs} rows, but {thing}, each of which is a row; give --worker.envs_per_group={sizes}"
        )


def arguments(kwargs: str, purpose: str, example: str) -> dict[str, Any]:
    """Returns the JSON object of --env.kwargs. Raises EnvironmentFailure, with an example, for any other text."""
    try:
        return json_object.parse(kwargs or "{}")
    except ValueError as error:
        raise errors.EnvironmentFailure(
            f"--env.kwargs={kwargs} must be a JSON object of {purpose} ({error}), such as --env.kwargs='{example}'"
        ) from None


def no_such(thing: str, name: str, known: Iterable[str], advice: str, cutoff: float = 0.6) -> errors.Error:
    """Returns EnvironmentFailure for a name ("ALE has no game 'x'"), with the nearest known names or with advice."""
    by_key = {re.sub("[-_]", "", each).lower(): each for each in known}
    nearest = difflib.get_close_matches(re.sub("[-_]", "", name).lower(), by_key, n=3, cutoff=cutoff)
    names = " or ".join(by_key[key] for key in nearest)
    return errors.EnvironmentFailure(f"{thing} {name!r}; {f'did you mean {names}?' if names else advice}")


@contextlib.contextmanager
def failures_of(what: str) -> Iterator[None]:
    """Turns an environment's exceptions into EnvironmentFailure.

    It catches all of them, because an environment is foreign code and may raise anything; also `sys.exit()`, which
    would end this process with success, and the panics of simulators in Rust.
    """
    try:
        yield
    except (errors.Error, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise errors.EnvironmentFailure(f"{what}: {told(error)}{_place(error)}") from error


def close_all(things: Iterable[Closable], max_seconds: float = math.inf) -> None:
    """Closes all objects, even after an exception; then raises the first one's exception, in their order.

    Its notes mention the others; an interrupt takes precedence over all of them.

    Objects are closed one after another on this thread, which made many of them and to which some are bound. After
    half of the time, other threads close the waiting objects, so that slow simulators only take as long as the
    slowest.

    max_seconds: limit for all. If infinite, that of an enclosing `close_all` applies; without one, no other thread
    helps.
    """
    help_at = min(_HELP_AT.get(), time.monotonic() + max_seconds / 2)
    waiting, raised = collections.deque(enumerate(things)), dict[int, BaseException]()
    if len(waiting) > 1 and help_at < math.inf:
        _close_with_help(waiting, raised, help_at)
    else:
        _close_waiting(waiting, raised, help_at)
    if raised:
        raise _first(raised)


_Waiting = collections.deque[tuple[int, Closable]]


def _close_with_help(waiting: _Waiting, raised: dict[int, BaseException], help_at: float) -> None:
    """Closes the waiting objects on this thread, and from a time on, each on its own thread."""
    seconds = max(0.0, help_at - time.monotonic())
    helper = threading.Timer(seconds, _close_side_by_side, (waiting, raised, help_at))
    helper.name, helper.daemon = "close", True
    helper.start()
    try:
        _close_waiting(waiting, raised, help_at)
    finally:  # so that no helper begins, even after an interrupt
        helper.cancel()
        waiting.clear()
    helper.join()


def _close_side_by_side(waiting: _Waiting, raised: dict[int, BaseException], help_at: float) -> None:
    threads = []
    with contextlib.suppress(IndexError):
        while True:
            words = (*waiting.popleft(), raised, help_at)
            threads.append(threading.Thread(target=_close, args=words, name="close", daemon=True))
            threads[-1].start()
    for thread in threads:
        thread.join()


def _close_waiting(waiting: _Waiting, raised: dict[int, BaseException], help_at: float) -> None:
    with contextlib.suppress(IndexError):  # another thread may take the last one
        while True:
            _close(*waiting.popleft(), raised, help_at)


def _close(index: int, thing: Closable, raised: dict[int, BaseException], help_at: float) -> None:
    token = _HELP_AT.set(help_at)
    try:
        thing.close()
    except BaseException as error:  # Ctrl-C must not keep the others open
        raised[index] = error
    finally:
        _HELP_AT.reset(token)


def _first(raised: Mapping[int, BaseException]) -> BaseException:
    """Returns the first exception, or interrupt, with notes of the others."""
    first, *others = (raised[index] for index in sorted(raised, key=lambda i: (isinstance(raised[i], Exception), i)))
    for other in others:
        if other is not first:
            notes = (f"also raised in close: {told(other)}{_place(other)}", *getattr(other, "__notes__", ()))
            for note in notes:
                first.add_note(note)
    return first


@contextlib.contextmanager
def closed_on_error() -> Iterator[list[Any]]:
    """Yields a list for objects made within. After an exception all are closed, and no error of `close` hides it."""
    made: list[Closable] = []
    try:
        yield made
    except BaseException:
        with contextlib.suppress(Exception):
            close_all(made)
        raise


@contextlib.contextmanager
def closing(env: _Closable) -> Iterator[_Closable]:
    """Closes an environment at the end. Raises EnvironmentFailure if that raises and nothing within did."""
    with closed_on_error() as made:
        made.append(env)
        yield env
    with failures_of("the environment raised in close"):
        env.close()


def check_distinct(name: str, originals: Sequence[Any]) -> None:
    """Raises EnvironmentFailure unless environments, without wrappers, are distinct objects."""
    if len(set(map(id, originals))) < len(originals):
        raise errors.EnvironmentFailure(
            f"environment {name!r} is the same object each time; its function must make a new one"
        )


def told(error: BaseException) -> str:
    """Returns an exception's type and text in one line, for logs and messages."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # its own __str__ is foreign code, too
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def trace(error: BaseException) -> str:
    """Returns the traceback of the exception that an EnvironmentFailure names; "" for an error of seedzero itself.

    Frames of seedzero are folded into one line.
    """
    cause = error.__cause__
    if cause is None or isinstance(cause, errors.Error):
        return ""
    return _OWN_FRAMES.sub("  ... frames of seedzero\n", "".join(traceback.format_exception(cause)))


def _place(error: BaseException) -> str:
    """Returns the line that raised an exception or its cause, in brackets; "" without a line."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first is the line within `failures_of`
    seen = {id(error)}  # `raise e from e` has no first cause
    while error.__cause__ is not None and id(error.__cause__) not in seen:
        error = error.__cause__
        seen.add(id(error))
        frames = traceback.extract_tb(error.__traceback__) or frames  # never raised, so it has no lines
    frames = [frame for frame in frames if not frame.filename.startswith("<")]  # <frozen os>, <string>
    if not frames:
        return ""
    last = frames[-1]
    return f" ({'/'.join(pathlib.PurePath(last.filename).parts[-2:])}, line {last.lineno}, in {last.name})"
