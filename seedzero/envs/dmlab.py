"""Plays DeepMind Lab's levels, a single one or the 30 of DMLab-30, through Lab's Python interface.

Observations are an image and the level's instruction. Actions are those of IMPALA and SEED RL, each held for a number
of frames. An episode's end is terminal, as in both, because Lab does not distinguish a time limit from another end.
After it Lab has nothing to show, so the last observation repeats the one before.

Lab has no package to install, and only this file imports it. Its engines start with the first episode.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import pathlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from seedzero.config import sections
from seedzero.core import errors, packages, packing, types
from seedzero.envs import env_base
from seedzero.storage.bucket import bucket

# Caches levels that DeepMind Lab has compiled, for later episodes, other workers and other runs.
REPORT_EVERY = 100
"""Number of requested levels between two messages about the hit rate."""
RETRY_SECONDS = 5.0
"""How long requests to a bucket are repeated if they fail, before Lab compiles the level."""
_ABANDONED_SECONDS = 3600.0
"""An unfinished file older than this belongs to a process that was killed."""
_UNFINISHED = ".unfinished-"

_logger = logging.getLogger(__name__)


class LevelCache:
    """Implements Lab's interface for caches: `Lab(..., level_cache=LevelCache(read, write, place))`."""

    def __init__(self, read: Callable[[str], bytes | None], write: Callable[[str, bytes], object], place: str) -> None:
        """Prepares the cache.

        read: returns None for a missing level; it and `write` may raise OSError or BucketError. place: for reports.
        """
        self._read, self._write, self._place = read, write, place
        self._has_failed = False
        self.num_hits = self.num_fetches = 0

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copies the level with a key to a path; returns whether it was cached."""
        is_there = False
        with self._reported("read"):
            if (content := self._read(_name(key))) is not None:
                pathlib.Path(pk3_path).write_bytes(content)
                is_there = True
        self.num_fetches += 1
        self.num_hits += is_there
        if self.num_fetches % REPORT_EVERY == 0:
            self.report()
        return is_there

    def write(self, key: str, pk3_path: str) -> None:
        with self._reported("written"):
            self._write(_name(key), pathlib.Path(pk3_path).read_bytes())

    def report(self) -> None:
        """Logs the hit rate."""
        if self.num_fetches:
            hits, fetches = self.num_hits, self.num_fetches
            _logger.info("level cache %s: %d of %d levels (%.0f%%)", self._place, hits, fetches, 100 * hits / fetches)

    @contextlib.contextmanager
    def _reported(self, action: str) -> Iterator[None]:
        """Suppresses failures of the place while the context is entered, and logs the first one."""
        try:
            yield
        except (OSError, errors.BucketError) as error:
            if not self._has_failed:
                _logger.warning(
                    "level cache %s cannot be %s: %s; levels are compiled again", self._place, action, error
                )
            self._has_failed = True


class Folder:
    """Levels in a folder, which any number of processes and machines may share."""

    def __init__(self, path: pathlib.Path) -> None:
        """Makes the folder if it is missing, and deletes what killed processes left. Raises OSError."""
        self._path = path
        path.mkdir(parents=True, exist_ok=True)
        for file in path.glob(f"*/{_UNFINISHED}*"):
            with contextlib.suppress(FileNotFoundError):  # another process deleted it first
                if time.time() - file.stat().st_mtime > _ABANDONED_SECONDS:
                    file.unlink()

    def read(self, name: str) -> bytes | None:
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        file = self._file(name)
        if file.exists():
            return
        file.parent.mkdir(exist_ok=True)
        unfinished = file.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
        try:
            with unfinished.open("xb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())  # otherwise a crash of the machine may leave the name without the bytes
            unfinished.rename(file)
        finally:
            unfinished.unlink(missing_ok=True)

    def _file(self, name: str) -> pathlib.Path:
        return self._path / name[:2] / name


def make_level_cache(place: str) -> LevelCache:
    """Returns the cache in a folder, or in a bucket: gs://BUCKET/PATH, s3://BUCKET/PATH.

    Raises UsageError for another URL, and EnvironmentFailure if the folder cannot be made, or tensorstore is missing,
    which reads buckets.
    """
    try:
        url = bucket.parse(place, flag="dmlab.level_cache")
        if url is None:
            folder = Folder(pathlib.Path(place))
            return LevelCache(folder.read, folder.write, place)
        store = bucket.open_store(url, RETRY_SECONDS, "dmlab.level_cache")
        return LevelCache(lambda name: store.read(name).content, store.write, place)
    except OSError as error:
        raise errors.EnvironmentFailure(
            f"--dmlab.level_cache={place}: {error.strerror}; give a folder that can be written, or gs://BUCKET/PATH"
        ) from None
    except ModuleNotFoundError:
        raise errors.EnvironmentFailure(
            f"--dmlab.level_cache={place} is in a bucket, which needs a missing package: "
            f"{packages.install_command('tensorstore')}"
        ) from None


def _name(key: str) -> str:
    return f"{hashlib.sha256(key.encode()).hexdigest()}.pk3"


DMLAB30 = "dmlab30"
"""Stands for all levels of DMLab-30: environment i plays the level i modulo 30."""
LEVELS = (
    "rooms_collect_good_objects_train",
    "rooms_exploit_deferred_effects_train",
    "rooms_select_nonmatching_object",
    "rooms_watermaze",
    "rooms_keys_doors_puzzle",
    "language_select_described_object",
    "language_select_located_object",
    "language_execute_random_task",
    "language_answer_quantitative_question",
    "lasertag_one_opponent_small",
    "lasertag_three_opponents_small",
    "lasertag_one_opponent_large",
    "lasertag_three_opponents_large",
    "natlab_fixed_large_map",
    "natlab_varying_map_regrowth",
    "natlab_varying_map_randomized",
    "skymaze_irreversible_path_hard",
    "skymaze_irreversible_path_varied",
    "psychlab_arbitrary_visuomotor_mapping",
    "psychlab_continuous_recognition",
    "psychlab_sequential_comparison",
    "psychlab_visual_search",
    "explore_object_locations_small",
    "explore_object_locations_large",
    "explore_obstructed_goals_small",
    "explore_obstructed_goals_large",
    "explore_goal_locations_small",
    "explore_goal_locations_large",
    "explore_object_rewards_few",
    "explore_object_rewards_many",
)
"""The training levels of DMLab-30."""
OTHER_LEVELS = (
    "lt_chasm",
    "lt_hallway_slope",
    "lt_horseshoe_color",
    "lt_space_bounce_hard",
    "nav_maze_random_goal_01",
    "nav_maze_random_goal_02",
    "nav_maze_random_goal_03",
    "nav_maze_static_01",
    "nav_maze_static_02",
    "nav_maze_static_03",
    "seekavoid_arena_01",
    "stairway_to_melon",
)
"""Lab's other levels; a name with a "/" is the user's own."""
_TEST_LEVELS = tuple(level.replace("_train", "_test") for level in LEVELS)
_FOLDER = "contributed/dmlab30/"

ACTIONS = np.array(
    [
        # look right, look down (pixels a frame), strafe right, forward, fire, jump, crouch
        [0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, -1, 0, 0, 0],
        [0, 0, -1, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0],
        [-20, 0, 0, 0, 0, 0, 0],
        [20, 0, 0, 0, 0, 0, 0],
        [-20, 0, 0, 1, 0, 0, 0],
        [20, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0],
    ],
    np.intc,
)
"""The 9 actions of IMPALA (Espeholt et al. 2018, appendix) and SEED RL, as Lab takes them."""

IMAGE, INSTRUCTION = "image", "instruction"
HEIGHT, WIDTH = 72, 96
INSTRUCTION_BYTES = 128
_PIXELS, _TEXT = "RGB_INTERLEAVED", "INSTR"
_MIXER_SEED = 0x600D5EED
"""Gives evaluations seeds that training never sees; the number is that of IMPALA and SEED RL."""
_CONFIG: dict[str, Any] = dict(width=WIDTH, height=HEIGHT, datasetPath="/dataset", logLevel="WARN")
"""Lab's config, unless `kwargs` has other values. datasetPath: folder of the images that psychlab's levels show."""
_ENLARGED = 4


class DMLab:
    """E copies of Lab, stepped one after the other; the engines start with the first episode."""

    def __init__(
        self,
        name: str,
        settings: sections.EnvConfig,
        num_envs: int,
        *,
        role: types.Role = types.Role.TRAIN,
        indices: Sequence[int] = (),
    ) -> None:
        """Checks the installation of Lab.

        name: a level, or DMLAB30. settings: `frame_skip`, `kwargs` (Lab's config), `level_cache`, `level_seeds`.
        role: evaluation holds out levels and seeds. indices: as in `registry.make`.

        Raises EnvironmentFailure if Lab is missing, or the level or cache cannot be used.
        """
        self._lab = _import()
        self.num_envs = num_envs
        self._frame_skip, self._num_seeds = settings.frame_skip, settings.level_seeds
        self._is_held_out = role is types.Role.EVALUATE
        self._config = _CONFIG | env_base.arguments(settings.kwargs, "Lab's config", '{"renderer": "hardware"}')
        self._renderer = str(self._config.pop("renderer", "software"))
        self._levels = levels(name)
        self._task = np.array([index % len(self._levels) for index in indices or range(num_envs)], np.int32)
        arrays = [
            types.ArraySpec(IMAGE, (int(self._config["height"]), int(self._config["width"]), 3), "uint8", 0, 255),
            types.ArraySpec(INSTRUCTION, (INSTRUCTION_BYTES,), "uint8", 0, 255, text=True),
        ]
        tasks = self._levels if len(self._levels) > 1 else ()
        actions = dict(num_actions=len(ACTIONS), frames_per_step=self._frame_skip)
        self.spec = types.EnvSpec.of_arrays(arrays, tasks=tasks, **actions)
        self._cache = make_level_cache(settings.level_cache) if settings.level_cache else None
        self._labs: list[Any] = []
        self._generators: list[np.random.Generator] = []
        self._image = np.zeros((num_envs, *self.spec.packed[0].shape), np.uint8)
        self._instruction = [""] * num_envs
        self._is_over = np.zeros(num_envs, bool)

    def reset(self, seeds: Sequence[int]) -> types.EnvStep:
        env_base.check_seeds(seeds, self.num_envs)
        self._generators = [np.random.default_rng(seed) for seed in seeds]
        for task in self._task[len(self._labs) :]:
            self._labs.append(self._make(int(task)))
        for index in range(self.num_envs):
            self._begin(index)
        return self._show(np.zeros(self.num_envs, np.float32))

    def step(self, actions: np.ndarray) -> types.EnvStep:
        env_base.check_actions(actions, self.num_envs, self.spec)
        reward = np.zeros(self.num_envs, np.float32)
        for index, action in enumerate(actions):
            if self._is_over[index]:
                self._begin(index)
            else:
                reward[index] = self._advance(index, ACTIONS[action])
        return self._show(reward)

    def render(self) -> np.ndarray:
        return env_base.enlarged(self._image[0], _ENLARGED)

    def close(self) -> None:
        labs, self._labs = self._labs, []
        env_base.close_all(labs)
        if self._cache is not None:
            self._cache.report()

    def _make(self, task: int) -> Any:
        level, config = self._levels[task], dict(self._config)
        if self._is_held_out:
            level, config["mixerSeed"] = level.replace("_train", "_test"), _MIXER_SEED
        if level in _TEST_LEVELS:
            config["allowHoldOutLevels"] = "true"
        path = f"{_FOLDER}{level}" if level in (*LEVELS, *_TEST_LEVELS) else level
        with env_base.failures_of(f"level {level!r} of DeepMind Lab cannot be made"):
            # Lab reads true and false in small letters.
            texts = {key: str(v).lower() if isinstance(v, bool) else str(v) for key, v in config.items()}
            shown = [_PIXELS, _TEXT]
            return self._lab.Lab(path, shown, config=texts, renderer=self._renderer, level_cache=self._cache)

    def _begin(self, index: int) -> None:
        seed = int(self._generators[index].integers(self._num_seeds or 2**31 - 1))
        with env_base.failures_of("DeepMind Lab raised in reset"):
            self._labs[index].reset(seed=seed)
            self._look(index)
        self._is_over[index] = False

    def _advance(self, index: int, action: np.ndarray) -> float:
        """Holds an action for some frames and returns the sum of their rewards."""
        lab = self._labs[index]
        with env_base.failures_of("DeepMind Lab raised in step"):
            reward = float(lab.step(action, num_steps=self._frame_skip))
            self._is_over[index] = not lab.is_running()
            if not self._is_over[index]:
                self._look(index)
        return reward

    def _look(self, index: int) -> None:
        shown = self._labs[index].observations()
        self._image[index] = shown[_PIXELS]
        text = shown[_TEXT]
        self._instruction[index] = text.decode(errors="replace") if isinstance(text, bytes) else str(text)

    def _show(self, reward: np.ndarray) -> types.EnvStep:
        text = packing.encode_texts(self._instruction, INSTRUCTION_BYTES)
        observation = packing.pack(self.spec.packed, {IMAGE: self._image, INSTRUCTION: text})
        task = self._task if self.spec.tasks else None
        return types.EnvStep(observation, reward, self._is_over.copy(), np.zeros(self.num_envs, bool), task=task)


def levels(name: str) -> tuple[str, ...]:
    """Returns the levels that a name means. Raises EnvironmentFailure with the nearest names for an unknown name."""
    if name == DMLAB30:
        return LEVELS
    known = (*LEVELS, *_TEST_LEVELS, *OTHER_LEVELS)
    if name in known or "/" in name:
        return (name,)
    advice = f"it has {len(known) + 1}, as {DMLAB30} and rooms_watermaze"
    raise env_base.no_such("DeepMind Lab has no game", name, [DMLAB30, *known], advice)


def _import() -> Any:
    try:
        return importlib.import_module("deepmind_lab")
    except ImportError as error:
        raise errors.EnvironmentFailure(
            f"dmlab:LEVEL needs the Python module deepmind_lab ({error}), which no package index has: "
            "build it from github.com/google-deepmind/lab (docs/users/build.md there), or by "
            "docker/worker-dmlab.Dockerfile"
        ) from None
