#!/usr/bin/env bash
# Trains V-trace on DeepMind Lab on Google Cloud: a custom job of Vertex AI.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/train_dmlab.sh [--FLAG=VALUE ...] [-- --SECTION.KEY=VALUE ...]

Builds the images, pushes them and submits a custom job of Vertex AI: one learner with an accelerator and a pool of CPU machines that
run DeepMind Lab; their image builds Lab, which takes an hour or more, for each commit anew: --build=docker keeps what this machine has
built. Levels that were compiled are kept in your bucket for all workers and runs. The run directory is in your bucket, too; a restarted
job, or the same command with the same --run, resumes from its newest checkpoint. Run gcp/setup.sh once before.

There is no evaluation while training, because the learner's image has no Lab: the returns are those of the training episodes. Score a
checkpoint afterwards where Lab is, with `seedzero evaluate --run_dir=gs://BUCKET/runs/RUN`.

Settings of `seedzero train` follow after --.

EXAMPLES
  gcp/train_dmlab.sh --dry_run
  gcp/train_dmlab.sh --env=dmlab:rooms_watermaze --accelerator=a100 --workers=16 --spot
  gcp/train_dmlab.sh --env=dmlab:dmlab30 --run=all-levels --workers=32 -- --dmlab.level_seeds=1000
TEXT
}

env=dmlab:explore_goal_locations_small agent=vtrace
flag env dmlab:LEVEL "a level, or dmlab:dmlab30 for all 30"
flag agent NAME "learning algorithm"
# A worker is one process: eight engines keep the four threads of a small machine busy.
accelerator=l4 workers=8 worker_machine=e2-standard-4 worker_file=worker-dmlab
vertex_flags
common_flags
parse_flags "$@"

check_env dmlab
run=${run:-$(run_of_env)}
check_train_flags
[ "$workers" -ne 0 ] || die "--workers=0: the learner's image has no Lab; take at least 1"
train_on_vertex dmlab --env="$env" --agent="$agent" --evaluation.every_updates=0 \
    --dmlab.level_cache="gs://$bucket/dmlab-levels" ${settings[@]+"${settings[@]}"}
