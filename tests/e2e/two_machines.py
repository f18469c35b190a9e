"""Two hosts in network namespaces, each of whose machine's own name is loopback: OUTPUT of this program in namespaces.

    unshare --user --map-root-user --mount --net --uts python two_machines.py DIRECTORY
    python two_machines.py DIRECTORY INDEX   # a host: meets the other, and gives or takes its numbers

This process is the first machine. The second is a namespace that lasts as long as its shell.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

NAME, ADDRESSES = "two-machines", ("10.99.0.1", "10.99.0.2")


def host(directory: pathlib.Path, index: int) -> None:
    """Meets the other host and prints what host 0 has."""
    import numpy as np

    from seedzero.config import configs
    from seedzero.device import across
    from seedzero.learner import together

    values = {
        "cluster.num_hosts": 2,
        "cluster.index": index,
        "cluster.coordinator": f"{ADDRESSES[0]}:7820",
    }
    config = configs.override(configs.Config(), {**values, "transport.insecure": True})
    with together.meeting(config, directory / str(index), print):
        print(f"host {index} has {across.broadcast(np.full(3, 7.0 - index))}", flush=True)


def main() -> None:
    """Runs as the brief at the top says."""
    directory = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 2:
        host(directory, int(sys.argv[2]))
        return
    hosts = directory / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {NAME}\n")
    holding = ["unshare", "--net", "sh", "-c", "echo up; exec cat"]
    with subprocess.Popen(holding, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as second:
        assert second.stdout is not None and second.stdout.readline() == b"up\n"
        inside = ["nsenter", f"--target={second.pid}", "--net"]
        for command in (
            ["hostname", NAME],
            ["mount", "--bind", str(hosts), "/etc/hosts"],
            ["ip", "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", str(second.pid)],
            *_up("va", ADDRESSES[0]),
            *([*inside, *command] for command in _up("vb", ADDRESSES[1])),
        ):
            subprocess.run(command, check=True)
        program = [sys.executable, __file__, str(directory)]
        ends = [subprocess.Popen([*program, "0"]), subprocess.Popen([*inside, *program, "1"])]
        codes = [end.wait(1500) for end in ends]
        assert second.stdin is not None
        second.stdin.close()
    sys.exit(max(codes))


def _up(link: str, address: str) -> list[list[str]]:
    return [
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", f"{address}/24", "dev", link],
        ["ip", "link", "set", link, "up"],
    ]


if __name__ == "__main__":
    main()
