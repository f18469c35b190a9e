#!/usr/bin/env bash
# Builds the images and runs them by docker-compose.yml, with catch; see --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(dirname "$here")
# shellcheck source-path=SCRIPTDIR source=engine.sh
. "$here/engine.sh"

usage() {
    cat <<'TEXT'
usage: docker/smoke_test.sh [--workers=N] [--hosts] [--own] [--clean]

Builds the learner's and the workers' image, starts docker-compose.yml with catch and waits for an evaluation of 1.0.
Then it kills the learner and a worker with -9, and waits for their restart and for further training. Every status must
satisfy acknowledged = stored + pending + discarded steps. Finally it stops everything by SIGTERM, expects exit codes of
0, and removes it. It ends with 0 if all checks passed; everything it started ends with it, also on Ctrl-C.

  --workers=N   number of workers (default: 2)
  --hosts       with docker-compose.hosts.yml: two learner hosts with half of the workers each. The second one is
                killed; both must restart and resume
  --own         with an environment of its own that needs Box2D, in images that scripts/image makes
  --clean       removes its directory on success: the next call rebuilds everything

If no docker engine answers, it starts a private one, as root on Debian: apt-get installs docker.io and docker-compose
if they are missing. If python:3.11-slim can't be pulled, debootstrap makes a base image. Packages come from this
machine's pip index.

  SEEDZERO_BASE          another base image
  SEEDZERO_DOCKER_STATE  its directory (default: /var/tmp/seedzero-docker-UID), which stores the engine's images
TEXT
}

WORKERS=2
CLEAN=""
HOSTS=""
OWN=""
while (($#)); do
    case "$1" in
        --workers=*) WORKERS=${1#*=} ;;
        --hosts) HOSTS=yes ;;
        --own) OWN=yes ;;
        --clean) CLEAN=yes ;;
        -h | --help) usage; exit 0 ;;
        *) echo "docker/smoke_test.sh: unknown argument '$1'; it takes --workers=N, --hosts, --own and --clean" >&2; exit 2 ;;
    esac
    shift
done
[[ $WORKERS =~ ^[1-4]$ ]] || { echo "docker/smoke_test.sh: --workers=$WORKERS: expected 1 to 4" >&2; exit 2; }
[ -z "$HOSTS" ] || ((WORKERS % 2 == 0)) ||
    { echo "docker/smoke_test.sh: --workers=$WORKERS: two hosts have equal numbers; expected 2 or 4" >&2; exit 2; }

STATE=${SEEDZERO_DOCKER_STATE:-/var/tmp/seedzero-docker-$(id -u)}
PROJECT=seedzero-smoke
MAX_WORKER_MB=400
mkdir -p "$STATE"
# Anybody may have made a directory or a link of this name in /var/tmp, and root would write wherever that leads.
[ -O "$STATE" ] && [ ! -L "$STATE" ] || die "$STATE is a link or somebody else's; name another directory by SEEDZERO_DOCKER_STATE"
chmod 700 "$STATE"
exec 8>"$STATE/lock"
flock --nonblock 8 || die "another smoke test uses $STATE"

composed() {
    compose -p "$PROJECT" -f "$here/docker-compose.yml" ${HOSTS:+-f "$here/docker-compose.hosts.yml"} "$@"
}

