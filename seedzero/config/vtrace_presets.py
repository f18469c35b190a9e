"""V-trace's part of the presets."""

from __future__ import annotations

from collections.abc import Mapping

from seedzero.config import options, preset_part

_SMALL: Mapping[str, options.Value] = {
    "vtrace.optimizer": "adam",
    "vtrace.learning_rate": 2e-3,
    "vtrace.width": 64,
    "vtrace.batch_size": 8,
    "evaluation.every_updates": 200,
}
_IMAGES: Mapping[str, options.Value] = {
    "vtrace.frame_stack": 4,
    "vtrace.clip_reward": 1.0,
    "training.publish_every": 1,
}
# Two cores learn from some hundred steps a second with the shallow network, from some dozen with the deep one.
_IMAGES_ON_CPU: Mapping[str, options.Value] = {"vtrace.torso": "shallow", "vtrace.batch_size": 8}

PARTS: Mapping[str, preset_part.Part] = {
    "catch": preset_part.Part({**_SMALL, "vtrace.unroll_length": 10}),
    # Values up to 100 take several hundred thousand steps to learn, values up to 5 one hundred thousand.
    "cartpole": preset_part.Part({**_SMALL, "vtrace.reward_scale": 0.05}),
    "vector": preset_part.Part(
        {**_SMALL, "vtrace.discount": 0.995, "vtrace.reward_scale": 0.05, "evaluation.every_updates": 2_000}
    ),
    "minatar": preset_part.Part({**_SMALL, "vtrace.width": 128, "evaluation.every_updates": 5_000}),
    "pixels": preset_part.Part(_IMAGES, on_cpu=_IMAGES_ON_CPU),
    # IMPALA's Atari settings (table G.1): 50 million steps are 78,125 updates of 32 unrolls of 20.
    "atari": preset_part.Part(
        {
            **_IMAGES,
            "env.frame_size": 84,
            "env.full_action_space": True,
            "env.life_loss": True,
            "vtrace.decay_updates": 78_125,
        },
        on_cpu={**_IMAGES_ON_CPU, "vtrace.decay_updates": 312_500},
    ),
}
