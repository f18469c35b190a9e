"""Scores a run that `train_and_act.py` has made, and looks at one search.

python examples/evaluate_run.py RUN_DIR [EPISODES]
"""

import sys

import numpy as np

import seedzero

run_dir, episodes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20

for step in ("last", None):
    score = seedzero.evaluate(run_dir, episodes, step=step, seed=1)
    print(
        f"update {score.step}: return {score.mean_return:.4g} +- {score.std_return:.3g} in {score.episodes} episodes"
    )

policy = seedzero.load(run_dir)
tilted = np.array([0.0, 0.0, 0.05, 0.3], np.float32)  # the pole falls to the right
found = policy.search(tilted, num_simulations=32, return_tree=True)
print(f"action {found.action}, value {found.value:.3g}, visits {found.visit_counts}, prior {found.prior.round(2)}")
print(f"a tree of depth {found.max_depth}; `dot -Tsvg` draws it:")
print(seedzero.search.to_dot(found.tree)[:200], "...")
