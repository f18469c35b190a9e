"""An environment that raises for illegal actions: every agent trains, evaluates and plays there as a loaded policy."""

from __future__ import annotations

import e2e_envs
import e2e_harness as harness
import numpy as np
import pytest

import seedzero
from seedzero.config import configs, options

_SMALL = (
    "--preset=vector",
    "--run.seed=1",
    "--worker.num=1",
    "--worker.envs_per_group=4",
    "--worker.num_groups=2",
    "--evaluation.every_updates=10",
    "--evaluation.episodes=4",
    "--evaluation.num_envs=4",
    "--metrics.tensorboard=false",
    "--max_updates=30",
)
_REPLAY = ("--replay.min_steps=100", "--replay.capacity=2000", "--replay.batch_size=16")
_PLACES = {"muzero": "info", "vtrace": "method", "apex": "part", "r2d2": "info", "ppo": "part"}
_OWN = {
    "muzero": (
        *_REPLAY,
        "--network.width=8",
        "--network.head_width=8",
        "--search.num_simulations=4",
        "--muzero.entropy_weight=0.1",
        "--muzero.off_policy_correction=true",
        "--muzero.target_network_updates=10",
        "--reanalyse.fresh_share=0.5",
        "--explore.epsilon=0.3",
        "--explore.first_steps=50",
    ),
    "vtrace": ("--network.width=8", "--vtrace.unroll_length=5", "--vtrace.batch_size=4"),
    "apex": (*_REPLAY, "--network.width=8"),
    "r2d2": (*_REPLAY, "--network.width=8", "--network.lstm_width=8", "--r2d2.burn_in=2", "--r2d2.sequence_length=4"),
    "ppo": ("--network.width=8", "--ppo.unroll_length=8", "--ppo.batch_size=4", "--ppo.num_minibatches=4"),
}


def test_the_cases_are_all_agents_with_discrete_actions() -> None:
    sections = configs.Config()
    discrete = {
        name
        for name in configs.agent_names()
        if isinstance(section := getattr(sections, name), options.AgentSection)
        and section.PLAYS_DISCRETE
        and not section.FAMILIES
    }
    assert discrete == _OWN.keys()


@pytest.mark.parametrize(
    "agent", [pytest.param(name, marks=pytest.mark.slow) if name != "ppo" else name for name in _OWN]
)
def test_no_agent_takes_an_illegal_action(agent: str, host: harness.Host) -> None:
    path, place = host.directory / agent, _PLACES[agent]
    flags = ("--env=gym:e2e_envs:Masked-v0", f'--env.kwargs={{"place": "{place}"}}', f"--agent={agent}")
    ended = host.train(path, *_SMALL, *flags, *_OWN[agent]).wait()
    assert ended.code == 0 and "is illegal" not in ended.err, ended.err
    if agent != "muzero":
        again = host.seedzero("evaluate", f"--run_dir={path}", "--episodes=6")
        assert again.code == 0 and again.json["mean_length"] == e2e_envs.EPISODE_LENGTH, again.err
    if agent != "vtrace":  # a recording evaluates, with the search's numbers
        host.seedzero("record", f"--run_dir={path}", f"--out={path / 'records'}", "--episodes=1").ok()
    _play(seedzero.load(path, trust_run_dir=True), place)


def _play(policy: seedzero.Policy, place: str) -> None:
    env = e2e_envs.Masked(place)
    assert policy.spec.has_action_mask
    for explore in (False, True):
        (observation, info), reward, is_over = env.reset(seed=3), 0.0, False
        for _ in range(40):
            if is_over:
                policy.reset()
                (observation, info), reward = env.reset(), 0.0
            masks = {"info": info.get("action_mask"), "method": env._mask, "part": None}
            action = policy(observation, reward=reward, action_mask=masks[place], explore=explore)
            observation, reward, terminated, truncated, info = env.step(np.int64(action))
            is_over = terminated or truncated
