#!/usr/bin/env bash
# Trains V-trace on Football by a custom job of Vertex AI: train.sh with a scenario; --help lists the flags.
set -- --env=football:academy_empty_goal "$@"
# shellcheck source=gcp/train.sh
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"
