#!/usr/bin/env bash
# Trains an Atari game with a Cloud TPU VM as learner: train.sh with a game and its platform; --help lists the flags.
set -- --game=Pong --platform=tpu-vm "$@"
# shellcheck source=gcp/train.sh
. "$(dirname "${BASH_SOURCE[0]}")/train.sh"
