# shellcheck shell=bash disable=SC2154  # whoever sources it sets root
# Sourced by run_local.sh and run_tests.sh, which set `root`. Installs the project into $root/.venv, once.
#
#   ensure_venv [EXTRA[,EXTRA]]   makes .venv if it is missing, and installs the project with these extras unless
#                                 that was done before and setup.py, pyproject.toml, protos/ and requirements/ are as
#                                 they were
#
# Packages come from requirements/*.txt, with the versions and hashes of the images. Extras without a lock file of their
# own take every version from there that is named there; their other packages have the bounds of setup.py alone.
#
# Works in the bash 3.2 of macOS too. Everything it says goes to standard error.

say() { echo "$(basename "$0"): $*" >&2; }

# Prints the first Python 3.11 to 3.13 that can make a virtual environment. A name on the PATH may be a shim that only
# complains, so each is run.
find_python() {
    local candidate tried=""
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11 python; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            if command -v uv >/dev/null 2>&1 || "$candidate" -c 'import venv, ensurepip' 2>/dev/null; then
                echo "$candidate"
                return 0
            fi
            say "$candidate can't make virtual environments (Debian and Ubuntu: apt-get install python3-venv)"
        else
            tried="$tried $candidate ($("$candidate" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo 'does not run'))"
        fi
    done
    say "no Python 3.11, 3.12 or 3.13 that can be used; found:${tried:- none}."
    say "Install one, or uv (which brings its own), or name it: PYTHON=/path/to/python3.12 $0 ..."
    return 1
}

make_venv() {
    local python link
    if python=$(find_python); then
        say "making $root/.venv with $python"
        if command -v uv >/dev/null 2>&1; then
            uv venv --quiet --seed --allow-existing --python "$(command -v "$python")" "$root/.venv" >&2
        else
            # venv fails at links whose Python is gone. It may not clear .venv: others wait for the lock there.
            for link in "$root"/.venv/bin/python*; do
                [ -e "$link" ] || rm -f "$link"
            done
            "$python" -m venv "$root/.venv" >&2
        fi
    elif command -v uv >/dev/null 2>&1; then
        say "making $root/.venv with a Python that uv brings"
        uv venv --quiet --seed --allow-existing --python '>=3.11,<3.14' "$root/.venv" >&2
    else
        return 1
    fi
}

pip_install() { # ARGUMENTS that pip and uv both know
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$root/.venv/bin/python" "$@" >&2
    else
        "$root/.venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2
    fi
}

install_project() { # EXTRAS
    local extra line options=() locks=(build learner) files=() unlocked=() requirements=()
    # Programs in .venv/bin name the Python of the place that they were installed in.
    if [ -f "$root/.venv/root" ] && [ "$(cat "$root/.venv/root")" != "$root" ]; then
        say "this clone was $(cat "$root/.venv/root"): installing everything anew"
        options+=(--force-reinstall)
    fi
    # The packages of tests have 17,000 files, and few are imported: the tests cache the bytecode of those themselves.
    case "${1:-}" in dev*) options+=(--no-compile) ;; esac
    for extra in $(echo "${1:-}" | tr , " "); do
        if [ -f "$root/requirements/learner-$extra.txt" ]; then
            locks+=("learner-$extra")
        elif [ -f "$root/requirements/worker-$extra.txt" ]; then
            locks+=("worker-$extra")
        else
            unlocked+=("$extra")
        fi
    done
    for line in "${locks[@]}"; do files+=(--requirement "$root/requirements/$line.txt"); done
    say "installing seedzero${1:+ with $1} into $root/.venv, once: one to three minutes"
    command -v uv >/dev/null 2>&1 || "$root/.venv/bin/python" -m pip --version >/dev/null 2>&1 ||
        "$root/.venv/bin/python" -m ensurepip >&2 || return 1
    pip_install ${options[@]+"${options[@]}"} --no-deps --require-hashes "${files[@]}" || return 1
    # setuptools and grpcio-tools are of build.txt, whose hashes were checked: pip shall not fetch its own.
    pip_install ${options[@]+"${options[@]}"} --no-deps --no-build-isolation --editable "$root" || return 1
    if [ ${#unlocked[@]} -gt 0 ]; then
        while IFS= read -r line; do requirements+=("$line"); done < <(requirements_of "${unlocked[@]}")
        for line in "${locks[@]}"; do pins "$root/requirements/$line.txt"; done > "$root/.venv/constraints.txt"
        pip_install ${options[@]+"${options[@]}"} --constraint "$root/.venv/constraints.txt" "${requirements[@]}" || return 1
    fi
    echo "$root" > "$root/.venv/root"
}

pins() { awk '/^[a-z0-9]/ { sub(/ \\$/, ""); print }' "$1"; } # LOCK: its versions without hashes, which constraints have not

# Prints what the extras ask for, as the installed package says it.
requirements_of() { # EXTRAS...
    "$root/.venv/bin/python" - "$@" <<'PYTHON'
import importlib.metadata, sys
for line in importlib.metadata.requires("seedzero"):
    requirement, _, extra = line.partition("; extra == ")
    if extra.strip('"') in sys.argv[1:]:
        print(requirement)
PYTHON
}

# Prints what an installation depends on: where it is, its Python, and the files that say what it is made of.
fingerprint() {
    "$root/.venv/bin/python" - "$root" <<'PYTHON'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
files = [root / "setup.py", root / "pyproject.toml"]
files += [*sorted((root / "protos").rglob("*.proto")), *sorted((root / "requirements").glob("*.txt"))]
digest = hashlib.sha256(f"{root} {sys.version}".encode())
for file in files:
    digest.update(file.read_bytes())
print(digest.hexdigest())
PYTHON
}

is_installed() { # STAMP
    local stub="$root/seedzero/transport/inference_pb2_grpc.py"
    [ -f "$1" ] && [ -f "$stub" ] && [ "$(cat "$1")" = "$(fingerprint)" ]
}

ensure_venv() { # EXTRAS
    local other stamp="$root/.venv/installed-${1:-base}"
    mkdir -p "$root/.venv"
    # Two runs started at once must not install over each other.
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$root/.venv/lock"
        flock 9
    fi
    if ! "$root/.venv/bin/python" -c '' 2>/dev/null; then
        make_venv || return 1
    fi
    if is_installed "$stamp"; then
        [ -f "$root/.venv/root" ] || echo "$root" > "$root/.venv/root" # of an earlier version's installation
    else
        install_project "${1:-}" || return 1
        fingerprint > "$stamp"
        say "installed; for the command seedzero in your shell: . $(printf %q "$root/.venv/bin/activate")"
        # All extras share packages and stubs, which are of these files now: what was installed for others is not there.
        for other in "$root"/.venv/installed-*; do
            cmp -s "$other" "$stamp" || rm -f "$other"
        done
    fi
    if command -v flock >/dev/null 2>&1; then
        exec 9>&-
    fi
}
