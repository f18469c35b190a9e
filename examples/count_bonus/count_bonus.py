"""PPO with a bonus for rare observations, in an environment that random steps hardly ever solve.

    cd examples/count_bonus
    seedzero train --env=python:count_bonus:deep_sea --agent=ppo --ppo.bonus=count_bonus:make

The bonus is 1 / sqrt(N), N: visits of the observation's cell so far (Bellemare et al. 2016; cells by the signs of
random projections: Tang et al. 2017). Both names are kept in the run directory; docs/tutorials/own_agent.md explains
the parts.
"""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from seedzero.agents import bonus

SCALE, NUM_BITS = 1.0, 18


def make(spec: Any) -> bonus.Bonus:
    """Returns the bonus for an EnvSpec (seedzero.core.types); its state has a count for each cell."""
    sizes = {array.name: int(np.prod(array.shape)) for array in spec.arrays}
    random = np.random.default_rng(0)
    projections = {name: random.normal(size=(size, NUM_BITS)).astype(np.float32) for name, size in sizes.items()}

    def cells(observation: dict[str, jax.Array]) -> jax.Array:
        """Returns the cells [B, L] int32 of observations {name: [B, L, ...]}."""
        flat = {name: x.reshape(*x.shape[:2], -1).astype(jnp.float32) for name, x in observation.items()}
        signs = sum(flat[name] @ projection for name, projection in projections.items()) > 0
        return jnp.sum(signs * 2 ** jnp.arange(NUM_BITS), axis=-1)

    def add(counts: jax.Array, windows: Any, axis_name: str | None) -> tuple[jax.Array, jax.Array]:
        """Counts the observation after each step, and returns the bonus of the step."""
        found = cells({name: x[:, 1:] for name, x in windows.observation.items()})
        is_step = (windows.weight > 0)[:, None] & ~windows.first[:, 1:]  # without padding and first observations
        visits = jnp.zeros_like(counts).at[found].add(is_step)
        if axis_name is not None:
            visits = jax.lax.psum(visits, axis_name)  # all devices keep the same counts
        counts = counts + visits
        return counts, SCALE / jnp.sqrt(jnp.maximum(counts[found], 1.0))

    return bonus.Bonus(init=lambda key: jnp.zeros(2**NUM_BITS), add=add)


class DeepSea(gymnasium.Env[Any, Any]):
    """A square of cells; each step goes one down, and left or right. Right costs a little; the last cell is worth 1.

    Only one way in 2^size leads there (Osband et al. 2020, "bsuite": deep sea, without its random actions).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, size: int = 12, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Discrete(size * size)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._size, self._row, self._column = size, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._row = self._column = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        is_last = self._row == self._size - 1
        reward = -0.01 / self._size * float(action) + float(is_last and action == 1 and self._column == self._row)
        self._column = max(0, self._column + (1 if action == 1 else -1))
        self._row += not is_last
        self._column = min(self._column, self._size - 1)
        return self._row * self._size + self._column, reward, is_last, False, {}

    def render(self) -> np.ndarray:
        shown = np.zeros((self._size, self._size, 3), np.uint8)
        shown[self._row, self._column] = 255
        return shown.repeat(16, axis=0).repeat(16, axis=1)


deep_sea = DeepSea
