# shellcheck shell=bash
# Sourced by scripts that need a docker engine. They set STATE, a directory of theirs that may persist between calls, and
# call `stop_engine` at their end.
#
#   use_engine          sets DOCKER, a client that builds with BuildKit; if no engine answers, it starts a private one
#                       (Debian, root), and installs it first if necessary
#   use_base            sets BASE, the base image: SEEDZERO_BASE, else python:3.11-slim, else one made by debootstrap
#   build_image NAME FILE CONTEXT [ARGUMENTS]   builds an image with this machine's configuration of pip; without DOCKER
#                       it prints the command
#   compose ARGUMENTS   docker compose, or docker-compose
#   stop_engine         ends the private engine

PRIVATE_BASE=seedzero-base:bookworm
ENGINE_PID=""
POLL_SECONDS=0.5

say() { echo "[$(basename "$0") ${SECONDS}s] $*"; }

die() {
    say "error: $*" >&2
    exit 1
}

# Repeats a command until it succeeds: wait_until SECONDS WHAT COMMAND...
wait_until() {
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        if ((SECONDS >= deadline)); then
            say "$what: not in time"
            return 1
        fi
        sleep "$POLL_SECONDS"
    done
}

# Debian's older client has BuildKit built in; newer ones need the plugin buildx.
builds() { # CLIENT
    local version
    version=$("$1" --version 2>/dev/null) || return 1
    version=${version#Docker version }
    ((${version%%.*} < 23)) || "$1" buildx version >/dev/null 2>&1
}

find_client() {
    local candidate
    for candidate in docker /usr/bin/docker; do
        if builds "$candidate"; then
            DOCKER=$candidate
            return 0
        fi
    done
    return 1
}

install_packages() { # PACKAGES
    {
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"
    } >"$STATE/apt.log" 2>&1 || die "apt-get install $* failed, see $STATE/apt.log"
}

use_engine() {
    if find_client && "$DOCKER" info >/dev/null 2>&1; then
        has_compose || die "there is an engine, but neither 'docker compose' nor docker-compose; install one"
        say "using the running engine $("$DOCKER" version --format '{{.Server.Version}}')"
        return
    fi
    [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] ||
        die "no engine answers a docker client with BuildKit; start one, or run this as root on Debian to start a private one"
    if ! command -v dockerd >/dev/null || ! find_client || ! has_compose; then
        say "installing docker.io and docker-compose"
        install_packages docker.io docker-compose
        hash -r
        find_client || die "the installed docker client does not build with BuildKit"
    fi
    export DOCKER_HOST="unix://$STATE/docker.sock"
    if "$DOCKER" info >/dev/null 2>&1; then
        ENGINE_PID=$(cat "$STATE/dockerd.pid")
        say "using the engine of an earlier call, $("$DOCKER" version --format '{{.Server.Version}}')"
        return
    fi
    # A session of its own: Ctrl-C at the terminal reaches this script only, which then ends everything in order. Without
    # its file descriptors: an engine that outlives a killed script must not hold its lock.
    setsid dockerd --data-root "$STATE/data" --exec-root "$STATE/exec" --pidfile "$STATE/dockerd.pid" \
        --host "$DOCKER_HOST" >"$STATE/dockerd.log" 2>&1 8>&- &
    ENGINE_PID=$!
    wait_until 60 "an engine that answers" engine_answers || die "see $STATE/dockerd.log"
    say "started a private engine, $("$DOCKER" version --format '{{.Server.Version}}')"
}

engine_answers() {
    kill -0 "$ENGINE_PID" 2>/dev/null || die "dockerd ended, see $STATE/dockerd.log"
    "$DOCKER" info >/dev/null 2>&1
}

engine_ended() { ! kill -0 "$ENGINE_PID" 2>/dev/null; }

stop_engine() {
    [ -n "$ENGINE_PID" ] || return 0
    kill "$ENGINE_PID" 2>/dev/null || true
    wait_until 60 "the end of dockerd $ENGINE_PID" engine_ended || true
    ENGINE_PID=""
}

has_compose() { "$DOCKER" compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null; }

compose() {
    if "$DOCKER" compose version >/dev/null 2>&1; then
        "$DOCKER" compose "$@"
    else
        docker-compose "$@"
    fi
}

use_base() {
    BASE=${SEEDZERO_BASE:-python:3.11-slim}
    if "$DOCKER" image inspect "$BASE" >/dev/null 2>&1; then
        return
    fi
    if [ -z "${SEEDZERO_BASE:-}" ] && "$DOCKER" image inspect "$PRIVATE_BASE" >/dev/null 2>&1; then
        BASE=$PRIVATE_BASE
    elif timeout 120 "$DOCKER" pull -q "$BASE" >"$STATE/pull.log" 2>&1; then
        say "pulled $BASE"
    elif [ -n "${SEEDZERO_BASE:-}" ]; then
        die "can't pull SEEDZERO_BASE=$BASE, see $STATE/pull.log"
    else
        say "$BASE can't be pulled; making $PRIVATE_BASE with debootstrap"
        make_base || die "debootstrap failed, see $STATE/debootstrap.log"
        BASE=$PRIVATE_BASE
    fi
}

make_base() {
    local root=$STATE/rootfs mirror
    [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] ||
        die "debootstrap needs root on Debian; or name a base image by SEEDZERO_BASE"
    if ! command -v debootstrap >/dev/null; then
        install_packages debootstrap
    fi
    mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources 2>/dev/null) || mirror=""
    rm -rf "$root"
    debootstrap --variant=minbase --include=python3,python3-pip,ca-certificates bookworm "$root" \
        "${mirror:-http://deb.debian.org/debian}" >"$STATE/debootstrap.log" 2>&1 || return 1
    # pip must be able to install into it; this machine's mirror, caches and manuals don't belong in an image.
    rm -rf "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* \
        "$root"/usr/share/{doc,info,locale,man}/*
    echo 'deb http://deb.debian.org/debian bookworm main' >"$root/etc/apt/sources.list"
    ln -s /usr/bin/python3 "$root/usr/local/bin/python"
    tar -C "$root" -c . | "$DOCKER" import --change 'CMD ["python"]' \
        --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$PRIVATE_BASE" >/dev/null
    rm -rf "$root"
}

