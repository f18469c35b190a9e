"""Hosts on machines whose own name is loopback, as Debian's 127.0.1.1 NAME in /etc/hosts has it."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import quick_xla
import two_machines

_NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--uts"]


def _may_make_namespaces() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount", "hostname"))):
        return False
    link = ["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb"]
    return subprocess.run([*_NAMESPACES, *link], capture_output=True, check=False).returncode == 0


@pytest.mark.thorough
def test_hosts_meet_though_the_name_of_their_machine_is_loopback(tmp_path: pathlib.Path) -> None:
    if not _may_make_namespaces():
        pytest.skip("network namespaces are not permitted here")
    ended = subprocess.run(
        [*_NAMESPACES, sys.executable, two_machines.__file__, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "XLA_FLAGS": quick_xla.flags()},
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = set(re.findall(r"host [01] has \[7\. 7\. 7\.\]", ended.stdout))  # both write to one pipe, so lines may join
    assert said == {"host 0 has [7. 7. 7.]", "host 1 has [7. 7. 7.]"}, ended.stdout
