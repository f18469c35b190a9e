#!/usr/bin/env bash
# Trains MuZero on an Atari game on Google Cloud: a custom job of Vertex AI.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/train_atari.sh [--FLAG=VALUE ...] [-- --SECTION.KEY=VALUE ...]

Builds the images, pushes them and submits a custom job of Vertex AI: one learner with an accelerator and a pool of CPU machines that
step the games. The run directory is in your bucket; a restarted job, or the same command with the same --run, resumes from its newest
checkpoint. The job ends with training. Run gcp/setup.sh once before.

Settings of `seedzero train` follow after --.

EXAMPLES
  gcp/train_atari.sh --dry_run
  gcp/train_atari.sh --game=Breakout --accelerator=a100 --workers=4 --spot
  gcp/train_atari.sh --run=pong-1 -- --seed=1 --max_env_steps=50000000
TEXT
}

game=Pong
flag game NAME "of the Arcade Learning Environment"
flag env atari:NAME "the same as seedzero train takes it, in place of --game"
accelerator=l4 max_hours=4
vertex_flags
common_flags
parse_flags "$@"

case "$game" in *[!A-Za-z0-9]*) die "--game=$game: expected a name as Pong or SpaceInvaders" ;; esac
env=${env:-atari:$game}
check_env atari
run=${run:-$(run_of_env)}
check_train_flags
worker_machine=$(atari_workers "$accelerator")
measured="200 million frames are the preset's end: 1.7 to 3.1 hours at the speed of an H100 with 16 cores, not measured on $accelerator"
[ "$accelerator" != cpu ] || measured="on CPUs the preset ends after 16 million frames: an hour at the speed of two cores in Pong"
train_on_vertex atari --env="$env" ${settings[@]+"${settings[@]}"}
