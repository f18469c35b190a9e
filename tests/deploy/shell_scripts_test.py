"""Shell scripts by shellcheck, which reads them for mistakes."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.sh", "gcp/*.sh", "docker/*.sh", "cluster/*.sh", "scripts/*")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix != ".py"
)


def _shellcheck() -> str:
    found = shutil.which("shellcheck", path=sysconfig.get_path("scripts")) or shutil.which("shellcheck")
    if found is None:
        pytest.skip("shellcheck is not installed; the extra dev brings it")
    return found


def test_there_are_scripts_in_every_folder_that_has_them() -> None:
    assert {"run_local.sh", "gcp/lib.sh", "docker/smoke_test.sh", "scripts/lock"} <= set(map(str, SCRIPTS))


@pytest.mark.thorough
@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_shellcheck_finds_nothing(script: pathlib.Path) -> None:
    command = [_shellcheck(), "--external-sources", "--source-path=SCRIPTDIR", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
