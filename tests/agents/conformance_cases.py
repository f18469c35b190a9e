"""Every agent at its plainest and with everything, each in small environments, and its own play.

Each agent at its plainest sees vectors with a mask; with everything it sees images beside vectors, and no mask.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from seedzero.agents import agent_table
from seedzero.api import conformance
from seedzero.config import configs, options
from seedzero.core import types
from seedzero.envs import pgx_rules

_MUZERO: Mapping[str, options.Value] = {
    "run.agent": "muzero",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 3,
    "muzero.unroll_steps": 2,
    "muzero.n_step": 2,
}
_VTRACE: Mapping[str, options.Value] = {
    "run.agent": "vtrace",
    "network.width": 8,
    "vtrace.unroll_length": 4,
    "vtrace.batch_size": 4,
}
_APEX: Mapping[str, options.Value] = {"run.agent": "apex", "network.width": 8}
_R2D2: Mapping[str, options.Value] = {
    "run.agent": "r2d2",
    "network.width": 8,
    "network.lstm_width": 6,
    "r2d2.burn_in": 2,
    "r2d2.sequence_length": 4,
    "r2d2.period": 3,
    "r2d2.n_step": 2,
}
_PPO: Mapping[str, options.Value] = {
    "run.agent": "ppo",
    "network.width": 8,
    "ppo.unroll_length": 4,
    "ppo.batch_size": 4,
    "ppo.num_epochs": 2,
}
_SAC: Mapping[str, options.Value] = {"run.agent": "sac", "network.width": 8}
_ALPHAZERO: Mapping[str, options.Value] = {
    "run.agent": "alphazero",
    "env.id": "pgx:jax_nim:NIM",
    "network.width": 8,
    "network.head_width": 8,
    "network.num_bins": 11,
    "search.num_simulations": 3,
    "alphazero.n_step": 3,
}
VARIANTS: Mapping[str, Mapping[str, options.Value]] = {
    **{name: {"run.agent": name} for name in configs.agent_names()},
    "muzero": _MUZERO,
    "muzero with everything": {
        **_MUZERO,
        "network.frame_stack": 3,
        "network.normalize_pixels": True,
        "muzero.target_network_updates": 5,
        "muzero.consistency_weight": 1.0,
        "muzero.value_prefix": True,
        "explore.epsilon": 0.3,
        "explore.first_steps": 6,
        "reanalyse.per_insert": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "muzero with a policy gradient": {**_MUZERO, "muzero.policy_gradient_weight": 0.5},
    "muzero with a memory": {
        **_MUZERO,
        "network.frame_stack": 3,
        "explore.epsilon": 0.1,
        "muzero.memory": "gru",
        "muzero.memory_width": 6,
        "muzero.burn_in": 2,
        "muzero.consistency_weight": 1.0,
        "muzero.target_network_updates": 2,
        "reanalyse.fresh_share": 0.5,
        "reanalyse.per_insert": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "muzero with chance": {
        **_MUZERO,
        "network.frame_stack": 2,
        "muzero.chance_codes": 5,
        "muzero.consistency_weight": 1.0,
        "reanalyse.per_insert": 1.0,
    },
    "vtrace": _VTRACE,
    "vtrace with everything": {
        **_VTRACE,
        "network.frame_stack": 3,
        "network.normalize_pixels": True,
        "network.lstm_width": 6,
        "reward.clip": 1.0,
        "vtrace.popart": True,
    },
    "apex": _APEX,
    "apex with everything": {
        **_APEX,
        "network.frame_stack": 3,
        "network.normalize_pixels": True,
        "apex.rescale_values": True,
        "reward.clip": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "r2d2": _R2D2,
    "r2d2 with everything": {
        **_R2D2,
        "network.frame_stack": 3,
        "network.normalize_pixels": True,
        "reward.clip": 1.0,
        "replay.priority_alpha": 0.6,
    },
    "ppo": _PPO,
    "ppo with everything": {
        **_PPO,
        "network.frame_stack": 3,
        "network.normalize_pixels": True,
        "network.lstm_width": 6,
        "ppo.clip_value": 0.2,
        "reward.clip": 1.0,
        "optimizer.decay_updates": 100,
        "ppo.decay_clip": True,
    },
    "sac": _SAC,
    "alphazero": _ALPHAZERO,
    "alphazero with everything": {
        **_ALPHAZERO,
        "replay.priority_alpha": 0.6,
        "search.policy": "puct",
        "alphazero.win_draw_loss": True,
    },
    "sac with everything": {**_SAC, "network.frame_stack": 3, "optimizer.clip_norm": 1.0},
}
"""Each agent at its plainest, and with all that changes the shapes of what it stores, carries or looks at."""
_ARRAYS = [types.ArraySpec("image", (4, 5, 1), "uint8", 0, 1), types.ArraySpec("vector", (3,), "float32")]
_TEXT = types.ArraySpec("text", (12,), "uint8", 0, 255, text=True)
_VECTORS: Mapping[str, tuple[float, ...]] = {"action_low": (-2.0, 0.0), "action_high": (2.0, 1.0)}
SPECS: Mapping[str, types.EnvSpec] = {
    "vector": types.EnvSpec((3,), "float32", 4),
    "image and vector": types.EnvSpec.of_arrays(_ARRAYS, num_actions=3),
    "text": types.EnvSpec.of_arrays([*_ARRAYS, _TEXT], num_actions=3),
    "masked": types.EnvSpec((3,), "float32", 4, has_action_mask=True),
    "rules": pgx_rules.game("jax_nim:NIM").spec(has_state=True),
    "continuous": types.EnvSpec((3,), "float32", 0, **_VECTORS),
    "image and vector, continuous": types.EnvSpec.of_arrays(_ARRAYS, num_actions=0, **_VECTORS),
}


def config(variant: str) -> configs.Config:
    return configs.override(configs.Config(), VARIANTS[variant])


@functools.cache
def case(variant: str, spec_name: str) -> conformance.AgentCase:
    """Returns an agent and its play, made once."""
    return conformance.case(agent_table.make, config(variant), SPECS[spec_name])
