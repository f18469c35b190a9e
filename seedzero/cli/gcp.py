"""`python -m seedzero.cli.gcp`: the entry point of the containers of gcp/*.sh.

Everything from `train` or `worker` on is a command line of `seedzero`. This adds the learner's address, from
CLUSTER_SPEC (a custom job of Vertex AI) or from an object that the learner writes, and the token and certificate from
Secret Manager. None of these is in the job's description, and no command line has the secret.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from seedzero.cli import main as commands
from seedzero.cli import output, parse
from seedzero.core import errors, logs
from seedzero.interfaces.launch import google_cloud
from seedzero.learner.processes import keepers

PORT = 7777
"""The learner's port if Vertex AI assigns none."""
COORDINATOR_PORT = 7800
JOIN_SECONDS = 600
"""For all hosts of a slice to meet: one may still pull the image."""
SERVER_NAME = "seedzero-learner"
"""The name in the certificate of gcp/setup.sh, whatever the machine is called."""
COMMANDS = ("train", "worker")


class Files(NamedTuple):
    """Files with the secret, which only the user can read."""

    token: pathlib.Path
    certificate: pathlib.Path
    key: pathlib.Path


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command line (default: this process's) and returns the exit code."""
    logs.show("seedzero gcp", 0)
    try:
        return _run(list(sys.argv[1:] if args is None else args), os.environ)
    except errors.Error as error:
        return output.fail(error)


def _run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    own, words = split(args)
    arguments = parse.read("gcp", COMMAND, own)
    flags = arguments.flags
    address_object, cluster_spec = flags.get("address_object", ""), environ.get("CLUSTER_SPEC", "")
    if not address_object and not cluster_spec:
        raise errors.UsageError(
            "neither CLUSTER_SPEC, as in a custom job of Vertex AI, nor --address_object is set: learner and workers "
            "cannot find each other; give --address_object=gs://BUCKET/NAME"
        )
    client = google_cloud.CloudClient(google_cloud.endpoints(environ))

    def address() -> str | None:
        if address_object:
            return client.read_object(address_object)
        return google_cloud.learner_of_cluster(cluster_spec)

    with tempfile.TemporaryDirectory(prefix="seedzero-") as folder:
        files = write_files(pathlib.Path(folder), client.secret(flags["secret"]))
        if words[0] == "worker":
            program = (sys.executable, "-m", "seedzero.cli")
            return keepers.Respawner(lambda server: [*program, *worker_command(words, files, server)], address).run()
        port = PORT if address_object else int(google_cloud.learner_of_cluster(cluster_spec).rpartition(":")[2])
        command = train_command(words, files, port)
        if several := arguments.integer("hosts", minimum=2):
            number, addresses = client.slice_place()
            command += host_words(number, addresses, several, files, port)
        else:
            number, addresses = 0, [client.own_address()] if address_object else []
        if address_object and number == 0:
            client.write_object(address_object, ",".join(f"{host}:{port}" for host in addresses))
        return commands.main(command)


def split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits off the program's own flags from the command line of `seedzero`. Raises UsageError without a command."""
    for position, word in enumerate(args):
        if word in COMMANDS:
            return list(args[:position]), list(args[position:])
    raise errors.UsageError(f"no command of seedzero; usage: python -m seedzero.cli.gcp {COMMAND.usage}")


def write_files(folder: pathlib.Path, secret: google_cloud.Secret) -> Files:
    """Writes the parts of a secret into a folder; returns their paths."""
    files = Files(folder / "token", folder / "certificate.pem", folder / "key.pem")
    for path, text in zip(files, secret, strict=True):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    return files


def train_command(words: Sequence[str], files: Files, port: int) -> list[str]:
    """Returns the learner's command line of `seedzero`."""
    return [
        *words, f"--listen=0.0.0.0:{port}", f"--token_file={files.token}",
        f"--tls.cert_file={files.certificate}", f"--tls.key_file={files.key}",
    ]  # fmt: skip


def host_words(number: int, addresses: Sequence[str], num_hosts: int, files: Files, port: int) -> list[str]:
    """Returns what makes a learner one host of a TPU slice. Raises UsageError if the slice has other hosts."""
    if len(addresses) != num_hosts or number >= num_hosts:
        raise errors.UsageError(
            f"--hosts={num_hosts}: this machine is number {number} of a slice of {len(addresses)} hosts; give "
            "gcp/train_atari_tpu_vm.sh an --accelerator with 4 chips for each of --num_learners"
        )
    # gcp/startup.sh gives host 0 the name in the certificate.
    return [
        f"--cluster.num_hosts={num_hosts}", f"--cluster.index={number}",
        f"--cluster.coordinator={SERVER_NAME}:{COORDINATOR_PORT}", f"--cluster.ca_file={files.certificate}",
        f"--cluster.worker_address={addresses[number]}:{port}", f"--cluster.join_seconds={JOIN_SECONDS}",
    ]  # fmt: skip


def worker_command(words: Sequence[str], files: Files, server: str) -> list[str]:
    """Returns a worker's command line of `seedzero`."""
    return [
        *words, f"--server={server}", f"--token_file={files.token}",
        f"--tls.ca_file={files.certificate}", f"--tls.server_name={SERVER_NAME}",
    ]  # fmt: skip


COMMAND = parse.Command(
    summary="Starts a learner or a worker on Google Cloud.",
    usage="--secret=NAME [--address_object=gs://BUCKET/NAME] [--hosts=N] train|worker [--key=value ...]",
    flags={
        "secret=projects/P/secrets/NAME/versions/V": "of gcp/setup.sh",
        "address_object=gs://BUCKET/NAME": "where the learner writes its address and workers read it (default: the "
        "first worker pool in CLUSTER_SPEC)",
        "hosts=N": "learner hosts of a TPU slice, of which this machine is one",
    },
    required=("secret",),
    run=lambda arguments: errors.BAD_USAGE,
)


if __name__ == "__main__":
    sys.exit(main())
