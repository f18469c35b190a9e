#!/usr/bin/env bash
# The cheapest test on Google Cloud: CartPole on CPU machines, a custom job of Vertex AI that ends after minutes.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/train_cartpole.sh [--FLAG=VALUE ...] [-- --SECTION.KEY=VALUE ...]

Trains CartPole on small CPU machines, a test of the whole setup before anything expensive: images, bucket, rights, connections of
workers to their learner, checkpoints. The job ends once CartPole is learned. Run gcp/setup.sh once before.

Settings of `seedzero train` follow after --.

EXAMPLES
  gcp/train_cartpole.sh --dry_run
  gcp/train_cartpole.sh --run=first-try
TEXT
}

accelerator=cpu worker_machine=e2-standard-4 max_hours=1
vertex_flags
common_flags
parse_flags "$@"

run=${run:-cartpole-$(date -u +%Y%m%d-%H%M%S)}
check_train_flags
train_on_vertex cartpole ${settings[@]+"${settings[@]}"}
