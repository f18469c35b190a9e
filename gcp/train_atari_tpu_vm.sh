#!/usr/bin/env bash
# Trains MuZero on an Atari game with a Cloud TPU VM as learner and a group of Compute Engine machines as workers.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    cat <<'TEXT'
usage: gcp/train_atari_tpu_vm.sh [--FLAG=VALUE ...] [-- --SECTION.KEY=VALUE ...]

Requests a TPU VM (a queued resource, or at once), waits for it, and starts a managed instance group of workers. Every machine runs a
container: the learner writes its address into the run directory, workers read it there and follow its changes.

The same command with the same --run replaces missing resources: it requests a preempted TPU again and resumes from the newest
checkpoint. TPU and workers are billed until gcp/stop.sh ends them, also after training.

Settings of `seedzero train` follow after --. Run gcp/setup.sh once before.

EXAMPLES
  gcp/train_atari_tpu_vm.sh --dry_run
  gcp/train_atari_tpu_vm.sh --run=pong-tpu --zone=us-central1-a --accelerator=v5litepod-4 --spot
  gcp/train_atari_tpu_vm.sh --run=pong-16 --zone=us-central1-a --num_learners=4
  gcp/train_atari_tpu_vm.sh --run=pong-v6e --zone=us-east5-a --region=us-east5 --accelerator=v6e-1 --workers=4
TEXT
}

takes_settings=true
game=Pong zone="" accelerator="" num_learners=1 workers="" runtime="" provisioning=queued
accelerators="v5litepod-1 v5litepod-4 v5litepod-8 v6e-1 v6e-4 v6e-8"
flag run NAME "name of the run; a run in the bucket resumes (default: made from the time)"
flag game NAME "of the Arcade Learning Environment"
flag env atari:NAME "the same as seedzero train takes it, in place of --game"
flag zone NAME "of the TPU and the workers (default: REGION-a)"
flag accelerator TYPE "one host's: ${accelerators// /, } (default: v5litepod-4); of several hosts: v5litepod-CHIPS or v6e-CHIPS"
flag num_learners N "hosts of the run, on one TPU slice with 4 chips for each: 1, 4, 8 or 16"
flag runtime VERSION "software of the TPU VM (default: the one for the accelerator)"
flag provisioning 'queued|now' "wait in the queue for a TPU, or fail if there is none now"
flag workers N "machines that step environments (default: 2 for each learner); 0: the TPU's own hosts alone do"
flag worker_machine TYPE "machine type of each (default: n1-highcpu-16 for one chip, else n1-highcpu-32)"
switch spot "spot machines for all: cheaper, may be taken away at any time"
flag build 'cloud|docker|none' "builder of the images: Cloud Build, docker on this machine, or none (existing images)"
flag network NAME "of all machines, with the firewall rule of gcp/setup.sh"
common_flags
parse_flags "$@"

zone=${zone:-$region-a}
case "$game" in *[!A-Za-z0-9]*) die "--game=$game: expected a name as Pong or SpaceInvaders" ;; esac
env=${env:-atari:$game}
check_env atari
run=${run:-$(run_of_env)}
check_choice num_learners 1 4 8 16
if [ "$num_learners" -gt 1 ]; then
    accelerators="v5litepod-$((4 * num_learners)) v6e-$((4 * num_learners))"
    accelerator=${accelerator:-${accelerators%% *}}
fi
accelerator=${accelerator:-v5litepod-4}
workers=${workers:-$((2 * num_learners))}
check_train_flags
[ $((workers % num_learners)) -eq 0 ] ||
    die "--workers=$workers: each of $num_learners learners has as many workers as the others; give a multiple of $num_learners"
hosts=() host_settings=()
if [ "$num_learners" -gt 1 ]; then
    hosts=(--hosts="$num_learners") host_settings=(--cluster.num_hosts="$num_learners")
    [ "$workers" -eq 0 ] || worker_settings=(--workers=0 --worker.num_remote=$((workers / num_learners)))
fi
check_choice provisioning queued now
settings=("${worker_settings[@]}" --env="$env" ${settings[@]+"${settings[@]}"})
check_machine $(($(num_devices) / num_learners)) "${settings[@]}"
check_settings atari "${settings[@]}" ${host_settings[@]+"${host_settings[@]}"}
case "$accelerator" in
    v5litepod-*) runtime=${runtime:-v2-alpha-tpuv5-lite} ;;
    v6e-*) runtime=${runtime:-v2-alpha-tpuv6e} ;;
esac
worker_machine=$(atari_workers "$accelerator")
# All hosts of a slice are machines of one kind.
host_kind=$accelerator
[ "$num_learners" -eq 1 ] || host_kind=${accelerator%-*}-4

name=$prefix-$run
# The service account's roles limit its rights; the TPU API does not know the short name of this scope.
scope=https://www.googleapis.com/auth/cloud-platform
tag=$(image_tag)
learner_image=$images/learner-tpu:$tag
worker_image=$images/worker:$tag
address=gs://$bucket/runs/$run/learner_address

plan_title
plan_machines learner "$num_learners" compute "$spot" "$host_kind"
[ "$workers" -eq 0 ] || plan_machines workers "$workers" compute "$spot" "$worker_machine"
plan_sum
plan_line run "$run in gs://$bucket/runs/$run, zone $zone; billed until gcp/stop.sh ends it"
plan_line images "$learner_image, $worker_image"
confirm "Go on?"
make_scratch

ensure_image learner EXTRA=tpu "$learner_image"
[ "$workers" -eq 0 ] || ensure_image worker EXTRAS= "$worker_image"

