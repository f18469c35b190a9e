"""Buckets: URLs, objects and their generations, and what is said where a bucket refuses."""

import pathlib
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

import fake_gcs
import pytest

from seedzero.core import errors, plain_files
from seedzero.storage.bucket import bucket

URL = bucket.Url("gs", "runs", "team/one")


@pytest.mark.parametrize("seconds", [0.0, 0.1, 1.0, 7.5, 100.0, 1_000.0])
def test_retries_are_the_pauses_that_fit(seconds: float) -> None:
    pauses, pause = [], bucket._FIRST_PAUSE_SECONDS
    while sum(pauses) + pause <= seconds:
        pauses.append(pause)
        pause = min(2 * pause, bucket._LONGEST_PAUSE_SECONDS)
    assert bucket._num_retries(seconds) == max(1, len(pauses))


@pytest.fixture
def store(gcs: fake_gcs.FakeGcs) -> bucket.Store:
    return bucket.open_store(URL, 1.0)


@pytest.fixture
def s3_store(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> Iterator[bucket.Store]:
    """A run on moto's S3."""
    program = shutil.which("moto_server")
    if program is None:
        pytest.skip("moto_server is not installed: pip install 'moto[server]'")
    log = tmp_path / "moto.log"
    with log.open("w") as file:
        server = subprocess.Popen([program, "--host=127.0.0.1", "--port=0"], stderr=file, stdout=file)
    try:
        address = _wait_for(lambda: re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text()))[1]
        for name, value in {
            "AWS_ENDPOINT_URL": address,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }.items():
            monkeypatch.setenv(name, value)
        urllib.request.urlopen(urllib.request.Request(f"{address}/runs", method="PUT")).close()
        yield bucket.open_store(bucket.Url("s3", "runs", "team/one"), 1.0)
    finally:
        server.kill()
        server.wait()


def _wait_for(condition: Callable[[], re.Match[str] | None]) -> re.Match[str]:
    """Returns the first match, within a minute."""
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "the server does not start"
        time.sleep(0.05)
    return found


@pytest.mark.thorough
def test_s3_keeps_objects_and_conditions_too(s3_store: bucket.Store) -> None:
    missing = s3_store.read("a").generation
    first = s3_store.write("a", b"1", if_equal=missing)
    assert first is not None and s3_store.write("a", b"2", if_equal=missing) is None
    assert s3_store.write("a", b"3", if_equal=first) is not None
    assert s3_store.write("a", b"4", if_equal=first) is None
    assert s3_store.read("a").content == b"3" and s3_store.list(proof="a") == {"a"}
    s3_store.delete("a")
    assert s3_store.read("a").content is None
    with pytest.raises(errors.BucketError, match=r"nobody, .*--run_dir"):
        bucket.open_store(bucket.Url("s3", "nobody", "one"), 1.0).write("a", b"")


def test_a_url_is_told_from_a_directory() -> None:
    assert bucket.parse("gs://runs/team/one") == URL == bucket.parse("gs://runs/team/one/")
    assert str(URL) == "gs://runs/team/one"
    assert bucket.parse("s3://runs/x") == bucket.Url("s3", "runs", "x")
    assert bucket.parse("runs/one") is None and bucket.parse("/gs:/runs") is None and bucket.parse("") is None


@pytest.mark.parametrize(
    "text",
    ["gs://runs", "gs://runs/", "gs:///one", "http://runs/one", "gs://runs/a//b", "gs://runs/../x", "gs://r/a?b"],
)
def test_a_url_that_no_run_can_be_kept_at_is_refused(text: str) -> None:
    with pytest.raises(errors.UsageError, match=r"--run_dir=.*: expected gs://BUCKET/PATH"):
        bucket.parse(text)


def test_a_name_that_no_bucket_can_have_is_refused() -> None:
    with pytest.raises(errors.UsageError, match=r"\"B_\""):
        bucket.open_store(bucket.Url("gs", "B_", "one"), 1.0)


def test_every_url_has_a_local_copy_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("SEEDZERO_SCRATCH", str(tmp_path))
    other = bucket.Url("gs", "runs", "other/one")
    assert bucket.scratch(URL) == bucket.scratch(URL) != bucket.scratch(other)
    assert bucket.scratch(URL).parent == tmp_path and bucket.scratch(URL).name.startswith("one-")
    monkeypatch.delenv("SEEDZERO_SCRATCH")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert bucket.scratch(URL).parent == tmp_path / "cache" / "seedzero" / "buckets"
    monkeypatch.setattr(plain_files, "cache_directory", lambda: None)
    with pytest.raises(errors.UsageError, match="SEEDZERO_SCRATCH"):
        bucket.scratch(URL)
    monkeypatch.setenv("SEEDZERO_SCRATCH", str(tmp_path))
    assert bucket.scratch(URL).parent == tmp_path


def test_errors_name_the_url_instead_of_its_local_copy() -> None:
    with (
        pytest.raises(errors.ResumeError, match=r"^gs://runs/team/one is in use$"),
        bucket.naming(pathlib.Path("/tmp/copy"), URL),
    ):
        raise errors.ResumeError("/tmp/copy is in use")


