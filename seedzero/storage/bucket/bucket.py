"""Reads and writes objects in buckets, parses their URLs, and adds advice to their errors.

Objects appear whole, and a write may depend on the generation that was read before. Buckets can neither rename nor
append, so a learner writes its run on a local disk and mirrors it (`storage/bucket/mirrors.py`).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from seedzero.core import errors, plain_files

if TYPE_CHECKING:
    import tensorstore

SCRATCH_VARIABLE = "SEEDZERO_SCRATCH"
"""Environment variable that names the directory for local copies."""
NUM_PARALLEL = 8
"""Number of simultaneous transfers; each holds its whole object in memory."""

_DRIVERS = {"gs": "gcs", "s3": "s3"}
_FORM = re.compile(r"(?P<scheme>[a-z0-9]+)://(?P<bucket>[^/]+)/(?P<path>[A-Za-z0-9._/=+@-]+)")
_RIGHTS = {
    "gs": "give this account the role roles/storage.objectUser",
    "s3": "allow this account s3:GetObject, PutObject, DeleteObject and ListBucket",
}
_CREDENTIALS = {
    "gs": "run `gcloud auth application-default login`, or name a key file in GOOGLE_APPLICATION_CREDENTIALS, or give "
    "the machine a service account",
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role",
}
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 8.0
_ANSWER_SECONDS = 30.0
"""Time limit of a request, without the time for its bytes."""
_SLOWEST_BYTES_PER_SECOND = 2**20

T = TypeVar("T")
S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Url:
    """A run directory in a bucket. `scheme` is gs or s3, and `path` neither begins nor ends with a slash."""

    scheme: str
    bucket: str
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.path}"


def parse(place: str, *, flag: str = "run_dir") -> Url | None:
    """Returns the URL in a flag's value, or None for a directory. Raises UsageError for a malformed URL."""
    if "://" not in place:
        return None
    found = _FORM.fullmatch(place)
    path = found["path"].strip("/") if found else ""
    if found is None or found["scheme"] not in _DRIVERS or {"", ".", ".."} & set(path.split("/")):
        form = "gs://BUCKET/PATH or s3://BUCKET/PATH with letters, digits and . _ - = + @ in PATH"
        raise errors.UsageError(f"--{flag}={place}: expected {form}, or a directory")
    return Url(found["scheme"], found["bucket"], path)


def of_host(url: Url, index: int) -> Url:
    """Returns the URL of a learner host, which is below the run's, as in a directory."""
    return dataclasses.replace(url, path=f"{url.path}/hosts/{index}") if index > 0 else url


def scratch(url: Url) -> pathlib.Path:
    """Returns the directory of a run's local copy, which depends on the URL alone.

    Raises UsageError if there is none.
    """
    name = url.path.rpartition("/")[2]
    return _scratch_root(url).absolute() / f"{name}-{hashlib.sha256(str(url).encode()).hexdigest()[:12]}"


def _scratch_root(url: Url) -> pathlib.Path:
    """Returns the directory for all local copies."""
    if given := os.environ.get(SCRATCH_VARIABLE):
        return pathlib.Path(given)
    cache = plain_files.cache_directory()
    if cache is None:
        raise errors.UsageError(
            f"{url} needs a directory for its local copy, and this user has no home directory; set {SCRATCH_VARIABLE} "
            f"to a directory, or {plain_files.CACHE_REMEDY}"
        )
    return cache / "seedzero" / "buckets"


@contextlib.contextmanager
def naming(path: pathlib.Path, url: Url) -> Iterator[None]:
    """Replaces the local copy's path by the URL in the messages of errors."""
    try:
        yield
    except errors.Error as error:
        raise type(error)(str(error).replace(str(path), str(url))) from error


class Value(NamedTuple):
    """An object's bytes (None if it does not exist), and its generation for `if_equal` of `Store.write`."""

    content: bytes | None
    generation: bytes


