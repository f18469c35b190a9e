#!/usr/bin/env bash
# Trains an Atari game by a custom job of Vertex AI: train.sh with a game; --help lists the flags.
set -- --game=Pong "$@"
# shellcheck source=gcp/train.sh
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"
