"""Trains an agent on CartPole, loads the best checkpoint and plays an episode with it.

    python examples/train_and_act.py [RUN_DIR]

The variable MAX_UPDATES limits the training; without it, it ends at a mean return of 495. The same call resumes.
"""

import os
import sys

import gymnasium

import seedzero

run_dir = sys.argv[1] if len(sys.argv) > 1 else "runs/cartpole"

ended = seedzero.train(preset="cartpole", run_dir=run_dir, max_updates=int(os.environ.get("MAX_UPDATES", "0")))
print(f"{ended.reason}: {ended.num_env_steps} steps, {ended.num_updates} updates, best return {ended.best_return}")
if not ended.is_finished:
    sys.exit("stopped; the same call resumes")

policy = seedzero.load(run_dir)
env = gymnasium.make("CartPole-v1")
observation, _ = env.reset(seed=0)
total, is_over = 0.0, False
while not is_over:
    observation, reward, terminated, truncated, _ = env.step(policy(observation))
    total, is_over = total + float(reward), terminated or truncated
print(f"the policy of update {policy.step} returns {total:g}")
