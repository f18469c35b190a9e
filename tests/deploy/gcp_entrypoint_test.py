"""What containers on Google Cloud start: the entrypoint, what it asks its surroundings, the startup script."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import logging
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from seedzero.cli import gcp
from seedzero.core import errors
from seedzero.interfaces.launch import google_cloud
from seedzero.learner.processes import keepers, programs

ROOT = pathlib.Path(__file__).parents[2]
SECRET = google_cloud.Secret("a-token", "CERTIFICATE\n", "KEY\n")
SECRET_NAME = "projects/p/secrets/s/versions/latest"
ADDRESS_OBJECT = "gs://bucket/runs/r/learner_address"
WAIT_SECONDS = 600.0
LEARN_SECONDS = 1500.0


def cluster_spec(address: str = "cmle-training-workerpool0-1a2b-0:2222", *, pool: int = 0) -> str:
    """Returns CLUSTER_SPEC as Vertex AI writes it."""
    cluster = {"workerpool0": [address], "workerpool1": ["cmle-training-workerpool1-1a2b-0:2222"]}
    task = {"type": f"workerpool{pool}", "index": 0}
    return json.dumps({"cluster": cluster, "environment": "cloud", "task": task, "job": "{}"})


class Machine:
    """The metadata server, Secret Manager and Cloud Storage, as a machine sees them, on a free port."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.attributes: dict[str, str] = {}
        self.secret = json.dumps(SECRET._asdict()).encode()
        self.failures: list[int] = []  # the codes of the next answers
        self.broken: list[bytes] = []  # the next answers in raw bytes; these come first
        self.asked: list[str] = []
        machine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _serve(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length") or 0))
                if machine.broken:
                    self.wfile.write(machine.broken.pop(0))
                    return
                code, answer = machine.answer(self.path, content, dict(self.headers))
                self.send_response(code)
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = _serve

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._http.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "GCE_METADATA_HOST": self.host,
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER": f"http://{self.host}/",
            "STORAGE_EMULATOR_HOST": f"http://{self.host}",
        }

    @property
    def client(self) -> google_cloud.CloudClient:
        return google_cloud.CloudClient(google_cloud.endpoints(self.environment), sleep=lambda seconds: None)

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, target: str, content: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        self.asked.append(target)
        if self.failures:
            return self.failures.pop(0), b"{}"
        url = urllib.parse.urlsplit(target)
        metadata = url.path.removeprefix("/computeMetadata/v1/instance/")
        if metadata != url.path:
            return self._metadata(metadata) if headers.get("Metadata-Flavor") == "Google" else (403, b"")
        if headers.get("Authorization") != "Bearer t0ken":
            return 401, b"{}"
        if url.path == f"/v1/{SECRET_NAME}:access":
            return 200, json.dumps({"payload": {"data": base64.b64encode(self.secret).decode()}}).encode()
        if url.path == "/upload/storage/v1/b/bucket/o":
            self.objects[urllib.parse.parse_qs(url.query)["name"][0]] = content
            return 200, b"{}"
        name = urllib.parse.unquote(url.path.removeprefix("/storage/v1/b/bucket/o/"))
        return (200, self.objects[name]) if name in self.objects else (404, b"{}")

    def _metadata(self, path: str) -> tuple[int, bytes]:
        if path == "service-accounts/default/token":
            return 200, json.dumps({"access_token": "t0ken", "expires_in": 3000, "token_type": "Bearer"}).encode()
        if path == "network-interfaces/0/ip":
            return 200, b"10.0.0.7"
        name = path.removeprefix("attributes/")
        return (200, self.attributes[name].encode()) if name in self.attributes else (404, b"")


@pytest.fixture
def machine() -> Iterator[Machine]:
    found = Machine()
    yield found
    found.close()


