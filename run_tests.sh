#!/usr/bin/env bash
# Checks and tests, from a clean clone: ./run_tests.sh [--all] [--clouds] [--docker] [--slow] [arguments of pytest]
# Installs its requirements into .venv beside this file. Without --all, only the quick tests run, which notice nearly
# everything that breaks. --all adds the thorough ones, --slow those of minutes each, too. --clouds installs the packages
# of Google Cloud, Ray and Kubernetes, and runs the tests that need them; --docker adds the tests of the images
# (docker/smoke_test.sh --help explains them).
set -uo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
cd "$root" || exit 1
with_docker="" tier=() extras=dev
while :; do
    case "${1:-}" in
        --clouds) extras=dev,clouds ;;
        --docker) with_docker=yes ;;
        --all | --slow) tier=("$1") ;;
        *) break ;;
    esac
    shift
done
. scripts/venv.sh
ensure_venv "$extras" || exit 1

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
check_log=$(mktemp)
set -m # a process group of its own: its children end with it
scripts/check > "$check_log" 2>&1 & # mypy has use for one core; its report comes after that of the tests
checker=$!
set +m
# shellcheck disable=SC2329  # the traps call it
leave() {
    [ -z "$checker" ] || kill -- "-$checker" 2>/dev/null
    pkill -P "$$" 2>/dev/null
    rm -f "$log" "$check_log"
}
trap leave EXIT
trap 'exit 130' INT # once pytest, which gets it too, has reported
# shellcheck disable=SC2266,SC2329  # scripts/test is a script and no test, and step calls these
run_pytest() { scripts/test "$@" 2>&1 | tee -i "$log"; return "${PIPESTATUS[0]}"; }
# shellcheck disable=SC2329  # as above
finish_checks() { wait "$checker"; local code=$?; checker=""; cat "$check_log"; return "$code"; }

step tests run_pytest "${tier[@]}" "$@"
step checks finish_checks
[ -z "$with_docker" ] || step docker docker/smoke_test.sh

echo "== summary"
printf '%s\n' "${summary[@]}"
tail -n 1 "$log"
exit "$failed"