class Store:
    """The objects of a run, by keys below the run's path. It is thread-safe; failed requests raise BucketError."""

    def __init__(self, objects: tensorstore.KvStore, url: Url, retry_seconds: float) -> None:
        """objects: have the same keys, and repeat failing requests for `retry_seconds`."""
        self.url = url
        self._objects, self._retry_seconds = objects, retry_seconds

    def read(self, key: str) -> Value:
        """Returns an object; in a missing bucket, no object exists."""
        found = self.read_if_new(key, None)
        if found is None:
            raise self._refusal(f"reading {self.url}/{key}")
        return found

    def read_if_new(self, key: str, generation: bytes | None) -> Value | None:
        """Returns an object, or None if it still has the given generation."""
        found = self._wait(self._objects.read(key, if_not_equal=generation), f"reading {self.url}/{key}")
        if found.state == "unspecified":
            return None
        return Value(bytes(found.value) if found.state == "value" else None, found.stamp.generation)

    def write(self, key: str, content: bytes, *, if_equal: bytes | None = None) -> bytes | None:
        """Writes an object and returns its generation, or None if the present one is not `if_equal`."""
        written, action = self._objects.write(key, content, if_equal=if_equal), f"writing {self.url}/{key}"
        generation = self._wait(written, action, num_bytes=len(content)).generation or None
        if generation is None and if_equal is None:
            raise self._refusal(action)
        return generation

    def delete(self, key: str) -> None:
        """Deletes an object if it exists."""
        action = f"deleting {self.url}/{key}"
        if not self._wait(self._objects.write(key, None), action).generation:
            raise self._refusal(action)

    def list(self, proof: str) -> set[str]:
        """Returns the keys of all objects.

        proof: an existing key that sorts after all others that matter. If the bucket does not allow listing,
        tensorstore returns no keys or only the first ones, so it is missing.
        """
        keys = {key.decode() for key in self._wait(self._objects.list(), f"listing {self.url}")}
        if proof not in keys:
            refused = f"listing {self.url} is refused, or {proof} was just deleted"
            raise errors.BucketError(f"{refused}; {_rights(self.url)}")
        return keys

    def _refusal(self, action: str) -> errors.BucketError:
        """Returns the error for a failed condition in a request that had no condition."""
        return errors.BucketError(
            f"{action}: refused by a condition of the bucket itself (HTTP status 412); look at the policies of "
            f"{self.url.bucket}"
        )

    def _wait(self, future: Any, action: str, *, num_bytes: int = 0) -> Any:
        seconds = self._retry_seconds + _ANSWER_SECONDS + num_bytes / _SLOWEST_BYTES_PER_SECOND
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            future.cancel()
            raise errors.BucketError(f"{action}: no answer within {seconds:.0f} s; is the network there?") from None
        except (ValueError, RuntimeError, OSError) as error:
            raise errors.BucketError(f"{action}: {_advice(str(error), self.url)}") from None


def open_store(url: Url, retry_seconds: float, flag: str = "run_dir") -> Store:
    """Returns the store of a run without making a request; failing requests are repeated for `retry_seconds`.

    flag: the flag that named the URL, for messages. Raises UsageError if no bucket can have that name.
    """
    import tensorstore  # slow to import, so mistakes in the command line are reported first

    driver = _DRIVERS[url.scheme]
    pauses = dict(initial_delay=f"{_FIRST_PAUSE_SECONDS}s", max_delay=f"{_LONGEST_PAUSE_SECONDS}s")
    spec: dict[str, Any] = dict(driver=driver, bucket=url.bucket, path=f"{url.path}/")
    spec["context"] = {f"{driver}_request_retries": dict(max_retries=_num_retries(retry_seconds), **pauses)}
    if url.scheme == "s3" and (address := os.environ.get("AWS_ENDPOINT_URL")):  # a service other than Amazon's
        spec |= dict(endpoint=address, aws_region=os.environ.get("AWS_REGION", "us-east-1"))
    try:
        objects = tensorstore.KvStore.open(spec).result()
    except ValueError as error:
        raise errors.UsageError(f"--{flag}={url}: {_message(str(error))}; give the name of a bucket") from None
    return Store(objects, url, retry_seconds)


def _num_retries(seconds: float) -> int:
    """Returns how many pauses fit into this time if each is twice as long as the last, up to the longest.

    At least 1.
    """
    count, pause = 0, _FIRST_PAUSE_SECONDS
    while pause < _LONGEST_PAUSE_SECONDS and seconds >= pause:
        count, seconds, pause = count + 1, seconds - pause, min(2 * pause, _LONGEST_PAUSE_SECONDS)
    return max(count + int(seconds // pause), 1)


def in_parallel(function: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yields the function's results for the items in any order; after an error it starts no more items."""
    with concurrent.futures.ThreadPoolExecutor(NUM_PARALLEL, thread_name_prefix="bucket") as pool:
        pending = [pool.submit(function, item) for item in items]
        try:
            for future in concurrent.futures.as_completed(pending):
                yield future.result()
        finally:
            for future in pending:
                future.cancel()


def _message(text: str) -> str:
    """Returns tensorstore's message without the server's answer."""
    return text.partition(" [http_")[0].partition(" [curl_")[0].strip(" .")


def _advice(text: str, url: Url) -> str:
    """Returns tensorstore's message with advice for the user."""
    message = _message(text)
    if "http_response_code='401'" in text:
        return f"{message}: there are no valid credentials; {_CREDENTIALS[url.scheme]}"
    if "http_response_code='403'" in text or text.startswith("PERMISSION_DENIED"):
        return f"{message}; {_rights(url)}"
    if text.startswith("NOT_FOUND"):
        return f"{message}; create the bucket {url.bucket}, or give another --run_dir"
    if text.startswith(("ABORTED", "UNAVAILABLE", "DEADLINE_EXCEEDED")):
        return f"{message}; is the network there, and the bucket's service up?"
    return message


def _rights(url: Url) -> str:
    return f"{_RIGHTS[url.scheme]} on the bucket {url.bucket}"
