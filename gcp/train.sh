#!/usr/bin/env bash
# Trains on Google Cloud: a custom job of Vertex AI, or a Cloud TPU VM with a group of Compute Engine machines.
# train_atari.sh and the others run this with their environment.
set -euo pipefail
# shellcheck source=gcp/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

describe() {
    local given="" game="--game=Breakout "
    case "$script" in
        train.sh) given="GAME|--env=ENV [--platform=vertex|tpu-vm] " game="Breakout " ;;
        train_cartpole.sh | train_dmlab.sh | train_football.sh) game="" ;;
    esac
    cat <<TEXT
usage: gcp/$script ${given}[--FLAG=VALUE ...] [-- --SECTION.KEY=VALUE ...]

Builds the images, pushes them, and rents a learner with an accelerator and CPU machines as its workers. The run directory is in your
bucket; the same command with the same --run resumes from its newest checkpoint. Run gcp/setup.sh once before. Settings of
\`seedzero train\` follow after --. GAME is one of Atari's, as Pong, or cartpole, the cheapest test of the whole setup: its job ends
after minutes on CPU machines.

--platform=vertex submits a custom job of Vertex AI, which ends with training and restarts machines that are taken away.

--platform=tpu-vm requests a TPU VM (a queued resource, or at once), waits for it, and starts a managed instance group of workers. The
learner writes its address into the run directory, workers read it there and follow its changes. The same command with the same --run
replaces missing resources, such as a preempted TPU. TPU and workers are billed until gcp/stop.sh ends them, also after training.

With --image any environment trains: images with your own, which scripts/image makes and pushes.

There is no evaluation while DeepMind Lab or Football train, because the learner's image does not have them: the returns are those of the
training episodes. Score a checkpoint where they are, with \`seedzero evaluate --run_dir=gs://BUCKET/runs/RUN\`. The image with Lab takes
an hour or more to build, for each commit anew: --build=docker keeps what this machine has built. Levels that were compiled are kept in
your bucket for all workers and runs.

EXAMPLES
  gcp/$script $game--dry_run
  gcp/$script $game--run=first-try --workers=4 --spot -- --seed=1
TEXT
    case "$script" in
        train.sh) cat <<'TEXT' ;;
  gcp/train.sh Pong --accelerator=a100 -- --max_env_steps=50000000
  gcp/train.sh cartpole
  gcp/train.sh --env=dmlab:dmlab30 --run=all-levels --workers=32 -- --dmlab.level_seeds=1000
  gcp/train.sh --env=football:11_vs_11_easy_stochastic --accelerator=a100 --workers=8
  gcp/train.sh Pong --platform=tpu-vm --zone=us-central1-a --num_learners=4
  gcp/train.sh --env=python:my_env:MyEnv --image=us-central1-docker.pkg.dev/my-project/seedzero/my-env:1 --accelerator=cpu
TEXT
        train_atari_tpu_vm.sh) cat <<'TEXT' ;;
  gcp/train_atari_tpu_vm.sh --run=pong-16 --zone=us-central1-a --num_learners=4
  gcp/train_atari_tpu_vm.sh --run=pong-v6e --zone=us-east5-a --region=us-east5 --accelerator=v6e-1 --workers=4
TEXT
    esac
}

# --- what it needs ------------------------------------------------------------------------------------------------------------------

run_of_env() { # prints a name for a run of --env, made from it and the time
    local name
    name=$(printf '%s' "$env" | tr '[:upper:]' '[:lower:]' | tr -cs 'a-z0-9' '-' | cut -c -24)
    printf '%s-%s\n' "${name%-}" "$(date -u +%Y%m%d-%H%M%S)"
}

json_string() { # TEXT without control characters: as a string of JSON
    local text=${1//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

json_list() { # WORDS...: as a list of strings
    local word list=""
    for word in "$@"; do
        list="$list${list:+, }$(json_string "$word")"
    done
    printf '[%s]' "$list"
}

check_settings() { # SETTINGS...: seedzero itself refuses wrong ones, and those that exclude each other, before anything is billed
    local program
    for program in "$root/.venv/bin/seedzero" "$(command -v seedzero || true)"; do
        if [ -n "$program" ] && [ -x "$program" ]; then
            "$program" config "$@" >/dev/null || die "the settings after -- are wrong, see above; nothing was changed$([ -n "$preset" ] ||
                echo "; if $env cannot be made here, run this in the folder of its module, or give --preset=NAME")"
            return
        fi
    done
    [ "${#settings[@]}" -eq 0 ] || say "seedzero is not installed here: only the learner's start checks the settings after --"
}

check_machine() { # NUM_DEVICES SETTINGS...: refuses settings that ask the learner's machine, of one --accelerator, for more than it has
    local most=$1 name value
    shift
    while [ $# -gt 0 ]; do
        name=${1%%=*} value=${1#*=}
        [ "$1" != "$name" ] || value=${2:-}
        shift
        case "$name" in
            --cluster.num_hosts) [ "$value" = 1 ] || die "$name=$value: one machine is rented for the learner, so it is one host; leave it out" ;;
            --cluster.index | --cluster.coordinator) die "$name=$value: the learner here is one host; leave it out" ;;
            --training.num_devices | --training.acting_devices) ;;
            *) continue ;;
        esac
        case "$value" in *[!0-9]* | "" | ?????????*) continue ;; esac
        # Of devices that act, at least one more has to learn.
        [ "$name" != --training.acting_devices ] || [ "$value" -eq 0 ] || value=$((10#$value + 1))
        [ "$((10#$value))" -le "$most" ] ||
            die "$name: --accelerator=$accelerator has $most device(s), and these settings need $value; lower it, or rent a larger one"
    done
}

check_image() { # IMAGE: refuses one of your own that is not there
    [ "$dry_run" = true ] || is_there artifacts docker images describe "$1" ||
        die "there is no image $1; in the folder of your module: $(image_command)"
}

image_command() { # prints, quoted for a shell, what makes and pushes the images of --image
    set --
    [ "$extra" = cpu ] || set -- --extras="$extra"
    quoted scripts/image --env="$env" --image="$image" "$@" --push
}

ensure_image() { # DOCKERFILE NAME=VALUE IMAGE: builds it with this argument and pushes it, unless this commit's image exists
    local dockerfile=docker/$1.Dockerfile
    if is_there artifacts docker images describe "$3"; then
        say "using the existing image $3"
        return
    fi
    if [ "$dry_run" = false ] && ! is_there artifacts repositories describe "$repository" --location="$region"; then
        die "there is no repository for images in $region; gcp/setup.sh --project=$project --region=$region makes one"
    fi
    case "$build" in
        none)
            [ "$dry_run" = true ] || die "there is no image $3; --build=cloud or --build=docker makes it"
            say "using the existing image $3"
            ;;
        cloud)
            cloud builds submit "$root" --config="$folder/cloudbuild.yaml" --region="$region" \
                --service-account="projects/$project/serviceAccounts/$build_account" \
                --gcs-source-staging-dir="gs://$bucket/source" \
                --substitutions="_DOCKERFILE=$dockerfile,_ARGUMENT=$2,_IMAGE=$3"
            ;;
        docker)
            [ "$dry_run" = true ] || need docker "or take --build=cloud"
            run gcloud auth configure-docker "${3%%/*}" --quiet
            # On an ARM machine, too: all machine types here are x86-64.
            run docker build --platform linux/amd64 --file "$root/$dockerfile" --build-arg "$2" --tag "$3" "$root"
            run docker push "$3"
            ;;
    esac
}

# --- flags ---------------------------------------------------------------------------------------------------------------------------

game="" env="" image="" preset="" platform=vertex agent="" accelerator="" workers="" worker_machine="" max_hours="" build=cloud
zone="" num_learners="" runtime="" provisioning="" network=""
# shellcheck disable=SC2034  # parse_flags reads them
takes_settings=true
# shellcheck disable=SC2034  # as above
[ "$script" != train.sh ] || takes_word=game
vertex_accelerators="cpu t4 l4 a100 tpu-v5e-1 tpu-v5e-4 tpu-v5e-8"
tpu_accelerators="v5litepod-1 v5litepod-4 v5litepod-8 v6e-1 v6e-4 v6e-8"
flag game NAME "of the Arcade Learning Environment, or cartpole"
flag env ID "as seedzero train takes it, in place of --game: atari:NAME, dmlab:LEVEL (dmlab:dmlab30: all 30), football:SCENARIO"
flag image NAME:TAG "with your own environment: NAME-learner:TAG and NAME-worker:TAG, pushed by scripts/image to this project's registry"
flag preset NAME "as seedzero train takes it (default: the game's; with --image the learner chooses it)"
flag platform 'vertex|tpu-vm' "a job of Vertex AI, or a TPU VM that stays"
flag run NAME "name of the run; a run in the bucket resumes (default: made from the environment and the time)"
flag agent NAME "learning algorithm (default: the preset's; vtrace for Lab and Football)"
flag accelerator TYPE "of the learner: $vertex_accelerators; TPU VM: $tpu_accelerators (default: l4, cpu for cartpole; v5litepod-4)"
flag workers N "machines that step environments (default: 2, Lab 8, Football and --image 4; TPU VM: 2 for each learner); 0: only the learner's own"
flag worker_machine TYPE "of each worker (default: n1-highcpu-32, or n1-highcpu-16 for one TPU chip; for Lab, cartpole and --image e2-standard-4)"
switch spot "spot machines for all: cheaper, may be taken away at any time; training then resumes from its checkpoint"
flag build 'cloud|docker|none' "builder of the images: Cloud Build, docker on this machine, or none (existing images)"
flag max_hours N "Vertex AI ends the job after this time (default: 4 for Atari, 1 for cartpole, else 24)"
flag zone NAME "TPU VM: of the TPU and the workers (default: REGION-a)"
flag num_learners N "TPU VM: hosts of the run, on one TPU slice with 4 chips for each: 1 (default), 4, 8 or 16"
flag runtime VERSION "TPU VM: its software (default: the one for the accelerator)"
flag provisioning 'queued|now' "TPU VM: wait in the queue (default), or fail if there is none now"
flag network NAME "TPU VM: of all machines, with the firewall rule of gcp/setup.sh (default: default)"
common_flags
parse_flags "$@"

check_choice platform vertex tpu-vm
check_choice build cloud docker none
others="zone num_learners runtime provisioning network"
[ "$platform" = vertex ] || others=max_hours
for name in $others; do
    [ -z "${!name}" ] || die "--$name is for the other platform, not for --platform=$platform; leave it out"
done
case "$game" in *[!A-Za-z0-9]*) die "--game=$game: expected a name as Pong or SpaceInvaders" ;; esac
[ -n "$game$env" ] || die "no game; give its name, as Pong or cartpole, or --env=ID"
case "$image" in
    "") ;;
    *-docker.pkg.dev/*/*/*:?*) ;;
    *-docker.pkg.dev/*/*/?*) image=${image%:}:latest ;;
    *) die "--image=$image: expected $images/NAME:TAG, or another repository whose images $train_account can read" ;;
esac

# What an environment needs: preset, a sentence of the plan, the workers' image (docker/FILE.Dockerfile, its argument EXTRAS).
num_workers=2 machine_of_workers="" hours=24 worker_file=worker worker_extras="" preset_settings=()
measured="how long training takes on these machines has not been measured"
[ "$game" != cartpole ] || env=${env:-gym:CartPole-v1}
env=${env:-atari:$game}
case "$env" in
    gym:CartPole-v1) preset=${preset:-cartpole} hours=1 machine_of_workers=e2-standard-4 ;;
    atari:?*)
        preset=${preset:-atari} hours=4
        measured="200 million frames are the preset's end: 1.7 to 3.1 hours at the speed of an H100 with 16 cores, not measured on ACCELERATOR"
        ;;
    # A worker of Lab is one process: eight engines keep the four threads of a small machine busy.
    dmlab:?*)
        preset=${preset:-dmlab} num_workers=8 machine_of_workers=e2-standard-4 worker_file=worker-dmlab agent=${agent:-vtrace}
        preset_settings=(--evaluation.every_updates=0 --dmlab.level_cache="gs://$bucket/dmlab-levels")
        ;;
    football:?*)
        preset=${preset:-football} num_workers=4 worker_extras=envpool agent=${agent:-vtrace}
        preset_settings=(--evaluation.every_updates=0)
        ;;
    *)
        # One process steps a worker's environments, which keeps no large machine busy.
        num_workers=4 machine_of_workers=e2-standard-4
        [ -n "$image" ] || die "--env=$env: expected atari:NAME, dmlab:LEVEL, football:SCENARIO or gym:CartPole-v1; any other needs \
--image=$images/NAME:TAG, which $(quoted scripts/image --env="$env") makes"
        ;;
esac
# The preset of CartPole names its environment, which settings after -- may replace.
[ "$preset=$env" = cartpole=gym:CartPole-v1 ] || preset_settings=(--env="$env" ${preset_settings[@]+"${preset_settings[@]}"})
[ -z "$agent" ] || preset_settings+=(--agent="$agent")
run=${run:-$(run_of_env)}
check_run

# --- the learner and its workers -----------------------------------------------------------------------------------------------------

num_learners=${num_learners:-1}
check_choice num_learners 1 4 8 16
case "$platform" in
    tpu-vm)
        accelerators=$tpu_accelerators
        [ "$num_learners" -eq 1 ] || accelerators="v5litepod-$((4 * num_learners)) v6e-$((4 * num_learners))"
        [ "$num_learners" -eq 1 ] || accelerator=${accelerator:-${accelerators%% *}}
        accelerator=${accelerator:-v5litepod-4} num_workers=$((2 * num_learners))
        zone=${zone:-$region-a} network=${network:-default} provisioning=${provisioning:-queued}
        check_choice provisioning queued now
        ;;
    vertex)
        accelerators=$vertex_accelerators
        [ "$preset" != cartpole ] || accelerator=${accelerator:-cpu}
        accelerator=${accelerator:-l4}
        ;;
esac
measured=${measured/ACCELERATOR/$accelerator}
[ "$preset$accelerator" != ataricpu ] || measured="on CPUs the preset ends after 16 million frames: an hour at the speed of two cores in Pong"
# shellcheck disable=SC2086  # a list of words
check_choice accelerator $accelerators
workers=${workers:-$num_workers} max_hours=${max_hours:-$hours}
check_count workers 0
check_count max_hours 1
[ "$workers" -ne 0 ] || [ -n "$image" ] || [ "$worker_file$worker_extras" = worker ] || die "--workers=0: the learner's image has no ${env%%:*}; take at least 1"
[ $((workers % num_learners)) -eq 0 ] ||
    die "--workers=$workers: each of $num_learners learners has as many workers as the others; give a multiple of $num_learners"
# Sixteen cores step Atari 22 to 28 thousand times a second, so two machines of 16 threads feed a chip with what docs/deploy.md predicts
# for it, two of 32 threads any accelerator here.
case "$accelerator" in
    tpu-v5e-1 | v5litepod-1 | v6e-1) machine_of_workers=${machine_of_workers:-n1-highcpu-16} ;;
esac
worker_machine=${worker_machine:-${machine_of_workers:-n1-highcpu-32}}

hosts=() host_settings=() worker_settings=(--workers=1)
[ "$workers" -eq 0 ] || worker_settings=(--workers=0 --worker.num_remote=$((workers / num_learners))) # their environments share the replay
[ "$num_learners" -eq 1 ] || hosts=(--hosts="$num_learners") host_settings=(--cluster.num_hosts="$num_learners")
learner_settings=("${worker_settings[@]}" ${preset_settings[@]+"${preset_settings[@]}"} ${settings[@]+"${settings[@]}"})
case "$accelerator" in
    tpu-*-[0-9]* | v[0-9]*-[0-9]*) num_devices=$((${accelerator##*-} / num_learners)) ;;
    *) num_devices=1 ;;
esac
check_machine "$num_devices" "${learner_settings[@]}"
check_settings ${preset:+--preset="$preset"} "${learner_settings[@]}" ${host_settings[@]+"${host_settings[@]}"}

gpu="" topology="" extra=tpu machine=$accelerator place=compute
case "$accelerator" in
    cpu) machine=e2-standard-8 extra=cpu ;;
    t4) machine=n1-standard-16 gpu=NVIDIA_TESLA_T4 extra=cuda ;;
    l4) machine=g2-standard-16 gpu=NVIDIA_L4 extra=cuda ;;
    a100) machine=a2-highgpu-1g gpu=NVIDIA_TESLA_A100 extra=cuda ;;
    tpu-v5e-1) machine=ct5lp-hightpu-1t topology=1x1 ;;
    tpu-v5e-4) machine=ct5lp-hightpu-4t topology=2x2 ;;
    tpu-v5e-8) machine=ct5lp-hightpu-8t topology=2x4 ;;
    v5litepod-*) runtime=${runtime:-v2-alpha-tpuv5-lite} ;;
    v6e-*) runtime=${runtime:-v2-alpha-tpuv6e} ;;
esac
# All hosts of a slice are machines of one kind.
[ "$num_learners" -eq 1 ] || machine=${accelerator%-*}-4
[ "$platform" = tpu-vm ] || place=vertex

name=$prefix-$run tag=$(image_tag)
learner_image=$images/learner-$extra:$tag
worker_image=$images/$worker_file${worker_extras:+-$worker_extras}:$tag
[ -z "$image" ] || learner_image=${image%:*}-learner:${image##*:} worker_image=${image%:*}-worker:${image##*:}
train_words=(train ${preset:+--preset="$preset"} --run_dir="gs://$bucket/runs/$run" --trust_run_dir "${learner_settings[@]}")

# --- Vertex AI -----------------------------------------------------------------------------------------------------------------------

pool() { # MACHINE_SPEC COUNT IMAGE VARIABLES ARGUMENTS...: one worker pool of a custom job
    local spec=$1 count=$2 image=$3 variables=$4
    shift 4
    cat <<JSON
    {
      "machineSpec": $spec,
      "replicaCount": $count,
      "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100},
      "containerSpec": {
        "imageUri": $(json_string "$image"),
        "command": ["python", "-m", "seedzero.cli.gcp"],
        "args": $(json_list "$@"),
        "env": [$variables]
      }
    }
JSON
}

job_body() { # a CustomJobSpec
    local strategy=STANDARD spec variables=""
    [ "$spot" = false ] || strategy=SPOT
    spec="\"machineType\": $(json_string "$machine")"
    [ -z "$gpu" ] || spec="$spec, \"acceleratorType\": $(json_string "$gpu"), \"acceleratorCount\": 1"
    [ -z "$topology" ] || spec="$spec, \"tpuTopology\": $(json_string "$topology")"
    # An accelerator is billed: without this, JAX would train on the CPU where a driver fails.
    [ "$extra" = cpu ] || variables="{\"name\": \"JAX_PLATFORMS\", \"value\": \"$extra,cpu\"}"
    cat <<JSON
{
  "workerPoolSpecs": [
$(pool "{$spec}" 1 "$learner_image" "$variables" --secret="$secret" "${train_words[@]}")$([ "$workers" -eq 0 ] || echo ,)
$([ "$workers" -eq 0 ] || pool "{\"machineType\": $(json_string "$worker_machine")}" "$workers" "$worker_image" "" --secret="$secret" worker)
  ],
  "scheduling": {"strategy": "$strategy", "timeout": "$((max_hours * 3600))s", "restartJobOnWorkerRestart": false},
  "serviceAccount": $(json_string "$train_account")
}
JSON
}

refuse_second_job() {
    local jobs
    jobs=$(things custom-job) || exit 1
    cut -f4 <<< "$jobs" | grep -x "$run" > /dev/null || return 0 # not -q: see is_there
    die "run $run has a job already (gcp/status.sh shows it); two learners must not write into one run directory"
}

submit_job() {
    job_body | write_body "$(body_path job.json)"
    cloud ai custom-jobs create --region="$region" --display-name="$name" --labels="app=$prefix,run=$run" \
        --config="$(body_path job.json)" --format='value(name)'
}

# --- a TPU VM and its workers --------------------------------------------------------------------------------------------------------

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

queue_tpu() { # FLAGS...: requests it, unless it is there, and waits for it
    if is_there compute tpus queued-resources describe "$name" --zone="$zone"; then
        case "$(queued_state)" in
            # Preempted, or never granted: a dead request blocks a new one.
            SUSPENDED | FAILED) cloud compute tpus queued-resources delete "$name" --zone="$zone" --force ;;
            *) check_unchanged queued-resources 'tpu.nodeSpec[0].node.metadata' ;;
        esac
    fi
    is_there compute tpus queued-resources describe "$name" --zone="$zone" ||
        cloud compute tpus queued-resources create "$name" --node-id="$name" --accelerator-type="$accelerator" \
            --runtime-version="$runtime" "$@"
    [ "$dry_run" = false ] || return 0
    trap 'say "left: TPU $name is requested, and billed once it is granted; the same command waits again, gcp/stop.sh --run=$run removes it"; exit 130' INT
    wait_for_tpu
    trap - INT
}

create_tpu() { # FLAGS...: makes it now, unless it is there
    if is_there compute tpus tpu-vm describe "$name" --zone="$zone"; then
        case "$(look compute tpus tpu-vm describe "$name" --zone="$zone" --format='value(state)')" in
            PREEMPTED | TERMINATED | STOPPED) cloud compute tpus tpu-vm delete "$name" --zone="$zone" ;;
            *) check_unchanged tpu-vm metadata ;;
        esac
    fi
    is_there compute tpus tpu-vm describe "$name" --zone="$zone" ||
        cloud compute tpus tpu-vm create "$name" --accelerator-type="$accelerator" --version="$runtime" "$@"
}

start_machines() {
    local address=gs://$bucket/runs/$run/learner_address tags=$prefix flags
    # The service account's roles limit its rights; the TPU API does not know the short name of this scope.
    local common=(--network="$network" --service-account="$train_account" --scopes=https://www.googleapis.com/auth/cloud-platform
        --labels="app=$prefix,run=$run")
    printf '%s\n' --secret="$secret" --address_object="$address" ${hosts[@]+"${hosts[@]}"} "${train_words[@]}" |
        write_body "$(body_path learner.args)"
    printf '%s\n' --secret="$secret" --address_object="$address" worker | write_body "$(body_path worker.args)"
    if [ "$num_learners" -gt 1 ]; then # JAX and the TPU's runtime choose ports of their own between the hosts
        tags=$prefix,$prefix-host
        ensure_firewall_rule "$prefix-host" tcp "$prefix-host" # stop.sh removes it with the last TPU
    fi
    flags=(--zone="$zone" "${common[@]}" --tags="$tags"
        --metadata="^;^seedzero-image=$learner_image;seedzero-docker-flags=--privileged --user=root --env=JAX_PLATFORMS=tpu,cpu"
        --metadata-from-file="startup-script=$folder/startup.sh,seedzero-arguments=$(body_path learner.args)")
    [ "$spot" = false ] || flags+=(--spot)
    case "$provisioning" in
        queued) queue_tpu "${flags[@]}" ;;
        now) create_tpu "${flags[@]}" ;;
    esac
    [ "$workers" -gt 0 ] || return 0
    flags=("${common[@]}" --tags="$prefix" --machine-type="$worker_machine" --image-family=cos-stable --image-project=cos-cloud
        --boot-disk-size=20GB --metadata="seedzero-image=$worker_image"
        --metadata-from-file="startup-script=$folder/startup.sh,seedzero-arguments=$(body_path worker.args)")
    [ "$spot" = false ] || flags+=(--provisioning-model=SPOT --instance-termination-action=STOP)
    if is_there compute instance-templates describe "$name"; then
        say "workers keep the machine and image of the existing template $name, and an existing group its size; gcp/stop.sh --run=$run removes both"
    else
        cloud compute instance-templates create "$name" "${flags[@]}"
    fi
    is_there compute instance-groups managed describe "$name" --zone="$zone" ||
        cloud compute instance-groups managed create "$name" --zone="$zone" --template="$name" --size="$workers"
}

# --- the plan, and what it says ------------------------------------------------------------------------------------------------------

parts=("$machine")
[ "$gpu" != NVIDIA_TESLA_T4 ] || parts+=("$gpu") # the price of a g2 or an a2 includes its GPU
plan_title
plan_machines learner "$num_learners" "$place" "$spot" "${parts[@]}"
[ "$workers" -eq 0 ] || plan_machines workers "$workers" "$place" "$spot" "$worker_machine"
plan_sum
case "$platform" in
    vertex)
        log="gcloud ai custom-jobs stream-logs JOB --project=$project --region=$region; JOB is the number at the end of the name above"
        plan_line budget "at most $(awk -v a="$plan_total" -v h="$max_hours" 'BEGIN { printf "%.0f", a * h }') US dollars in $max_hours hours"
        plan_line "" "$measured"
        plan_line run "$run in gs://$bucket/runs/$run, a custom job of Vertex AI that ends with training, after $max_hours hours at the latest"
        ;;
    tpu-vm)
        log="gcloud logging read 'logName:gcplogs-docker-driver' --project=$project --freshness=1h"
        plan_line run "$run in gs://$bucket/runs/$run, zone $zone; billed until gcp/stop.sh ends it"
        ;;
esac
plan_line images "$learner_image, $worker_image"
[ -z "$image" ] || plan_line "" "made by: $(image_command)"
confirm "Go on?"
[ "$platform$dry_run" != vertexfalse ] || refuse_second_job
make_scratch
if [ -n "$image" ]; then
    check_image "$learner_image"
    [ "$workers" -eq 0 ] || check_image "$worker_image"
else
    ensure_image learner "EXTRAS=${extra#cpu}" "$learner_image"
    [ "$workers" -eq 0 ] || ensure_image "$worker_file" "EXTRAS=$worker_extras" "$worker_image"
fi
case "$platform" in
    vertex) submit_job ;;
    tpu-vm) start_machines ;;
esac
cat >&2 <<TEXT

state       gcp/status.sh --project=$project --region=$region
log         $log
resume      the same command with --run=$run
end it      gcp/stop.sh --project=$project --region=$region --run=$run
TEXT
