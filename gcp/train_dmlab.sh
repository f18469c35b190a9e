#!/usr/bin/env bash
# Trains V-trace on DeepMind Lab by a custom job of Vertex AI: train.sh with a level; --help lists the flags.
set -- --env=dmlab:explore_goal_locations_small "$@"
# shellcheck source=gcp/train.sh
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"
