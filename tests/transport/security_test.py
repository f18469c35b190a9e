"""Tokens and TLS, by themselves and between the real server and the real client; names that move."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import certificates
import grpc
import pytest
import wire

from seedzero.config import sections
from seedzero.core import errors
from seedzero.transport import client, codec, inference_pb2, messages, probe, security

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
TOKEN = "correct-horse-battery-staple"
END_SECONDS = 120.0
"""A worker whose learner will never take it says so within this."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> certificates.Files:
    return certificates.make(tmp_path_factory.mktemp("tls") / "authority", ["127.0.0.1", "learner.example"])


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> certificates.Files:
    """Of another authority."""
    return certificates.make(tmp_path_factory.mktemp("tls") / "stranger", ["127.0.0.1"])


def write(path: pathlib.Path, content: str | bytes, mode: int = 0o600) -> str:
    """Writes a file and returns its name."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return str(path)


@pytest.fixture
def token_file(tmp_path: pathlib.Path) -> str:
    return write(tmp_path / "token", TOKEN + "\n")


def tls_of(files: certificates.Files) -> sections.TlsConfig:
    return sections.TlsConfig(str(files.cert), str(files.key))


# --- what is read ---


def test_a_token_is_what_is_in_the_file_without_white_space_around(tmp_path: pathlib.Path) -> None:
    assert security.read_token(write(tmp_path / "t", f"\n {TOKEN}\r\n")) == TOKEN


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "openssl"),
        (" \n", "is empty"),
        ("two words", " 9 bytes"),
        ("line\nline", " 9 bytes"),
        ("schlüssel", " 10 bytes"),
        (b"\x00\xff", " 2 bytes"),
        ("x" * 4097, " 4097 bytes .* 4096 "),
        ("x" * 15, "fewer than 16 .*openssl"),
    ],
)
def test_a_file_without_a_token_is_refused_without_showing_its_content(
    tmp_path: pathlib.Path, content: str | bytes, message: str
) -> None:
    path = write(tmp_path / "t", content)
    with pytest.raises(errors.UsageError, match=message) as caught:
        security.read_token(path)
    assert path in str(caught.value)
    assert "two words" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.UsageError, match=r"--token_file=\S*/t "):
        security.read_token(str(tmp_path / "t"))


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o604, True)])
def test_a_token_that_everybody_can_read_is_warned_of(tmp_path: pathlib.Path, mode: int, warned: bool) -> None:
    warning = security.exposure(write(tmp_path / "t", TOKEN, mode))
    assert (warning is not None) == warned
    assert not warned or f"(mode {mode:o}); chmod 600" in str(warning)
    assert security.exposure("") is None


def test_a_process_that_knows_a_token_leaves_no_core_file(token_file: str, tmp_path: pathlib.Path) -> None:
    program = (
        "import os, resource, sys; from seedzero.transport import security; "
        "hard = resource.getrlimit(resource.RLIMIT_CORE)[1]; resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)); "
        "security.read_token(sys.argv[1]); assert resource.getrlimit(resource.RLIMIT_CORE) == (0, hard); os.abort()"
    )
    words = [sys.executable, "-c", program, token_file]
    ended = subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert ended.returncode == -signal.SIGABRT
    assert [path.name for path in tmp_path.iterdir()] == [pathlib.Path(token_file).name]


def test_a_given_token_may_end_with_a_file_s_newline() -> None:
    assert security.for_client("127.0.0.1:1", token=f"{TOKEN}\n") == security.for_client("127.0.0.1:1", token=TOKEN)


def test_what_holds_a_token_does_not_show_it(token_file: str) -> None:
    server = security.for_server(token_file, sections.TlsConfig())
    worker = security.for_client("127.0.0.1:1", security.Access(token_file))
    assert server.token == TOKEN and TOKEN in worker.metadata[0][1]
    assert TOKEN not in repr(server) + repr(worker)


@pytest.mark.parametrize(
    ("cert", "message"),
    [("stranger", r"--tls\.cert_file=.*--tls\.key_file=.*MISMATCH"), ("nonsense", r"--tls\.cert_file=\S*/cert ")],
)
def test_a_certificate_that_is_none_or_has_another_key_is_refused(
    files: certificates.Files,
    stranger: certificates.Files,
    tmp_path: pathlib.Path,
    cert: str,
    message: str,
) -> None:
    file = str(stranger.cert) if cert == "stranger" else write(tmp_path / "cert", "nonsense")
    with pytest.raises(errors.UsageError, match=message):
        security.for_server("", sections.TlsConfig(file, str(files.key)))


@pytest.mark.parametrize(
    ("address", "ca_file", "server_name", "message"),
    [
        ("127.0.0.1:1", "nonsense", "", "--tls.ca_file=.*/nonsense .* system"),
        ("127.0.0.1:1", "missing", "", "--tls.ca_file=.*/missing "),
        ("127.0.0.1:1", "", "learner", "--tls.server_name=learner .*--tls.ca_file=FILE"),
        ("unix:/tmp/x", "ca", "", "unix:/tmp/x"),
    ],
)
def test_what_a_client_cannot_use_is_refused(
    files: certificates.Files,
    tmp_path: pathlib.Path,
    address: str,
    ca_file: str,
    server_name: str,
    message: str,
) -> None:
    write(tmp_path / "nonsense", "nonsense")
    path = {"": "", "ca": str(files.ca)}.get(ca_file, str(tmp_path / ca_file))
    with pytest.raises(errors.UsageError, match=message):
        security.for_client(address, security.Access(ca_file=path, server_name=server_name))


# --- who may call ---


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        (f"Bearer {TOKEN}", True),
        ("", False),
        ("Bearer ", False),
        (TOKEN, False),
        (f"Basic {TOKEN}", False),
        (f"Bearer {TOKEN} ", False),
        (f"Bearer {TOKEN[:-1]}", False),
        (f"Bearer {TOKEN}\u00e9", False),
    ],
)
def test_only_the_right_token_passes(given: str, fits: bool) -> None:
    guard = security.Guard(TOKEN)
    metadata = [("user-agent", "x"), *([("authorization", given)] if given else [])]
    with contextlib.nullcontext() if fits else pytest.raises(errors.AccessDenied, match="--token_file=FILE"):
        guard.check(metadata, "ipv4:10.0.0.1:5")
    guard.check([], "unix:")


def test_many_refusals_are_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    guard = security.Guard(TOKEN, lambda: now[0])
    for now[0] in range(100):
        with pytest.raises(errors.AccessDenied):
            guard.check([("authorization", "Bearer guess")], "ipv4:10.0.0.1:5")
    assert len(caplog.records) == 4
    assert "ipv4:10.0.0.1:5" in caplog.text
    assert "guess" not in caplog.text


@contextlib.contextmanager
def secured(token_file: str = "", tls: sections.TlsConfig | None = None, local: str = "") -> Iterator[str]:
    """A learner's address."""
    found = security.for_server(token_file, tls or sections.TlsConfig())
    with wire.serving(wire.Learner(secured=found, local=local)) as address:
        yield address