class TestSurroundings:
    def test_the_secret_is_read_with_the_service_account_s_token(self, machine: Machine) -> None:
        assert machine.client.secret(SECRET_NAME) == SECRET

    @pytest.mark.parametrize("content", [b"no JSON", b'{"token": "hush"}', b"[]"])
    def test_a_secret_that_is_something_else_is_named_but_not_shown(self, machine: Machine, content: bytes) -> None:
        machine.secret = content
        with pytest.raises(errors.Error, match=r"token, certificate, key; gcp/setup\.sh.*--rotate_secret") as caught:
            machine.client.secret(SECRET_NAME)
        assert "hush" not in str(caught.value)

    def test_an_object_is_written_read_and_missed(self, machine: Machine) -> None:
        assert machine.client.read_object(ADDRESS_OBJECT) is None
        machine.client.write_object(ADDRESS_OBJECT, "10.0.0.7:7777")
        assert machine.objects == {"runs/r/learner_address": b"10.0.0.7:7777"}
        assert machine.client.read_object(ADDRESS_OBJECT) == "10.0.0.7:7777"

    def test_a_service_that_is_busy_is_asked_again(self, machine: Machine) -> None:
        machine.failures = [503, 429]
        assert machine.client.own_address() == "10.0.0.7"
        machine.failures = [503] * 6
        with pytest.raises(errors.Error, match=r"metadata server.*503"):
            machine.client.own_address()

    @pytest.mark.parametrize("answer", [b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n10.0", b"no HTTP\r\n\r\n"])
    def test_an_answer_that_breaks_off_is_asked_for_again(self, machine: Machine, answer: bytes) -> None:
        machine.broken = [answer] * 2
        assert machine.client.own_address() == "10.0.0.7"
        machine.broken = [answer] * 6
        with pytest.raises(errors.Error, match="metadata server"):
            machine.client.own_address()

    def test_a_refusal_is_final_and_says_what_to_do(self, machine: Machine) -> None:
        machine.failures = [403]
        with pytest.raises(errors.Error, match=r"403 .*; gcp/setup\.sh "):
            machine.client.own_address()
        assert len(machine.asked) == 1

    def test_without_google_cloud_the_error_says_so(self) -> None:
        client = google_cloud.CloudClient(google_cloud.Endpoints(metadata="http://127.0.0.1:1"), retry_seconds=())
        with pytest.raises(errors.Error, match=r"metadata server.*\b111\b"):
            client.own_address()

    def test_google_s_own_addresses_hold_unless_variables_say_otherwise(self) -> None:
        assert google_cloud.endpoints({}) == google_cloud.Endpoints()

    @pytest.mark.parametrize("url", ["bucket/name", "gs://bucket", "gs:///name"])
    def test_an_object_s_name_that_is_none_is_refused(self, machine: Machine, url: str) -> None:
        with pytest.raises(errors.UsageError, match="expected gs://BUCKET/NAME"):
            machine.client.read_object(url)

    def test_the_learner_is_the_first_pool_of_a_vertex_job(self) -> None:
        assert google_cloud.learner_of_cluster(cluster_spec(pool=1)) == "cmle-training-workerpool0-1a2b-0:2222"

    @pytest.mark.parametrize(
        "text", ["", "{}", "[]", '{"cluster": {"workerpool0": []}}', '{"cluster": {"workerpool0": ["a:1", "b:1"]}}',
                 '{"cluster": {"workerpool0": ["host"]}}', '{"cluster": {"workerpool0": [7]}}']
    )  # fmt: skip
    def test_a_cluster_spec_that_is_something_else_is_refused(self, text: str) -> None:
        with pytest.raises(errors.UsageError, match=r"HOST:PORT .*cluster\.workerpool0"):
            google_cloud.learner_of_cluster(text)


class TestCommandLines:
    def test_the_secret_s_files_are_for_this_user_only(self, tmp_path: pathlib.Path) -> None:
        files = gcp.write_files(tmp_path, SECRET)
        assert [path.read_text() for path in files] == list(SECRET)
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ([], "usage: python -m seedzero.cli.gcp --secret=NAME "),
            (["--secret=x"], "no command of seedzero"),
            (["--secrt=x", "train"], "--secrt=x; did you mean --secret?"),
            (["train"], "--secret=projects/P/secrets/NAME/versions/V is missing"),
            (["--secret=x", "train"], "neither CLUSTER_SPEC, as in a custom job of Vertex AI, nor --address_object"),
        ],
    )
    def test_a_mistake_ends_with_2(
        self,
        args: list[str],
        message: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.delenv("CLUSTER_SPEC", raising=False)
        assert gcp.main(args) == 2
        err = capsys.readouterr().err
        assert message in err

    @pytest.mark.parametrize(
        ("flags", "spec", "listen"),
        [([], cluster_spec(), "0.0.0.0:2222"), ([f"--address_object={ADDRESS_OBJECT}"], "", "0.0.0.0:7777")],
        ids=["vertex", "tpu_vm"],
    )
    def test_a_learner_listens_where_its_workers_look(
        self, flags: list[str], spec: str, listen: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[list[str]] = []

        def train(words: list[str]) -> int:
            seen.append(words)
            (token,) = (word.partition("=")[2] for word in words if word.startswith("--token_file="))
            assert pathlib.Path(token).read_text() == SECRET.token
            return 3

        monkeypatch.setattr(gcp.commands, "main", train)
        for name, value in {**machine.environment, "CLUSTER_SPEC": spec}.items():
            monkeypatch.setenv(name, value)
        assert gcp.main([f"--secret={SECRET_NAME}", *flags, "train", "--preset=catch"]) == 3
        ((*words,),) = seen
        assert words[:2] == ["train", "--preset=catch"] and f"--listen={listen}" in words
        assert not any(part in " ".join(words) for part in SECRET)
        assert machine.objects == ({} if spec else {"runs/r/learner_address": b"10.0.0.7:7777"})

    @pytest.mark.parametrize("number", [0, 1])
    def test_a_host_of_a_slice_finds_the_others_by_its_metadata(
        self, number: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[list[str]] = []
        monkeypatch.setattr(gcp.commands, "main", lambda words: seen.append(words) or 0)
        monkeypatch.delenv("CLUSTER_SPEC", raising=False)
        for name, value in machine.environment.items():
            monkeypatch.setenv(name, value)
        endpoints = "unknown:unknown:10.0.0.7,unknown:unknown:10.0.0.8"
        machine.attributes = {"agent-worker-number": str(number), "worker-network-endpoints": endpoints}
        words = [f"--secret={SECRET_NAME}", f"--address_object={ADDRESS_OBJECT}", "--hosts=2", "train"]
        assert gcp.main(words) == 0
        ((*words,),) = seen
        assert {"--cluster.num_hosts=2", f"--cluster.index={number}"} <= set(words)
        assert "--cluster.coordinator=seedzero-learner:7800" in words
        assert f"--cluster.worker_address=10.0.0.{7 + number}:7777" in words
        written = {} if number else {"runs/r/learner_address": b"10.0.0.7:7777,10.0.0.8:7777"}
        assert machine.objects == written  # workers get the list of all hosts, once

    @pytest.mark.parametrize(
        ("number", "endpoints", "told"),
        [
            ("0", "a:b:10.0.0.7", "--hosts=2: this machine is number 0 of a slice of 1 hosts; give "),
            ("", "a:b:10.0.0.7,a:b:10.0.0.8", "agent-worker-number='' and "),
            ("0", "10.0.0.7", "worker-network-endpoints='10.0.0.7'; expected a number and ID:ID:ADDRESS"),
        ],
    )
    def test_a_slice_with_other_hosts_is_refused(
        self,
        number: str,
        endpoints: str,
        told: str,
        machine: Machine,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.delenv("CLUSTER_SPEC", raising=False)
        for name, value in machine.environment.items():
            monkeypatch.setenv(name, value)
        machine.attributes = {"agent-worker-number": number, "worker-network-endpoints": endpoints}
        words = [f"--secret={SECRET_NAME}", f"--address_object={ADDRESS_OBJECT}", "--hosts=2", "train"]
        assert gcp.main(words) != 0
        assert told in capsys.readouterr().err
        assert not machine.objects


SCRIPT = """
import json, pathlib, signal, sys, time
folder, address = pathlib.Path(sys.argv[1]), sys.argv[2]
number = len(list(folder.glob("life-*")))
def leave(*_):
    (folder / f"left-{number}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
(folder / "new").write_text(address)
(folder / "new").rename(folder / f"life-{number}")  # whole, or not there yet
codes = json.loads((folder / "codes").read_text())
if number < len(codes):
    sys.exit(codes[number])
while True:
    time.sleep(60)
"""
"""A worker that ends with the codes in a file, one a life, and then stays until it is told to leave."""


class TestRespawn:
    def _worker(self, folder: pathlib.Path, codes: list[int], address: Any = lambda: "host:1") -> keepers.Respawner:
        (folder / "codes").write_text(json.dumps(codes))
        return keepers.Respawner(
            lambda server: [sys.executable, "-c", SCRIPT, str(folder), server], address, poll_seconds=0.05
        )

    def _lives(self, folder: pathlib.Path) -> list[str]:
        return [path.read_text() for path in sorted(folder.glob("life-*"))]

    @pytest.fixture(autouse=True)
    def _signals(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    def test_a_worker_that_fails_is_started_again_until_training_is_over(self, tmp_path: pathlib.Path) -> None:
        assert self._worker(tmp_path, [1, 7, 0]).run() == 0
        assert self._lives(tmp_path) == ["host:1"] * 3

    def test_one_that_keeps_failing_is_given_up_with_its_code(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(programs, "FIRST_DELAY_SECONDS", 0.01)
        assert self._worker(tmp_path, [9] * 20).run() == 9
        assert len(self._lives(tmp_path)) == programs.MAX_FAILURES
        assert "gives up" in caplog.text

    def test_it_waits_for_the_learner_and_follows_when_that_moves(
        self, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        silent = iter([None, None])

        def address() -> str | None:
            lives = len(self._lives(tmp_path))
            if lives == 2:  # asked for the last time: one that was told to stop asks no more
                os.kill(os.getpid(), signal.SIGTERM)
            return next(silent, "a:1") if lives == 0 else "b:1"

        assert self._worker(tmp_path, [], address).run() == 0
        assert self._lives(tmp_path) == ["a:1", "b:1"]
        assert sorted(path.name for path in tmp_path.glob("left-*")) == ["left-0", "left-1"]
        assert caplog.text.count("a:1") >= 1 and " a:1 to b:1" in caplog.text

    def test_a_question_that_fails_changes_nothing(self, tmp_path: pathlib.Path) -> None:
        asked = 0

        def address() -> str | None:
            nonlocal asked
            asked += 1
            if asked in (1, 3, 4):
                raise errors.Error("cannot reach")
            if asked > 5 and self._lives(tmp_path):
                os.kill(os.getpid(), signal.SIGTERM)
            return "a:1"

        assert self._worker(tmp_path, [], address).run() == 0
        assert self._lives(tmp_path) == ["a:1"]

    def test_an_error_of_its_own_leaves_no_worker_behind(self, tmp_path: pathlib.Path) -> None:
        def address() -> str:
            if self._lives(tmp_path):
                raise RuntimeError("a mistake")
            return "a:1"

        worker = self._worker(tmp_path, [], address)
        try:
            with pytest.raises(RuntimeError, match="a mistake"):
                worker.run()
            assert [path.name for path in tmp_path.glob("left-*")] == ["left-0"]
        finally:
            worker._keeper.stop(WAIT_SECONDS)

    def test_a_signal_before_there_is_a_learner_ends_it(self, tmp_path: pathlib.Path) -> None:
        def address() -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        assert self._worker(tmp_path, [], address).run() == 0
        assert self._lives(tmp_path) == []


class TestStartupScript:
    @pytest.fixture
    def tools(self, tmp_path: pathlib.Path) -> str:
        """A PATH with a docker that writes down its arguments, and what it is given at a login."""
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "docker").write_text(
            "#!/usr/bin/env bash\n"
            f'touch "{tmp_path}/failing"; [ "$1" != login ] || cat > "{tmp_path}/password"\n'
            f'if [ "$(head -n 1 "{tmp_path}/failing")" = "$1" ]; then sed -i.old 1d "{tmp_path}/failing"; exit 1; fi\n'
            f'printf "%s\\0" "$@" >> "{tmp_path}/calls"; printf "\\n\\0" >> "{tmp_path}/calls"\n'
        )
        (tools / "docker").chmod(0o755)
        return f"{tools}{os.pathsep}{os.environ['PATH']}"

    def _run(self, machine: Machine, tools: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(ROOT / "gcp" / "startup.sh")], capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": tools, "GCE_METADATA_HOST": machine.host, "POLL_SECONDS": "0"},
        )  # fmt: skip

    def _calls(self, tmp_path: pathlib.Path) -> list[list[str]]:
        calls = (tmp_path / "calls").read_text().split("\0\n\0")[:-1]
        return [call.split("\0") for call in calls]

    def test_the_hosts_of_a_slice_know_host_0_by_the_name_in_its_certificate(
        self, machine: Machine, tools: str, tmp_path: pathlib.Path
    ) -> None:
        endpoints = "unknown:unknown:10.0.0.7,unknown:unknown:10.0.0.8"
        arguments = "--secret=s\n--hosts=2\ntrain"
        machine.attributes = {"seedzero-image": "place/p/i:1", "seedzero-arguments": arguments}
        machine.attributes["worker-network-endpoints"] = endpoints
        done = self._run(machine, tools)
        assert done.returncode == 0, done.stderr
        assert f"--add-host={gcp.SERVER_NAME}:10.0.0.7" in self._calls(tmp_path)[-1]

    @pytest.mark.parametrize("flags", ["--privileged --user=root", None])
    def test_it_runs_the_image_with_the_arguments_that_metadata_has(
        self, machine: Machine, tools: str, tmp_path: pathlib.Path, flags: str | None
    ) -> None:
        image = "us-central1-docker.pkg.dev/p/seedzero/worker:1"
        machine.attributes = {"seedzero-image": image, "seedzero-arguments": "--secret=s\nworker\n--x=a b\"c'$(d)\n"}
        if flags:
            machine.attributes["seedzero-docker-flags"] = flags
        done = self._run(machine, tools)
        assert done.returncode == 0, done.stderr
        login, *_, last = self._calls(tmp_path)
        assert login[-1] == "https://us-central1-docker.pkg.dev"
        assert (tmp_path / "password").read_text().strip() == "t0ken"
        position = last.index(image)
        assert last[position:] == [image, "-m", "seedzero.cli.gcp", "--secret=s", "worker", "--x=a b\"c'$(d)"]
        expected = {
            "--restart=on-failure",
            "--stop-timeout=60",
            "--network=host",
            "--entrypoint=python",
            "--log-opt=gcp-project=p",
        }
        assert expected <= set(last[:position])
        assert ("--privileged" in last) == bool(flags)
        assert "t0ken" not in (tmp_path / "calls").read_text() + done.stdout + done.stderr

    def test_a_registry_that_does_not_answer_yet_is_asked_again(
        self, machine: Machine, tools: str, tmp_path: pathlib.Path
    ) -> None:
        machine.attributes = {"seedzero-image": "host/p/r/worker:1", "seedzero-arguments": "worker\n"}
        (tmp_path / "failing").write_text("login\npull\n")
        done = self._run(machine, tools)
        assert done.returncode == 0 and done.stderr.count("trying again") == 2
        assert [call[0] for call in self._calls(tmp_path)] == ["login", "login", "pull", "rm", "run"]

    def test_it_fails_where_metadata_has_no_image(self, machine: Machine, tools: str, tmp_path: pathlib.Path) -> None:
        assert self._run(machine, tools).returncode != 0
        assert not (tmp_path / "calls").exists()


@pytest.mark.slow
def test_a_learner_and_workers_find_each_other_and_train_over_tls(machine: Machine, tmp_path: pathlib.Path) -> None:
    script = f'. "{ROOT}/gcp/lib.sh"; set -euo pipefail; new_secret'
    machine.secret = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    token = json.loads(machine.secret)["token"].encode()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        spec = cluster_spec(f"127.0.0.1:{probe.getsockname()[1]}")
    environment = {**os.environ, **machine.environment, "CLUSTER_SPEC": spec, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "seedzero.cli.gcp", f"--secret={SECRET_NAME}"]
    run = tmp_path / "run"
    with (tmp_path / "log").open("w") as log, contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen([*command, *words], env=environment, stdout=log, stderr=log)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        workers = [start("worker"), start("worker")]
        learner = start("train", "--preset=catch", "--workers=0", f"--run_dir={run}", "--max_seconds=600")
        assert learner.wait(LEARN_SECONDS) == 0
        assert [worker.wait(WAIT_SECONDS) for worker in workers] == [0, 0]
    text = (tmp_path / "log").read_text()
    assert text.count("joined with") == 2 and "finished: " in text
    written = [tmp_path / "log", *(path for path in run.rglob("*") if path.is_file())]
    assert not [path for path in written if token in path.read_bytes()]
