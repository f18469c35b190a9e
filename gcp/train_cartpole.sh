#!/usr/bin/env bash
# Trains CartPole, the cheapest test on Google Cloud: train.sh with this game; --help lists the flags.
set -- --game=cartpole "$@"
# shellcheck source=gcp/train.sh
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"
