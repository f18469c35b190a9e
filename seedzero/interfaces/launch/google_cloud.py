"""Asks Google Cloud for the learner's address and for the secret that all machines share.

Google's client libraries would be more than half of a worker's image; these few requests do without them.
"""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from seedzero.core import errors

_log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Pauses between attempts, because the metadata server may not be ready when a machine boots."""
_RETRIED_CODES = (408, 429, 500, 502, 503, 504)


class Secret(NamedTuple):
    """The credentials of learner and workers, made by gcp/setup.sh; all but the token are PEM texts."""

    token: str
    certificate: str
    key: str


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """The services' base addresses, without a slash at the end."""

    metadata: str = "http://metadata.google.internal"
    secretmanager: str = "https://secretmanager.googleapis.com"
    storage: str = "https://storage.googleapis.com"


def endpoints(environ: Mapping[str, str]) -> Endpoints:
    """Returns the addresses, which environment variables of Google's own tools can override."""
    metadata = environ.get("GCE_METADATA_HOST")
    given = {
        "metadata": f"http://{metadata}" if metadata else "",
        "secretmanager": environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", "").rstrip("/"),
        "storage": environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/"),
    }
    return Endpoints(**{name: address for name, address in given.items() if address})


def learner_of_cluster(cluster_spec: str) -> str:
    """Returns the learner's HOST:PORT in a custom job of Vertex AI, from the environment variable CLUSTER_SPEC."""
    try:
        (address,) = json.loads(cluster_spec)["cluster"]["workerpool0"]
        if not isinstance(address, str) or not address.rpartition(":")[2].isdigit():
            raise ValueError(address)
    except (ValueError, KeyError, TypeError):
        raise errors.UsageError(
            f"CLUSTER_SPEC={cluster_spec!r}: expected JSON with one HOST:PORT in cluster.workerpool0, as Vertex AI "
            "gives to every container of a custom job whose first worker pool has one replica"
        ) from None
    return address


@dataclasses.dataclass(frozen=True)
class CloudClient:
    """Calls the services as the machine's service account. retry_seconds: pauses between attempts."""

    endpoints: Endpoints
    retry_seconds: Sequence[float] = RETRY_SECONDS
    sleep: Callable[[float], None] = time.sleep

    def secret(self, name: str) -> Secret:
        """Returns a secret by its name, projects/P/secrets/NAME/versions/V."""
        answer = self._service("GET", f"{self.endpoints.secretmanager}/v1/{name}:access", f"secret {name}")
        try:
            fields = json.loads(base64.b64decode(json.loads(answer)["payload"]["data"], validate=True))
            return Secret(**{key: fields[key] for key in Secret._fields})
        except (ValueError, KeyError, TypeError):
            # The message shows nothing of the content, because errors are logged.
            wrong = f"secret {name} is not JSON with {', '.join(Secret._fields)}"
            raise errors.Error(f"{wrong}; gcp/setup.sh --rotate_secret writes a new one") from None

    def own_address(self) -> str:
        """Returns the machine's address in the network."""
        return self._metadata("instance/network-interfaces/0/ip").decode()

    def slice_place(self) -> tuple[int, list[str]]:
        """Returns this machine's number among the hosts of its TPU slice, and the addresses of all in order."""
        number = self._metadata("instance/attributes/agent-worker-number").decode()
        endpoints = self._metadata("instance/attributes/worker-network-endpoints").decode()
        try:
            return int(number), [endpoint.split(":")[2] for endpoint in endpoints.split(",")]
        except (ValueError, IndexError):
            raise errors.Error(
                f"the machine's metadata have agent-worker-number={number!r} and worker-network-endpoints="
                f"{endpoints!r}; expected a number and ID:ID:ADDRESS of each host, as on a TPU VM"
            ) from None

    def read_object(self, url: str) -> str | None:
        """Returns the text of an object gs://BUCKET/NAME, or None if it does not exist."""
        bucket, name = _split(url)
        try:
            address = f"{self.endpoints.storage}/storage/v1/b/{bucket}/o/{name}?alt=media"
            return self._service("GET", address, url).decode()
        except _Absent:
            return None

    def write_object(self, url: str, text: str) -> None:
        """Writes an object gs://BUCKET/NAME, replacing an older one."""
        bucket, name = _split(url)
        address = f"{self.endpoints.storage}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}"
        self._service("POST", address, url, text.encode())

    def _service(self, method: str, address: str, name: str, body: bytes | None = None) -> bytes:
        token = json.loads(self._metadata("instance/service-accounts/default/token"))["access_token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}
        return self._request(urllib.request.Request(address, body, headers, method=method), name)

    def _metadata(self, path: str) -> bytes:
        address = f"{self.endpoints.metadata}/computeMetadata/v1/{path}"
        request = urllib.request.Request(address, headers={"Metadata-Flavor": "Google"})
        return self._request(request, "the metadata server, which only machines of Google Cloud have")

    def _request(self, request: urllib.request.Request, name: str) -> bytes:
        """Returns the response's body. Raises Error for a rejection, or if all attempts got no response."""
        for pause in (*self.retry_seconds, None):
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as response:
                    return bytes(response.read())
            except urllib.error.HTTPError as error:
                reason = f"{error.code} {error.reason}"
                if error.code == 404:
                    raise _Absent(f"cannot reach {name}: {reason}") from None
                if error.code not in _RETRIED_CODES:
                    advice = "; gcp/setup.sh gives the service account its rights" if error.code in (401, 403) else ""
                    raise errors.Error(f"cannot reach {name}: {reason}{advice}") from None
            except (OSError, http.client.HTTPException) as error:  # HTTPException: the response was cut off
                reason = str(getattr(error, "reason", error))
            if pause is None:
                break
            _log.warning("%s: %s; trying again in %g s", name, reason, pause)
            self.sleep(pause)
        raise errors.Error(f"cannot reach {name}: {reason}; check this machine's network")


class _Absent(errors.Error):
    """The object does not exist."""


def _split(url: str) -> tuple[str, str]:
    """Returns the bucket and the quoted name."""
    bucket, _, name = url.removeprefix("gs://").partition("/")
    if not url.startswith("gs://") or not bucket or not name:
        raise errors.UsageError(f"{url!r}: expected gs://BUCKET/NAME")
    return bucket, urllib.parse.quote(name, safe="")