def test_every_call_but_health_wants_the_token(token_file: str) -> None:
    methods = inference_pb2.DESCRIPTOR.services_by_name["Inference"].methods
    assert methods
    with secured(token_file) as address, grpc.insecure_channel(address) as channel:
        for method in methods:
            name = f"/{codec.SERVICE}/{method.name}"
            with pytest.raises(grpc.RpcError) as caught:
                if method.client_streaming:
                    next(channel.stream_stream(name)(iter([b""]), timeout=wire.TIMEOUT_SECONDS))
                else:
                    channel.unary_unary(name)(b"", timeout=wire.TIMEOUT_SECONDS)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.name
            assert "--token_file=FILE" in caught.value.details()
        assert probe.health(address) == probe.SERVING


def test_a_local_socket_wants_no_token_and_is_its_users_alone(token_file: str, tmp_path: pathlib.Path) -> None:
    local = f"unix:{tmp_path / 'local'}"
    with secured(token_file, local=local):
        assert not stat.S_IMODE((tmp_path / "local").stat().st_mode) & 0o077
        assert probe.status(local)["env_steps"] == 7
        with wire.joined(local) as worker:
            worker.send(0, wire.make_step())
            assert wire.receive_actions(worker).group == 0


def test_token_and_tls_together_let_a_worker_in(token_file: str, files: certificates.Files) -> None:
    access = security.Access(token_file, str(files.ca))
    with secured(token_file, tls_of(files)) as address:
        with wire.joined(address, access=access) as worker:
            worker.send(0, wire.make_step())
            assert wire.receive_actions(worker).group == 0
        assert probe.status(address, access)["env_steps"] == 7
        assert probe.health(address, security.Access(ca_file=str(files.ca))) == probe.SERVING
        elsewhere = address.replace("127.0.0.1", "localhost")
        named = dataclasses.replace(access, server_name="learner.example")
        assert probe.status(elsewhere, named)["env_steps"] == 7