# This machine's pip configuration travels as build secrets: no layer contains it.
write_pip_secrets() {
    local index ca
    index=${PIP_INDEX_URL:-$(pip config get global.index-url 2>/dev/null || true)}
    ca=${PIP_CERT:-$(pip config get global.cert 2>/dev/null || true)}
    [ -f "$ca" ] || ca=/etc/ssl/certs/ca-certificates.crt
    (
        umask 077
        mkdir -p "$STATE/secrets"
        { echo '[global]'; [ -z "$index" ] || echo "index-url = $index"; } >"$STATE/secrets/pip_conf"
        : >"$STATE/secrets/pip_ca"
        if [ -f "$ca" ]; then
            cat "$ca" >"$STATE/secrets/pip_ca"
            echo 'cert = /run/secrets/pip_ca' >>"$STATE/secrets/pip_conf"
        fi
    )
}

build_image() {
    local name=$1 file=$2 context=$3 root version revision words
    shift 3
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
    version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/seedzero/__init__.py")
    revision=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
    words=(build --file "$file" --tag "$name" "$@" "$context")
    if [ -z "$DOCKER" ]; then
        printf 'docker'
        printf ' %q' "${words[@]}"
        echo
        return
    fi
    write_pip_secrets
    DOCKER_BUILDKIT=1 "$DOCKER" "${words[@]}" --build-arg VERSION="$version" --build-arg REVISION="$revision" \
        --secret id=pip_conf,src="$STATE/secrets/pip_conf" --secret id=pip_ca,src="$STATE/secrets/pip_ca"
}
