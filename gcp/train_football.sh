#!/usr/bin/env bash
# Trains V-trace on Google Research Football on Google Cloud: a custom job of Vertex AI.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/train_football.sh [--FLAG=VALUE ...] [-- --SECTION.KEY=VALUE ...]

Builds the images, pushes them and submits a custom job of Vertex AI: one learner with an accelerator and a pool of CPU machines that
play Football by EnvPool. The run directory is in your bucket; a restarted job, or the same command with the same --run, resumes from its
newest checkpoint. Run gcp/setup.sh once before.

There is no evaluation while training, because the learner's image has no EnvPool: the returns are those of the training episodes. Score
a checkpoint afterwards where EnvPool is, with `seedzero evaluate --run_dir=gs://BUCKET/runs/RUN`.

Settings of `seedzero train` follow after --.

EXAMPLES
  gcp/train_football.sh --dry_run
  gcp/train_football.sh --env=football:11_vs_11_easy_stochastic --accelerator=a100 --workers=8 --spot
  gcp/train_football.sh --run=empty-goal --workers=4 -- --seed=1
TEXT
}

env=football:academy_empty_goal agent=vtrace
flag env football:SCENARIO "a scenario"
flag agent NAME "learning algorithm"
accelerator=l4 workers=4 worker_machine=n1-highcpu-32 worker_extras=envpool
vertex_flags
common_flags
parse_flags "$@"

check_env football
run=${run:-$(run_of_env)}
check_train_flags
[ "$workers" -ne 0 ] || die "--workers=0: the learner's image has no EnvPool; take at least 1"
train_on_vertex football --env="$env" --agent="$agent" --evaluation.every_updates=0 ${settings[@]+"${settings[@]}"}