Ask = Callable[[str, security.Access], object]


def ask_as_worker(address: str, access: security.Access) -> None:
    with client.Client(address, wire.HELLO, settings=wire.SETTINGS, access=access) as worker:
        too_late = threading.Timer(END_SECONDS, worker.leave, ["it tries on and on"])
        too_late.start()
        try:
            assert worker.join() is None
        finally:
            too_late.cancel()


@pytest.mark.parametrize("ask", [ask_as_worker, probe.status], ids=["worker", "status"])
@pytest.mark.parametrize(
    ("learner_has", "client_has", "message"),
    [
        ({"token"}, set(), "--token_file=FILE"),
        ({"token"}, {"wrong token"}, "--token_file=FILE"),
        ({"tls"}, set(), "--tls.ca_file=FILE"),
        (set(), {"ca"}, "--tls.cert_file .*--tls.ca_file="),
        ({"tls"}, {"other ca"}, r"--tls.ca_file=\S+ .*\(.+\)"),
        ({"tls"}, {"ca", "name"}, "nobody.example; .*--tls.server_name=NAME"),
    ],
)
def test_what_waiting_cannot_heal_is_told_soon(
    token_file: str,
    files: certificates.Files,
    stranger: certificates.Files,
    tmp_path: pathlib.Path,
    ask: Ask,
    learner_has: set[str],
    client_has: set[str],
    message: str,
) -> None:
    access = security.Access(
        token_file=write(tmp_path / "wrong", "a-guess-of-16-letters") if "wrong token" in client_has else "",
        ca_file=str(files.ca) if "ca" in client_has else str(stranger.ca) if "other ca" in client_has else "",
        server_name="nobody.example" if "name" in client_has else "",
    )
    tls = tls_of(files) if "tls" in learner_has else None
    with secured(token_file if "token" in learner_has else "", tls) as address:
        began = time.monotonic()
        with pytest.raises(errors.AccessDenied, match=message):
            ask(address, access)
        assert time.monotonic() - began < END_SECONDS


_BOTH_ENDS = """
import sys
from seedzero.config import sections, worker_options
from seedzero.transport import security
from seedzero.worker import worker
import wire

ca, cert, key = sys.argv[1:]
for tls, trusted in ((sections.TlsConfig(cert, key), ""), (sections.TlsConfig(), ca)):
    with wire.serving(wire.Learner(secured=security.for_server("", tls))) as address:
        assert worker.run(worker_options.WorkerOptions(address, ca_file=trusted)) == 1
"""