def test_objects_are_written_read_listed_and_deleted(gcs: fake_gcs.FakeGcs, store: bucket.Store) -> None:
    assert store.read("a/b").content is None
    store.write("a/b", b"1")
    assert store.read("a/b").content == b"1"
    assert gcs.names("runs") == ["team/one/a/b"]
    for i in range(2 * fake_gcs.PAGE):
        gcs.put("runs", f"team/one/many/{i}", b"")
    gcs.put("runs", "team/one-more/x", b"")
    assert store.list(proof="a/b") == {"a/b", *(f"many/{i}" for i in range(2 * fake_gcs.PAGE))}
    store.delete("a/b")
    store.delete("a/b")
    assert store.read("a/b").content is None


def test_an_unchanged_object_is_not_read_again(gcs: fake_gcs.FakeGcs, store: bucket.Store) -> None:
    gcs.put("runs", "team/one/a", b"1")
    found = store.read_if_new("a", None)
    assert found is not None and found.content == b"1"
    assert store.read_if_new("a", found.generation) is None
    gcs.put("runs", "team/one/a", b"2")
    again = store.read_if_new("a", found.generation)
    assert again is not None and again.content == b"2"
    gcs.remove("runs", "team/one/a")
    gone = store.read_if_new("a", again.generation)
    assert gone is not None and gone.content is None


def test_a_conditional_write_fails_where_somebody_else_wrote(gcs: fake_gcs.FakeGcs, store: bucket.Store) -> None:
    missing = store.read("a").generation
    first = store.write("a", b"1", if_equal=missing)
    assert first is not None and first == store.read("a").generation
    assert store.write("a", b"2", if_equal=missing) is None
    gcs.put("runs", "team/one/a", b"3")
    assert store.write("a", b"4", if_equal=first) is None
    assert store.read("a").content == b"3"


@pytest.mark.parametrize("kind", ["write", "read", "list", "delete"])
@pytest.mark.parametrize("fault", [408, 429, 503, fake_gcs.CUT, fake_gcs.UNANSWERED])
def test_what_fails_for_a_moment_is_repeated(
    gcs: fake_gcs.FakeGcs, fault: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_FIRST_PAUSE_SECONDS", 0.01)
    store = bucket.open_store(URL, 1.0)
    store.write("a", b"0" * 1000)
    failures = [fault]
    gcs.fault = lambda request: failures.pop() if failures and request.kind == kind else None
    store.write("a", b"1" * 1000)
    assert store.read("a").content == b"1" * 1000 and store.list(proof="a") == {"a"}
    store.delete("a")
    assert not failures and gcs.names("runs") == []


def test_a_condition_that_nobody_set_fails(gcs: fake_gcs.FakeGcs, store: bucket.Store) -> None:
    """Such as a policy of the organization: else an object would count as written that is not there."""
    first = store.write("a", b"1")
    gcs.fault = lambda request: 412
    for action in (lambda: store.write("a", b"2"), lambda: store.delete("a"), lambda: store.read("a")):
        with pytest.raises(errors.BucketError, match=r"gs://runs/team/one/a: .* 412.* runs$"):
            action()
    assert store.write("a", b"2", if_equal=first) is None  # which tells its caller enough


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "`gcloud auth application-default login`"),
        (403, r"roles/storage\.objectUser .* runs"),
        (404, "bucket runs, .*--run_dir"),
        (503, " 1 retry"),
    ],
)
def test_a_refusal_says_what_to_do(gcs: fake_gcs.FakeGcs, status: int, advice: str) -> None:
    gcs.fault = lambda request: status
    store = bucket.open_store(URL, 0.6)
    with pytest.raises(errors.BucketError, match=rf"writing gs://runs/team/one/a: .*{advice}"):
        store.write("a", b"1", if_equal=b"\x02")


def test_a_listing_that_is_refused_is_not_an_empty_bucket(gcs: fake_gcs.FakeGcs, store: bucket.Store) -> None:
    store.write("proof", b"")
    refused = r"listing gs://runs/team/one is refused.*objectUser"
    with gcs.failing(403, kind="list"), pytest.raises(errors.BucketError, match=refused):
        store.list(proof="proof")


def test_nobody_listening_is_told(gcs: fake_gcs.FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", "http://127.0.0.1:1")
    with pytest.raises(errors.BucketError, match=r"gs://runs/team/one/a: .*Could not connect"):
        bucket.open_store(URL, 0.6).read("a")


def test_a_bucket_that_never_answers_is_given_up(
    gcs: fake_gcs.FakeGcs, store: bucket.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_ANSWER_SECONDS", -0.8)
    gcs.answering.clear()
    with pytest.raises(errors.BucketError, match=r"gs://runs/team/one/a: .* 0 s"):
        store.read("a")


def test_after_an_error_nothing_further_is_begun() -> None:
    begun: list[int] = []
    never = threading.Event()

    def work(i: int) -> None:
        begun.append(i)
        if i == 0:
            raise ValueError(i)
        never.wait(0.2)  # all thousand would take 25 s

    with pytest.raises(ValueError):
        list(bucket.in_parallel(work, range(1000)))
    assert len(begun) < 1000
