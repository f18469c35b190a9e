"""MuZero's part of the presets."""

from __future__ import annotations

from collections.abc import Mapping

from seedzero.config import options, preset_part

# Two cores afford a few calls of a small network a step, and small batches.
_PIXELS_ON_CPU: Mapping[str, options.Value] = {
    "search.num_simulations": 4,
    "search.num_considered": 4,
    "optimizer.learning_rate": 0.0005,
    "optimizer.warmup_updates": 100,
    "replay.capacity": 100_000,
    "replay.min_steps": 500,
    "replay.batch_size": 16,
    "replay.samples_per_insert": 0.5,
}
_PIXELS: Mapping[str, options.Value] = {
    "search.num_simulations": 16,
    "search.num_considered": 8,
    "network.kind": "resnet",
    "network.frame_stack": 4,
    "network.num_bins": 601,
    "muzero.n_step": 10,
    "muzero.shift_pixels": 4,
    "optimizer.learning_rate": 8e-4,
    "optimizer.warmup_updates": 500,
}

PARTS: Mapping[str, preset_part.Part] = {
    "catch": preset_part.Part(
        {
            "search.num_simulations": 8,
            "search.num_considered": 3,
            "network.kind": "conv",
            "network.width": 32,
            "network.num_bins": 21,
            "network.support_limit": 2.0,
            "muzero.n_step": 9,
            "replay.capacity": 32_000,
            "replay.min_steps": 500,
            "replay.batch_size": 128,
            "replay.samples_per_insert": 16.0,
        },
    ),
    # The CartPole probe of the design: a greedy mean of 475 in 20 to 72 s on two cores.
    "cartpole": preset_part.Part(
        {
            "search.num_simulations": 16,
            "search.num_considered": 2,
            "network.kind": "mlp",
            "network.width": 64,
            "muzero.n_step": 20,
            "muzero.target_network_updates": 100,
            "optimizer.learning_rate": 0.002,
            "replay.capacity": 64_000,
            "replay.min_steps": 1_280,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 32.0,
        },
    ),
    # The openings bring positions that its own moves, all good by the end, leave out.
    "tictactoe": preset_part.Part(
        {
            "search.num_simulations": 32,
            "search.num_considered": 9,
            "search.gumbel_scale": 4.0,
            "search.min_value_range": 1.0,
            "network.kind": "conv",
            "network.width": 64,
            "network.num_bins": 21,
            "network.support_limit": 1.0,
            "muzero.discount": 1.0,
            "muzero.n_step": 2,
            "muzero.stored_value": "policy",
            "optimizer.schedule": "cosine",
            "optimizer.decay_updates": 30_000,
            "replay.capacity": 64_000,
            "replay.min_steps": 1_000,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 16.0,
        },
    ),
    # Random openings show it more positions than noise in its moves, and leave the values of its moves as they are.
    "connect_four": preset_part.Part(
        {
            "search.num_simulations": 32,
            "search.num_considered": 5,
            "search.min_value_range": 1.0,
            "network.kind": "conv",
            "network.width": 128,
            "network.head_width": 128,
            "network.num_bins": 21,
            "network.support_limit": 1.0,
            "muzero.discount": 1.0,
            "muzero.n_step": 2,
            "muzero.stored_value": "policy",
            "optimizer.schedule": "cosine",
            "optimizer.decay_updates": 50_000,
            "replay.capacity": 64_000,
            "replay.min_steps": 1_000,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 8.0,
        },
    ),
    "spiel": preset_part.Part(
        {
            "search.num_simulations": 32,
            "search.num_considered": 16,
            "search.gumbel_scale": 2.0,
            "search.min_value_range": 1.0,
            "network.width": 256,
            "network.head_width": 128,
            "network.num_bins": 121,
            "network.support_limit": 6.0,
            "muzero.discount": 1.0,
            "muzero.n_step": 4,
            "optimizer.learning_rate": 0.001,
            "replay.capacity": 256_000,
            "replay.min_steps": 2_000,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 8.0,
        },
    ),
    # Stored root values, not a target network: its six observations a window would take most of an update's time.
    # The smallest range of values and the entropy keep the policy undecided where all actions are alike: without
    # them agents go the same way every time, and never see what would have saved them where it ends.
    "minatar": preset_part.Part(
        {
            "search.num_simulations": 8,
            "search.num_considered": 4,
            "search.min_value_range": 1.0,
            "network.kind": "conv",
            "network.width": 64,
            "muzero.discount": 0.99,
            "muzero.n_step": 5,
            "muzero.entropy_weight": 0.5,
            "optimizer.learning_rate": 0.001,
            "optimizer.schedule": "cosine",
            "optimizer.decay_updates": 60_000,
            "replay.capacity": 256_000,
            "replay.min_steps": 2_000,
            "replay.batch_size": 128,
            "replay.samples_per_insert": 4.0,
        },
    ),
    # With a discount of 0.99 LunarLander's runs often learn to hover: landing is too far away to count for much.
    "vector": preset_part.Part(
        {
            "search.num_simulations": 16,
            "search.num_considered": 4,
            "network.kind": "mlp",
            "network.width": 64,
            "network.head_width": 64,
            "muzero.discount": 0.995,
            "muzero.n_step": 20,
            "muzero.target_network_updates": 100,
            "optimizer.learning_rate": 0.002,
            "replay.capacity": 128_000,
            "replay.min_steps": 1_280,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 16.0,
        },
    ),
    "continuous": preset_part.Part(
        {
            "search.num_simulations": 16,
            "search.num_sampled": 16,
            "search.num_considered": 8,
            "network.width": 64,
            "network.head_width": 64,
            "muzero.discount": 0.97,
            "muzero.n_step": 10,
            "muzero.target_network_updates": 100,
            "optimizer.learning_rate": 0.002,
            "replay.capacity": 128_000,
            "replay.min_steps": 1_280,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 16.0,
        },
    ),
    "pixels": preset_part.Part(
        {
            **_PIXELS,
            "replay.capacity": 200_000,
            "replay.min_steps": 5_000,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 4.0,
        },
        on_cpu=_PIXELS_ON_CPU,
    ),
    # With the small network, on one H200 and without sticky actions, training episodes of Pong return 18 after 216 s
    # and 2.2 million steps. The middle one is for what comes after the first minutes of a harder game.
    "atari": preset_part.Part(
        {
            **_PIXELS,
            "network.resnet_size": "middle",
            "muzero.discount": 0.997,
            "optimizer.clip_norm": 5.0,
            "replay.capacity": 500_000,
            "replay.min_steps": 10_000,
            "replay.batch_size": 512,
            "replay.samples_per_insert": 4.0,
        },
        on_cpu={**_PIXELS_ON_CPU, "network.resnet_size": "small"},
    ),
    # After EfficientZero V2 (Wang et al. 2024, appendix): an update of 256 windows for each step, unroll 5, n-step
    # 5, consistency, priorities, fresh targets. Few environments, so that acting is never far from the newest
    # parameters.
    "atari-100k": preset_part.Part(
        {
            **_PIXELS,
            "muzero.discount": 0.997,
            "muzero.n_step": 5,
            "muzero.intensity_scale": 0.05,
            "muzero.consistency_weight": 2.0,
            "optimizer.learning_rate": 0.0005,
            "optimizer.warmup_updates": 1_000,
            "optimizer.clip_norm": 5.0,
            "replay.capacity": 100_000,
            "replay.min_steps": 2_000,
            "replay.batch_size": 256,
            "replay.samples_per_insert": 256.0,
            "replay.priority_alpha": 0.6,
            "reanalyse.per_insert": 32.0,
        },
        on_cpu={**_PIXELS_ON_CPU, "reanalyse.per_insert": 0.0},
    ),
    # MuKoe's numbers: 256 channels with 10 and 6 blocks, batches of 512, 8 samples per insert, cosine decay from
    # 1e-4.
    "atari-large": preset_part.Part(
        {
            **_PIXELS,
            "search.num_simulations": 50,
            "search.num_considered": 16,
            "network.resnet_size": "large",
            "network.head_width": 256,
            "muzero.discount": 0.997,
            "optimizer.learning_rate": 0.0001,
            "optimizer.schedule": "cosine",
            "optimizer.warmup_updates": 1_000,
            "optimizer.decay_updates": 1_000_000,
            "optimizer.clip_norm": 32.0,
            "replay.capacity": 1_000_000,
            "replay.min_steps": 50_000,
            "replay.batch_size": 512,
            "replay.samples_per_insert": 8.0,
        },
    ),
}
