"""Randomly changes the images that MuZero's loss sees.

Shape letters: B batch, P observed positions of a window.
"""

from __future__ import annotations

import jax

from seedzero.agents import muzero_loss, muzero_model
from seedzero.core import types
from seedzero.ops import augment
from seedzero.replay import windowing


def augment_windows(parts: muzero_model.Parts, windows: windowing.Windows, key: jax.Array) -> windowing.Windows:
    """Returns windows with randomly changed observations, for the loss; targets use the original observations."""
    config = parts.config.muzero
    if not config.shift_pixels and not config.intensity_scale:
        return windows
    observation = windowing.observed(windows, slice(muzero_loss.num_seen(config)))
    before = {} if windows.before is None else dict(windows.before.observation)
    # All images of an observation move by the same pixels: each is drawn with the same key.
    for array in parts.spec.arrays:
        if array.is_grid:
            observation[array.name] = _augment(parts, array, observation[array.name], key)
            if before:
                before[array.name] = _augment(parts, array, before[array.name], jax.random.fold_in(key, 1))
    windows = windows._replace(observation=observation)
    return windows if windows.before is None else windows._replace(before=windows.before._replace(observation=before))


def _augment(parts: muzero_model.Parts, array: types.ArraySpec, observation: jax.Array, key: jax.Array) -> jax.Array:
    """Returns randomly changed images [B, P, ...]."""
    config, (height, width) = parts.config.muzero, array.shape[:2]
    # Frames of a stack without channels are side by side.
    num_frames = parts.config.network.frame_stack if len(array.shape) == 2 else 1
    images = observation.reshape(observation.shape[0] * observation.shape[1], height, num_frames, width, -1)
    shift_key, intensity_key = jax.random.split(key)
    if config.shift_pixels:
        images = augment.random_shift(shift_key, images, config.shift_pixels, axes=(1, 3))
    if config.intensity_scale:
        images = augment.random_intensity(intensity_key, images, config.intensity_scale)
    return images.reshape(observation.shape)
