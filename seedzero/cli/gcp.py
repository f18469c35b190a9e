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
from seedzero.core import errors, exit_codes, logs
from seedzero.launch import google_cloud
from seedzero.processes import respawn

PORT = 7777
"""The learner's port if Vertex AI assigns none."""
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
    flags = parse.read("gcp", COMMAND, own).flags
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
            return respawn.Respawner(lambda server: [*program, *worker_command(words, files, server)], address).run()
        port = PORT if address_object else int(google_cloud.learner_of_cluster(cluster_spec).rpartition(":")[2])
        if address_object:
            client.write_object(address_object, f"{client.own_address()}:{port}")
        return commands.main(train_command(words, files, port))


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


def worker_command(words: Sequence[str], files: Files, server: str) -> list[str]:
    """Returns a worker's command line of `seedzero`."""
    return [
        *words, f"--server={server}", f"--token_file={files.token}",
        f"--tls.ca_file={files.certificate}", f"--tls.server_name={SERVER_NAME}",
    ]  # fmt: skip


COMMAND = parse.Command(
    summary="Starts a learner or a worker on Google Cloud.",
    usage="--secret=NAME [--address_object=gs://BUCKET/NAME] train|worker [--key=value ...]",
    flags={
        "secret=projects/P/secrets/NAME/versions/V": "of gcp/setup.sh",
        "address_object=gs://BUCKET/NAME": "where the learner writes its address and workers read it (default: the "
        "first worker pool in CLUSTER_SPEC)",
    },
    required=("secret",),
    run=lambda arguments: exit_codes.BAD_USAGE,
)


if __name__ == "__main__":
    sys.exit(main())