def test_ends_that_disagree_on_tls_print_our_explanation_alone(files: certificates.Files) -> None:
    command = [sys.executable, "-c", _BOTH_ENDS, *map(str, files)]
    path = os.pathsep.join(map(str, (ROOT, HERE)))
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("GRPC_VERBOSITY", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    plain, tls = done.stderr.splitlines()
    assert plain.startswith("AccessDenied: ") and "--tls.ca_file=FILE" in plain
    assert tls.startswith("AccessDenied: ") and "--tls.cert_file" in tls


def test_an_expired_certificate_is_called_expired(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "VALID_DAYS", -0.5)
    files = certificates.make(tmp_path / "expired", ["127.0.0.1"])
    with (
        secured(tls=tls_of(files)) as address,
        pytest.raises(errors.AccessDenied, match=r"\(certificate has expired\)"),
    ):
        ask_as_worker(address, security.Access(ca_file=str(files.ca)))


def test_a_handshake_that_fails_in_another_way_is_told_with_grpcs_words(files: certificates.Files) -> None:
    words = "SSL_ERROR_SSL: error:10000410:SSL routines:OPENSSL_internal:SSLV3_ALERT_HANDSHAKE_FAILURE"
    details = f"failed to connect to all addresses; last error: UNKNOWN: x: Tls handshake failed (TSI_A): {words}: OK"
    wanting = security.for_client("127.0.0.1:1", security.Access(ca_file=str(files.ca)))
    assert words in str(security.explain(grpc.StatusCode.UNAVAILABLE, details, wanting))
    assert security.explain(grpc.StatusCode.INTERNAL, details, wanting) is None


def test_a_learner_that_is_away_is_waited_for_with_tls_too(files: certificates.Files, token_file: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    access = security.Access(token_file, str(files.ca))
    with client.Client(address, wire.HELLO, settings=wire.SETTINGS, access=access) as worker:
        joined = threading.Thread(target=worker.join)
        joined.start()
        found = security.for_server(token_file, tls_of(files))
        with wire.serving(wire.Learner(dataclasses.replace(wire.SETTINGS, listen=address), secured=found)):
            joined.join(wire.TIMEOUT_SECONDS)
            assert not joined.is_alive()


def test_a_port_that_only_hangs_up_is_a_learner_that_is_away() -> None:
    """As a proxy in front of a learner that is not there yet."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(wire.TIMEOUT_SECONDS)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        details = f"failed to connect to all addresses; last error: UNAVAILABLE: ipv4:{address}: Socket closed"

        def hang_up() -> None:
            with contextlib.suppress(OSError):
                listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert security.explain(grpc.StatusCode.UNAVAILABLE, details, security.for_client(address)) is None
        thread.join()


# --- a name that moves ---


class NameServer:
    """Answers every question for an IPv4 address with the same one, and says that there are no others."""

    def __init__(self) -> None:
        self.answer = "127.0.0.1"
        self.asked = threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def _serve(self) -> None:
        while (received := self._socket.recvfrom(512))[0]:
            query, peer = received
            end = query.index(b"\0", 12) + 5
            question, is_ipv4 = query[12:end], query[end - 4 : end - 2] == b"\0\1"
            record = b"\xc0\x0c\0\1\0\1" + bytes(4) + b"\0\4" + socket.inet_aton(self.answer)
            header = query[:2] + b"\x84\0\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + bytes(4)
            self._socket.sendto(header + question + (record if is_ipv4 else b""), peer)
            self.asked.set()

    def close(self) -> None:
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()


@pytest.fixture
def names() -> Iterator[NameServer]:
    found = NameServer()
    yield found
    found.close()


def test_a_worker_finds_a_learner_that_moved_with_its_name(names: NameServer) -> None:
    first = wire.Learner()
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(wire.serving(first))
        port = address.rpartition(":")[2]
        try:
            second = wire.Learner(dataclasses.replace(wire.SETTINGS, listen=f"127.0.0.2:{port}"))
            stack.enter_context(wire.serving(second))
        except errors.UsageError as error:
            pytest.skip(f"this machine has no second loopback address: {error}")
        with wire.joined(f"dns://{names.address}/learner.seedzero.test:{port}") as worker:
            assert names.asked.is_set() and first.num_sessions == 1
            names.answer = "127.0.0.2"
            first.server.stop(finished=False, reason="moving")
            assert isinstance(worker.receive(), messages.Restart)  # the new one does not know the session
            assert worker.join() is not None
            assert (first.num_sessions, second.num_sessions) == (1, 1)


def test_a_name_that_nobody_has_is_waited_for(names: NameServer) -> None:
    """As that of a service whose first pod is still to come."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names.answer = "127.0.0.3"
    with client.Client(f"dns://{names.address}/x.test:{port}", wire.HELLO, settings=wire.SETTINGS) as worker:
        joined = threading.Thread(target=worker.join)
        joined.start()
        assert names.asked.wait(wire.TIMEOUT_SECONDS)
        learner = wire.Learner(dataclasses.replace(wire.SETTINGS, listen=f"127.0.0.1:{port}"))
        with wire.serving(learner):
            names.answer = "127.0.0.1"
            joined.join(wire.TIMEOUT_SECONDS)
            assert not joined.is_alive()


@pytest.mark.parametrize(
    ("listen", "place"),
    [("127.0.0.1:0", None), ("0.0.0.0:0", "0.0.0.0"), ("[::]:0", "[::]"), ("0.0.0.0:7700", "0.0.0.0:7700")],
)
def test_a_warning_names_no_port_that_is_still_to_be_chosen(listen: str, place: str | None) -> None:
    given = sections.TransportConfig(listen=listen, insecure=True)
    expected = [f"--insecure: whoever reaches {place} may connect"] if place else []
    assert security.warnings(given, sections.TlsConfig()) == expected
