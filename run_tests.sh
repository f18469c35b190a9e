#!/usr/bin/env bash
# All checks and tests, from a clean clone: ./run_tests.sh [--docker] [--slow] [arguments of pytest]
# Installs its requirements into .venv beside this file. --slow adds the tests of minutes each, --docker those of the images
# (docker/smoke_test.sh --help explains them).
set -uo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
cd "$root" || exit 1
with_docker=""
if [ "${1:-}" = --docker ]; then
    with_docker=yes
    shift
fi
. scripts/venv.sh
ensure_venv dev || exit 1

failed=0
summary=()
step() { # NAME COMMAND...
    local name=$1 started=$SECONDS
    shift
    echo "== $name"
    if "$@"; then
        summary+=("$(printf '%-8s ok      %4d s' "$name" $((SECONDS - started)))")
    else
        summary+=("$(printf '%-8s FAILED  %4d s' "$name" $((SECONDS - started)))")
        failed=1
    fi
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2266,SC2329  # scripts/test is a script and no test, and step calls this
run_pytest() { scripts/test "$@" 2>&1 | tee "$log"; return "${PIPESTATUS[0]}"; }

step checks scripts/check
step tests run_pytest "$@"
[ -z "$with_docker" ] || step docker docker/smoke_test.sh

echo "== summary"
printf '%s\n' "${summary[@]}"
tail -n 1 "$log"
exit "$failed"