printf '%s\n' --secret="$secret" --address_object="$address" ${hosts[@]+"${hosts[@]}"} train --preset=atari --run_dir="gs://$bucket/runs/$run" --trust_run_dir \
    "${settings[@]}" | write_body "$(body_path learner.args)"
printf '%s\n' --secret="$secret" --address_object="$address" worker | write_body "$(body_path worker.args)"

tags=$prefix
if [ "$num_learners" -gt 1 ]; then # JAX and the TPU's runtime choose ports of their own between the hosts
    tags=$prefix,$prefix-host
    ensure_firewall_rule "$prefix-host" tcp "$prefix-host" # stop.sh removes it with the last TPU
fi
tpu_flags=(--zone="$zone" --network="$network" --service-account="$train_account" --scopes="$scope"
    --tags="$tags" --labels="app=$prefix,run=$run"
    --metadata="^;^seedzero-image=$learner_image;seedzero-docker-flags=--privileged --user=root --env=JAX_PLATFORMS=tpu,cpu"
    --metadata-from-file="startup-script=$folder/startup.sh,seedzero-arguments=$(body_path learner.args)")
[ "$spot" = false ] || tpu_flags+=(--spot)

# A TPU that is there goes on with what it began with, and a finished learner stays finished.
check_unchanged() { # KIND KEY: where gcloud keeps the metadata
    local before
    before=$(look compute tpus "$1" describe "$name" --zone="$zone" --format="value($2.seedzero-arguments)")
    [ -z "$before" ] || [ "$before" = "$(cat "$(body_path learner.args)")" ] ||
        die "TPU $name is there, and trains with other settings; gcp/stop.sh --run=$run ends it, then the same command goes on with these"
}

queued_state() { look compute tpus queued-resources describe "$name" --zone="$zone" --format='value(state.state)'; }

wait_for_tpu() { # polls: the API has no call that waits for a queue
    local state before="" failures=0
    while :; do
        # Whoever leaves here has a request that may be granted, and billed, at any time.
        if state=$(queued_state); then
            failures=0
        elif failures=$((failures + 1)) && [ "$failures" -lt 30 ]; then
            say "TPU $name: gcloud does not tell its state, see above; asking again"
            state=$before
        else
            die "TPU $name is requested and will be billed, but gcloud did not tell its state $failures times; gcp/stop.sh --run=$run removes it"
        fi
        [ "$state" = "$before" ] || say "TPU $name: $state"
        before=$state
        case "$state" in
            ACTIVE) return ;;
            FAILED | SUSPENDED | SUSPENDING) die "TPU $name is $state; gcp/stop.sh --run=$run removes it, then the same command requests a new one" ;;
        esac
        sleep "${POLL_SECONDS:-20}"
    done
}

if [ "$provisioning" = queued ]; then
    if is_there compute tpus queued-resources describe "$name" --zone="$zone"; then
        case "$(queued_state)" in
            # Preempted, or never granted: a dead request blocks a new one.
            SUSPENDED | FAILED) cloud compute tpus queued-resources delete "$name" --zone="$zone" --force ;;
            *) check_unchanged queued-resources 'tpu.nodeSpec[0].node.metadata' ;;
        esac
    fi
    is_there compute tpus queued-resources describe "$name" --zone="$zone" ||
        cloud compute tpus queued-resources create "$name" --node-id="$name" --accelerator-type="$accelerator" \
            --runtime-version="$runtime" "${tpu_flags[@]}"
    if [ "$dry_run" = false ]; then
        trap 'say "left: TPU $name is requested, and billed once it is granted; the same command waits again, gcp/stop.sh --run=$run removes it"; exit 130' INT
        wait_for_tpu
        trap - INT
    fi
else
    if is_there compute tpus tpu-vm describe "$name" --zone="$zone"; then
        case "$(look compute tpus tpu-vm describe "$name" --zone="$zone" --format='value(state)')" in
            PREEMPTED | TERMINATED | STOPPED) cloud compute tpus tpu-vm delete "$name" --zone="$zone" ;;
            *) check_unchanged tpu-vm metadata ;;
        esac
    fi
    is_there compute tpus tpu-vm describe "$name" --zone="$zone" ||
        cloud compute tpus tpu-vm create "$name" --accelerator-type="$accelerator" --version="$runtime" "${tpu_flags[@]}"
fi

if [ "$workers" -gt 0 ]; then
    template_flags=(--machine-type="$worker_machine" --image-family=cos-stable --image-project=cos-cloud --boot-disk-size=20GB
        --network="$network" --service-account="$train_account" --scopes="$scope" --tags="$prefix"
        --labels="app=$prefix,run=$run" --metadata="seedzero-image=$worker_image"
        --metadata-from-file="startup-script=$folder/startup.sh,seedzero-arguments=$(body_path worker.args)")
    [ "$spot" = false ] || template_flags+=(--provisioning-model=SPOT --instance-termination-action=STOP)
    if is_there compute instance-templates describe "$name"; then
        say "workers keep the machine and image of the existing template $name, and an existing group its size; gcp/stop.sh --run=$run removes both"
    else
        cloud compute instance-templates create "$name" "${template_flags[@]}"
    fi
    is_there compute instance-groups managed describe "$name" --zone="$zone" ||
        cloud compute instance-groups managed create "$name" --zone="$zone" --template="$name" --size="$workers"
fi

cat >&2 <<TEXT

state       gcp/status.sh --project=$project --region=$region
log         gcloud logging read 'logName:gcplogs-docker-driver' --project=$project --freshness=1h
resume      the same command with --run=$run
end it      gcp/stop.sh --project=$project --region=$region --run=$run
TEXT