finish() {
    local code=$?
    trap '' INT TERM
    trap - EXIT
    if [ -n "${UP:-}" ]; then
        ((code == 0 || code > 128)) || composed logs --tail=40 || true  # above 128: a signal, no failure
        composed down --volumes --timeout=5 >"$STATE/down.log" 2>&1 || say "down failed, see $STATE/down.log"
    fi
    stop_engine
    rm -rf "$STATE/token" "$STATE/secrets"
    if ((code > 128)); then
        say "interrupted"
    elif ((code != 0)); then
        say "FAILED; the logs are in $STATE"
    elif [ -n "$CLEAN" ]; then
        rm -rf "$STATE"
    fi
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# ---------------------------------------------------------------------------------------------------- checks

# Exit codes: 3 if an acknowledged step is unaccounted for, 1 if the condition does not hold, else 0.
# shellcheck disable=SC2089  # Python, not words
READ_STATUS='
import json, os, sys
status = json.loads(sys.stdin.read().splitlines()[-1])
print(json.dumps(status))
whole = status["steps_stored"] + status["steps_pending"] + sum(status["steps_discarded"].values())
if status["steps_acknowledged"] != whole:
    sys.exit(3)
sys.exit(not eval(os.environ["CONDITION"], status))
'

# Returns whether a condition holds (a Python expression over the names in a status), and stores the status in FOUND.
holds() { # CONDITION
    local code=0
    # shellcheck disable=SC2016  # the variables are the container's
    FOUND=$("$DOCKER" exec --env CONDITION="$1" --env READ_STATUS="$READ_STATUS" "$LEARNER" sh -c '
        status=$(seedzero status --server=127.0.0.1:7777 --token_file=/run/secrets/token) || exit 1
        echo "$status" | python -c "$READ_STATUS"' 2>"$STATE/status.log") || code=$?
    ((code != 3)) || die "acknowledged is not stored + pending + discarded: $FOUND"
    return "$code"
}

field() { # NAME of a number in FOUND
    [[ $FOUND =~ \"$1\":\ ([0-9.]+) ]] || die "no $1 in the status: $FOUND"
    echo "${BASH_REMATCH[1]}"
}

restarts() { "$DOCKER" inspect --format '{{.RestartCount}}' "$1"; }
has_restarted() { (($(restarts "$1") > 0)); }

joins() { "$DOCKER" logs "$1" 2>&1 | grep -Ec ': joined learner1?:7777' || true; }
has_joined_again() { (($(joins "$1") > $2)); }  # CONTAINER JOINS-BEFORE

# Kills the child of the container's init from inside: `docker kill` would count as a user's stop.
kill_9() { # CONTAINER
    # shellcheck disable=SC2016  # inside
    "$DOCKER" exec "$1" sh -c 'kill -9 $(cat /proc/1/task/1/children)'
}

check_images() {
    local megabytes
    for image in seedzero-learner:smoke seedzero-worker:smoke; do
        megabytes=$(($("$DOCKER" image inspect --format '{{.Size}}' "$image") / 1000000))
        say "$image: $megabytes MB"
        [ "$("$DOCKER" image inspect --format '{{.Config.User}}' "$image")" = 10001:10001 ] ||
            die "$image does not run as user 10001"
        "$DOCKER" image inspect --format '{{json .Config.Labels}}' "$image" |
            grep -q '"org.opencontainers.image.revision"' || die "$image has no OCI labels"
    done
    ((megabytes < MAX_WORKER_MB)) || die "seedzero-worker has $megabytes MB; expected less than $MAX_WORKER_MB"
    if "$DOCKER" run --rm --entrypoint python seedzero-worker:smoke -c 'import jax' 2>/dev/null; then
        die "seedzero-worker has JAX; expected none"
    fi
}

make_token() {
    export SEEDZERO_TOKEN_FILE=$STATE/token
    (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$SEEDZERO_TOKEN_FILE")
    # Readable by the containers' user only.
    if [ "$(id -u)" = 0 ]; then
        chown 10001:10001 "$SEEDZERO_TOKEN_FILE"
    else
        SEEDZERO_USER="$(id -u):$(id -g)"
        export SEEDZERO_USER
    fi
}

make_own_images() {
    rm -rf "$STATE/own"
    mkdir "$STATE/own"
    cp "$root/examples/own_environment.py" "$STATE/own"
    printf '%s\n' "import Box2D  # no image of seedzero has it" "from own_environment import Corridor as MyEnv" >"$STATE/own/my_env.py"
    (cd "$STATE/own" && SEEDZERO_BASE=$BASE "$root/scripts/image" --env=python:my_env:MyEnv --image=smoke:own \
        --data=own_environment.py --pip='gymnasium[box2d]<2')
}

# ---------------------------------------------------------------------------------------------------- the test

use_engine
use_base
say "building on $BASE"
build_image seedzero-worker:smoke "$root/docker/worker.Dockerfile" "$root" --build-arg BASE="$BASE" >"$STATE/build-worker.log" 2>&1 ||
    die "the worker's image can't be built, see $STATE/build-worker.log"
build_image seedzero-learner:smoke "$root/docker/learner.Dockerfile" "$root" --build-arg BASE="$BASE" >"$STATE/build-learner.log" 2>&1 ||
    die "the learner's image can't be built, see $STATE/build-learner.log"
say "built"
# A private engine needs no replaced images.
[ -z "$ENGINE_PID" ] || "$DOCKER" image prune --force >/dev/null
check_images

make_token
export SEEDZERO_LEARNER_IMAGE=seedzero-learner:smoke SEEDZERO_WORKER_IMAGE=seedzero-worker:smoke
export SEEDZERO_TRAIN="--preset=catch --stop_at_return=inf --checkpoint.every_seconds=2 --metrics.every_seconds=5"
if [ -n "$OWN" ]; then
    make_own_images >"$STATE/build-own.log" 2>&1 || die "the images with an environment can't be built, see $STATE/build-own.log"
    export SEEDZERO_LEARNER_IMAGE=smoke-learner:own SEEDZERO_WORKER_IMAGE=smoke-worker:own
    SEEDZERO_TRAIN="--env=python:my_env:MyEnv --agent=ppo --env.max_episode_steps=30 ${SEEDZERO_TRAIN#* }"
fi
export SEEDZERO_WORKERS=4  # a killed worker rejoins at once, beside what its last session holds
export SEEDZERO_HOST_WORKERS=$((WORKERS / 2))  # no more room: else both could choose the same host
UP=yes
composed down --volumes --timeout=5 >"$STATE/down.log" 2>&1  # leftovers of a killed smoke test
composed up -d --no-build --scale worker="$WORKERS" >"$STATE/up.log" 2>&1 || die "up failed, see $STATE/up.log"
LEARNER=$(composed ps -q learner)
learner_ids=("$LEARNER")
everywhere="True"  # all workers are there, as far as the status of a host says
if [ -n "$HOSTS" ]; then
    learner_ids+=("$(composed ps -q learner1)")
    everywhere="' $((WORKERS / 2)) workers' in hosts[0]"
fi
mapfile -t worker_ids < <(composed ps -q worker)
((${#worker_ids[@]} == WORKERS)) || die "${#worker_ids[@]} workers were started; expected $WORKERS"
say "${#learner_ids[@]} learner(s) healthy, $WORKERS workers started"

POLL_SECONDS=2  # a request costs half a second of a core, which the learner needs
wait_until 900 "an evaluation of 1.0" \
    holds "last_evaluation and last_evaluation['mean_return'] >= 1 and durable_update and $everywhere" ||
    die "last status: ${FOUND:-none}"
everyone=$(field workers)
POLL_SECONDS=0.5
before=$(field updates)
durable=$(field durable_update)
say "evaluated to 1.0 after $before updates and $(field env_steps) steps; durable: update $durable"

killed=$SECONDS
kill_9 "${learner_ids[-1]}"
for container in "${learner_ids[@]}"; do
    wait_until 120 "the learner's restart" has_restarted "$container" || die "the learner $container did not come back"
done
wait_until 300 "the learner's answer" holds "updates >= $durable" || die "last status: ${FOUND:-none}"
say "learner killed with -9 at update $before or later: answers after $((SECONDS - killed)) s"
for container in "${learner_ids[@]}"; do
    "$DOCKER" logs "$container" >"$STATE/learner.log" 2>&1
    grep -o 'resumed at update [0-9]*' "$STATE/learner.log" || die "the log of $container does not say that it resumed"
done
wait_until 300 "training with all workers" \
    holds "updates > $before + 50 and durable_update > $before and workers == $everyone and $everywhere" ||
    die "last status: ${FOUND:-none}"
say "all workers are back, at update $(field updates), $((SECONDS - killed)) s after the kill"

before=$(joins "${worker_ids[0]}")
killed=$SECONDS
kill_9 "${worker_ids[0]}"
wait_until 120 "the worker's restart" has_restarted "${worker_ids[0]}" || die "the worker did not come back"
wait_until 120 "the worker's join" has_joined_again "${worker_ids[0]}" "$before" || die "see its log"
say "worker killed with -9: rejoined after $((SECONDS - killed)) s"
holds True || die "last status: ${FOUND:-none}"
steps=$(field env_steps)
wait_until 300 "training with all workers" holds "env_steps > $steps + 500 and workers == $everyone and $everywhere" ||
    die "last status: ${FOUND:-none}"
say "training goes on: $FOUND"

if [ -n "$OWN" ]; then
    "$DOCKER" exec "$LEARNER" seedzero evaluate --run_dir=/runs/run --trust_run_dir --episodes=10 >"$STATE/evaluate.log" 2>&1 ||
        die "seedzero evaluate failed, see $STATE/evaluate.log"
    say "evaluated: $(tail -n 1 "$STATE/evaluate.log")"
fi

stopped=$SECONDS
# More than the 60 s of docker-compose.yml: a stop waits for a running compilation, which is slow on a busy machine.
composed stop --timeout=300 >"$STATE/stop.log" 2>&1
for container in "${learner_ids[@]}" "${worker_ids[@]}"; do
    code=$("$DOCKER" inspect --format '{{.State.ExitCode}}' "$container")
    ((code == 0)) || die "$container ended with $code on SIGTERM; expected 0"
done
say "all ended with 0 on SIGTERM within $((SECONDS - stopped)) s"
"$DOCKER" logs "$LEARNER" >"$STATE/learner.log" 2>&1
if grep -qFf "$SEEDZERO_TOKEN_FILE" "$STATE/learner.log"; then
    die "the learner's log contains the token"
fi
say "passed"
