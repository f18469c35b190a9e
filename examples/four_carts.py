"""Four carts in one environment, each with a policy of its own: cd examples && python four_carts.py [RUN_DIR]"""

import os
import sys
from typing import Any

import gymnasium
import pettingzoo

import seedzero


class Herd(pettingzoo.ParallelEnv):  # a cart is out when its pole falls, and the others go on
    def __init__(self) -> None:
        self.metadata, self.possible_agents = {"render_modes": []}, [f"cart_{number}" for number in range(4)]
        self._carts = {name: gymnasium.make("CartPole-v1") for name in self.possible_agents}
        self.observation_space = lambda name: self._carts[name].observation_space
        self.action_space = lambda name: self._carts[name].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        shown = {name: self._carts[name].reset(seed=seed and seed + at) for at, name in enumerate(self.agents)}
        return tuple({name: values[part] for name, values in shown.items()} for part in range(2))

    def step(self, actions: dict[str, int]) -> Any:
        after = {name: self._carts[name].step(action) for name, action in actions.items()}
        self.agents = [name for name in self.agents if not (after[name][2] or after[name][3])]
        return tuple({name: values[part] for name, values in after.items()} for part in range(5))


if __name__ == "__main__":
    settings: dict[str, Any] = {"max_updates": int(os.environ.get("MAX_UPDATES", "2000")), "seats.policies": "each"}
    run_dir = sys.argv[1] if len(sys.argv) > 1 else "runs/carts"
    ended = seedzero.train("pettingzoo:four_carts:Herd", run_dir=run_dir, stop_at_return=495, **settings)
    returns = seedzero.evaluate(ended.run_dir, 40).task_returns or {}
    print(f"{ended.reason};", ", ".join(f"{name} {value:.0f}" for name, value in returns.items()))
