"""Google Cloud on loopback, as far as gcp/*.sh go, for the real gcloud to talk to.

What gcloud sends is parsed by Google's own protos, which know every field and its type; what they do not know is
answered with 400, as Google does. Cloud Storage, Resource Manager and Billing speak JSON that no published proto
describes: their few fields stand here. Resources that were made are kept, so a second call finds them.
"""

from __future__ import annotations

import dataclasses
import http.server
import json
import pathlib
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from google.iam.v1 import iam_policy_pb2
from google.protobuf import json_format
from google_protos import (  # beside this file: see conftest.py
    aiplatform_v1,
    artifactregistry_v1,
    cloudbuild_v1,
    compute_v1,
    iam_admin_v1,
    secretmanager_v1,
    service_usage_v1,
    tpu_v2,
)

Json = dict[str, Any]
SERVICES = (
    "aiplatform", "artifactregistry", "cloudbilling", "cloudbuild", "cloudresourcemanager", "compute", "iam",
    "secretmanager", "serviceusage", "storage", "tpu",
)  # fmt: skip
ROLES = {
    "roles/artifactregistry.reader", "roles/artifactregistry.writer", "roles/logging.logWriter",
    "roles/secretmanager.secretAccessor", "roles/storage.objectUser", "roles/storage.objectViewer",
}  # fmt: skip
"""Those that exist, of the many that do."""
BUCKET_FIELDS: Mapping[str, Any] = {
    "name": str, "location": str,
    "iamConfiguration": {"publicAccessPrevention": str, "uniformBucketLevelAccess": {"enabled": bool}},
    "softDeletePolicy": {"retentionDurationSeconds": str},
}  # fmt: skip
PROJECT_FIELDS: Mapping[str, Any] = {"projectId": str, "name": str}
BILLING_FIELDS: Mapping[str, Any] = {"billingAccountName": str}
SCOPE = "https://www.googleapis.com/auth/"


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Request(NamedTuple):
    """What came. path: behind the service's name; body: JSON, or None where it is none."""

    method: str
    service: str
    path: str
    query: Mapping[str, str]
    body: Any


@dataclasses.dataclass
class State:
    """What there is: resources by service and path, policies by what they are of, Compute Engine's last operation."""

    resources: dict[str, Json] = dataclasses.field(default_factory=dict)
    policies: dict[str, Json] = dataclasses.field(default_factory=dict)
    billed: set[str] = dataclasses.field(default_factory=set)
    operation: Json = dataclasses.field(default_factory=dict)

    def find(self, key: str) -> Json:
        if key not in self.resources:
            raise Refused(404, f"{key} was not found")
        return self.resources[key]

    def add(self, key: str, resource: Json) -> Json:
        if key in self.resources:
            raise Refused(409, f"{key} already exists")
        self.resources[key] = resource
        return resource

    def under(self, pattern: str) -> list[Json]:
        return [resource for key, resource in self.resources.items() if re.fullmatch(pattern, key)]


class Server:
    """Runs the fake on a free port until `close`."""

    def __init__(self, directory: pathlib.Path) -> None:
        """
        Args:
          directory: for gcloud's own configuration.
        """
        self.state = State()
        self.requests: list[Request] = []
        self.refusals: list[str] = []
        self._directory = directory
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def environment(self) -> dict[str, str]:
        """Returns the variables that make gcloud talk to this server and to nobody else."""
        token = self._directory / "token"
        token.write_text("an-access-token")
        versions = {"compute": "compute/v1/", "storage": "storage/v1/"}
        return {
            "CLOUDSDK_CONFIG": str(self._directory / "gcloud"),
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token),
            "CLOUDSDK_CORE_CHECK_GCE_METADATA": "false",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
            **{
                f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name.upper()}": f"{self.address}/{name}/{versions.get(name, '')}"
                for name in SERVICES
            },
        }

    def changes(self) -> list[Request]:
        """Returns the requests that changed something, in order."""
        waits = re.compile(r".*/operations/[^/]+/wait")
        return [found for found in self.requests if found.method != "GET" and not waits.fullmatch(found.path)]

    def bodies(self, path: str) -> list[Any]:
        """Returns the bodies of requests that changed something at a path, a regular expression."""
        return [found.body for found in self.changes() if re.fullmatch(path, f"{found.service}/{found.path}")]

    def answer(self, request: Request) -> Json:
        """Returns the answer's body.

        Raises:
          Refused: the answer is an error.
        """
        self.requests.append(request)
        for method, pattern, handle in ROUTES:
            found = re.fullmatch(pattern, f"{request.service}/{request.path}")
            if method == request.method and found:
                return handle(self.state, request, *found.groups())
        raise Refused(404 if request.method == "GET" else 400, f"nothing is known of {request}")

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _serve(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length") or 0))
                try:
                    code, body = 200, server.answer(_request(self.command, self.path, content))
                except Refused as error:
                    if error.code != 404:
                        server.refusals.append(str(error))
                    code, body = error.code, _error(error)
                self._reply(code, json.dumps(body).encode())

            def _reply(self, code: int, answer: bytes) -> None:
                self.send_response(code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        return Handler


def _request(method: str, target: str, content: bytes) -> Request:
    url = urllib.parse.urlsplit(target)
    # gcloud's uploads leave out what an endpoint has besides the host.
    service, _, path = url.path.lstrip("/").partition("/") if not url.path.startswith("/upload/") else (
        "storage", "", url.path.lstrip("/"))  # fmt: skip
    path = re.sub(r"^(storage|compute)/v1/", "", path)
    if path.startswith("upload/"):  # JSON and the file's content, as parts of one message
        body = json.loads(content.split(b"\n\n", 2)[1].partition(b"\n--")[0])
    else:
        body = json.loads(content) if content else None
    return Request(method, service, path, dict(urllib.parse.parse_qsl(url.query)), body)


def _error(error: Refused) -> Json:
    status = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 409: "ALREADY_EXISTS"}[error.code]
    message = {"message": str(error)}
    return {"error": {"code": error.code, "status": status, "errors": [message], **message}}


def parse(kind: Any, body: Any) -> Any:
    """Returns a message of a proto.

    Args:
      kind: a class of proto-plus, or of protobuf.

    Raises:
      Refused: it has a field that is unknown or of another type.
    """
    message = kind.pb(kind()) if hasattr(kind, "pb") else kind()
    try:
        return json_format.ParseDict(body, message)
    except json_format.ParseError as error:
        raise Refused(400, f"{kind.__name__}: {error}") from None


def check_fields(what: str, known: Mapping[str, Any], body: Any) -> None:
    """Raises Refused where JSON has a field that is not known, or of another type."""
    for key, value in body.items():
        expected = known.get(key)
        if expected is None:
            raise Refused(400, f"{what} has no field {key}")
        if isinstance(expected, Mapping):
            check_fields(f"{what}.{key}", expected, value)
        elif not isinstance(value, expected):
            raise Refused(400, f"{what}.{key}: {value!r}")


def _done(request: Request, response: Json | None = None) -> Json:
    """Returns an operation that is done, called as its service calls them."""
    place = re.match(r"v\w+/(projects/[^/]+/locations/[^/]+/)", request.path)
    return {"name": f"{place[1] if place else ''}operations/one", "done": True, "response": response or {}}


def _compute_done(state: State, request: Request, target: str) -> Json:
    is_zonal = "/zones/" in request.path
    scope = "/".join(request.path.split("/")[: 4 if is_zonal else 3])
    service = "https://compute.googleapis.com/compute/v1"
    state.operation = {
        "kind": "compute#operation", "name": "one", "status": "DONE",
        "operationType": {"POST": "insert", "DELETE": "delete"}[request.method],
        "targetLink": f"{service}/{target}", "selfLink": f"{service}/{scope}/operations/one",
        **({"zone": scope} if is_zonal else {}),
    }  # fmt: skip
    return state.operation


def _get(state: State, request: Request, *groups: str) -> Json:
    return state.find(f"{request.service}/{request.path}")


def _policy(state: State, request: Request, what: str) -> Json:
    return state.policies.get(f"{request.service}/{what}", {"etag": "BwX=", "version": 1})


def _set_policy(state: State, request: Request, what: str) -> Json:
    body = request.body
    if request.service == "storage":
        body = {"policy": {key: value for key, value in body.items() if key not in ("kind", "resourceId")}}
    message = parse(iam_policy_pb2.SetIamPolicyRequest, body)
    for binding in message.policy.bindings:
        if binding.role not in ROLES:
            raise Refused(400, f"Role {binding.role} is not supported for this resource.")
        for member in binding.members:
            _check_account(state, member)
    state.policies[f"{request.service}/{what}"] = body["policy"]
    return dict(body["policy"])


def _check_account(state: State, member: str) -> None:
    account = member.removeprefix("serviceAccount:")
    if not state.under(f"iam/.*/serviceAccounts/{re.escape(account)}"):
        raise Refused(400, f"Service account {account} does not exist.")


def _add_project(state: State, request: Request) -> Json:
    check_fields("Project", PROJECT_FIELDS, request.body)
    name = request.body["projectId"]
    state.add(f"cloudresourcemanager/v1/projects/{name}", {"projectId": name, "lifecycleState": "ACTIVE"})
    return _done(request)


def _link_billing(state: State, request: Request, project: str) -> Json:
    check_fields("ProjectBillingInfo", BILLING_FIELDS, request.body)
    state.billed.add(project)
    return dict(request.body)


def _enable(state: State, request: Request) -> Json:
    parse(service_usage_v1.BatchEnableServicesRequest, request.body)
    return _done(request)


def _add_bucket(state: State, request: Request) -> Json:
    check_fields("Bucket", BUCKET_FIELDS, request.body)
    return state.add(f"storage/b/{request.body['name']}", {"kind": "storage#bucket", **request.body})


def _upload(state: State, request: Request, bucket: str) -> Json:
    state.find(f"storage/b/{bucket}")
    name = request.query["name"]
    return {"kind": "storage#object", "bucket": bucket, "name": name, "generation": "1", **request.body}


def _delete(state: State, request: Request, *groups: str) -> Json:
    state.find(f"{request.service}/{request.path}")
    del state.resources[f"{request.service}/{request.path}"]
    return _compute_done(state, request, request.path) if request.service == "compute" else _done(request)


def _add_repository(state: State, request: Request, parent: str) -> Json:
    parse(artifactregistry_v1.Repository, request.body)
    return _done(request, state.add(f"artifactregistry/{request.path}/{request.query['repositoryId']}", request.body))


def _add_account(state: State, request: Request, project: str) -> Json:
    name = parse(iam_admin_v1.CreateServiceAccountRequest, request.body).account_id
    if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", name):
        raise Refused(400, f"Invalid account id {name}")
    email = f"{name}@{project}.iam.gserviceaccount.com"
    return state.add(f"iam/v1/projects/-/serviceAccounts/{email}", {"email": email})


def _add_secret(state: State, request: Request, project: str) -> Json:
    parse(secretmanager_v1.Secret, request.body)
    name = f"projects/{project}/secrets/{request.query['secretId']}"
    return state.add(f"secretmanager/v1/{name}", {"name": name})


def _add_secret_version(state: State, request: Request, name: str) -> Json:
    state.find(f"secretmanager/v1/{name}")
    parse(secretmanager_v1.AddSecretVersionRequest, request.body)
    number = len(state.under(f"secretmanager/v1/{name}/versions/.*")) + 1
    version = {"name": f"{name}/versions/{number}", "state": "ENABLED", "clientSpecifiedPayloadChecksum": True}
    return state.add(f"secretmanager/v1/{version['name']}", version)


def _secret_versions(state: State, request: Request, name: str) -> Json:
    return {"versions": state.under(f"secretmanager/v1/{name}/versions/.*")}


def _build(state: State, request: Request, parent: str) -> Json:
    build = parse(cloudbuild_v1.Build, request.body)
    bucket = build.source.storage_source.bucket
    state.find(f"storage/b/{bucket}")
    known = "$PROJECT_ID", *(f"${{{key}}}" for key in build.substitutions)
    used = re.findall(r"\$\{?\w+\}?", " ".join([*build.images, *(word for step in build.steps for word in step.args)]))
    if unknown := set(used) - set(known):
        raise Refused(400, f"key in the template is not matched in the substitution data: {unknown}")
    image = re.sub(r"\$\{(\w+)\}", lambda found: build.substitutions[found[1]], build.images[0])
    made = {"id": "b1", "name": f"{parent}/builds/b1", "projectId": parent.split("/")[1]}
    result = {**request.body, **made, "status": "SUCCESS", "logUrl": "http://log"}
    state.resources[f"cloudbuild/v1/{parent}/builds/b1"] = result
    push(state, image)
    return {"name": f"{parent}/operations/b1", "done": True, "response": result,
            "metadata": {"@type": "type.googleapis.com/google.devtools.cloudbuild.v1.BuildOperationMetadata",
                         "build": result}}  # fmt: skip


def push(state: State, image: str) -> None:
    """Makes an image: HOST/PROJECT/REPOSITORY/NAME:TAG."""
    host, project, repository, name = image.split("/")
    name, tag = name.split(":")
    region = host.removesuffix("-docker.pkg.dev")
    package = f"projects/{project}/locations/{region}/repositories/{repository}/packages/{name}"
    found = {"name": f"{package}/tags/{tag}", "version": f"{package}/versions/sha256:1"}
    state.resources[f"artifactregistry/v1/{package}/tags/{tag}"] = found


def _tags(state: State, request: Request, package: str) -> Json:
    state.find(f"artifactregistry/v1/{package.partition('/packages/')[0]}")
    return {"tags": state.under(f"artifactregistry/v1/{re.escape(package)}/tags/.*")}


def _add_job(state: State, request: Request, parent: str) -> Json:
    job = parse(aiplatform_v1.CustomJob, request.body)
    pools = job.job_spec.worker_pool_specs
    if not job.display_name or not pools or pools[0].replica_count != 1:
        raise Refused(400, "a custom job has a display name, and one replica in its first worker pool")
    _check_account(state, job.job_spec.service_account)
    for pool in pools:
        accelerators = pool.machine_spec.accelerator_type, pool.machine_spec.accelerator_count
        if bool(accelerators[0]) != bool(accelerators[1]):
            raise Refused(400, f"accelerator_type and accelerator_count belong together: {accelerators}")
    _check_labels(job.labels)
    number = len(state.under("aiplatform/.*/customJobs/.*")) + 1
    result = {**request.body, "name": f"{parent}/customJobs/{number}", "state": "JOB_STATE_PENDING"}
    return state.add(f"aiplatform/v1/{parent}/customJobs/{number}", result)


def _check_labels(labels: Mapping[str, str]) -> None:
    for key, value in labels.items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key) or not re.fullmatch(r"[a-z0-9_-]{0,63}", value):
            raise Refused(400, f"label {key}={value}")


def _jobs(state: State, request: Request, parent: str) -> Json:
    return {"customJobs": state.under(f"aiplatform/v1/{parent}/customJobs/.*")}


def _cancel_job(state: State, request: Request, job: str) -> Json:
    state.find(f"aiplatform/v1/{job}")["state"] = "JOB_STATE_CANCELLED"
    return {}


def _add_queued_resource(state: State, request: Request, parent: str) -> Json:
    message = parse(tpu_v2.QueuedResource, request.body)
    for spec in message.tpu.node_spec:
        _check_node(state, spec.node)
    name = f"{parent}/queuedResources/{request.query['queuedResourceId']}"
    return _done(request, state.add(f"tpu/v2/{name}", {**request.body, "name": name, "state": {"state": "ACTIVE"}}))


def _add_node(state: State, request: Request, parent: str) -> Json:
    _check_node(state, parse(tpu_v2.Node, request.body))
    name = f"{parent}/nodes/{request.query['nodeId']}"
    return _done(request, state.add(f"tpu/v2/{name}", {**request.body, "name": name, "state": "READY"}))


def _check_node(state: State, node: Any) -> None:
    _check_account(state, node.service_account.email)
    _check_labels(node.labels)
    if not all(scope.startswith(SCOPE) for scope in node.service_account.scope):
        raise Refused(400, f"scopes {list(node.service_account.scope)}: each is a URL")


def _listing(field: str, folder: str) -> Callable[..., Json]:
    def handle(state: State, request: Request, version: str, project: str, place: str) -> Json:
        places = "[^/]+" if place == "-" else re.escape(place)
        return {field: state.under(f"{request.service}/{version}/{project}/locations/{places}/{folder}/[^/]+")}

    return handle


def _add_compute(kind: Any) -> Callable[..., Json]:
    def handle(state: State, request: Request, *groups: str) -> Json:
        message = parse(kind, request.body)
        if kind is compute_v1.InstanceTemplate:
            for account in message.properties.service_accounts:
                _check_account(state, account.email)
            _check_labels(message.properties.labels)
        target = f"{request.path}/{message.name}"
        state.add(f"compute/{target}", {**request.body, "selfLink": target})
        return _compute_done(state, request, target)

    return handle


def _compute_wait(state: State, request: Request, scope: str) -> Json:
    return state.operation


def _aggregated(state: State, request: Request, project: str, folder: str) -> Json:
    items: dict[str, Json] = {}
    link = f"https://compute.googleapis.com/compute/v1/projects/{project}"
    for key, resource in state.resources.items():
        if found := re.fullmatch(rf"compute/projects/{project}/((?:zones|regions)/[^/]+|global)/{folder}/[^/]+", key):
            is_group = folder == "instanceGroupManagers"
            extra = {"status": {"isStable": True}, "zone": f"{link}/{found[1]}"} if is_group else {}
            items.setdefault(found[1], {folder: []})[folder].append({**resource, **extra})
    return {"items": items}


ROUTES: tuple[tuple[str, str, Callable[..., Json]], ...] = (
    ("GET", r"cloudresourcemanager/v1/projects/[^/:]+", _get),
    ("POST", r"cloudresourcemanager/v1/projects", _add_project),
    ("POST", r"cloudresourcemanager/(v1/projects/[^/]+):getIamPolicy", _policy),
    ("POST", r"cloudresourcemanager/(v1/projects/[^/]+):setIamPolicy", _set_policy),
    ("GET", r"cloudresourcemanager/v1/operations/.*", lambda state, request: _done(request)),
    ("PUT", r"cloudbilling/v1/projects/([^/]+)/billingInfo", _link_billing),
    ("POST", r"serviceusage/v1/projects/[^/]+/services:batchEnable", _enable),
    ("POST", r"serviceusage/v1/projects/[^/]+/services/[^/]+:enable", lambda state, request: _done(request)),
    ("GET", r"storage/b/[^/]+", _get),
    ("POST", r"storage/b", _add_bucket),
    ("DELETE", r"storage/b/[^/]+", _delete),
    ("GET", r"storage/b/[^/]+/storageLayout", lambda *_: {"hierarchicalNamespace": {"enabled": False}}),
    ("GET", r"storage/b/[^/]+/managedFolders", lambda *_: {"items": []}),
    ("GET", r"storage/b/[^/]+/o", lambda *_: {"kind": "storage#objects", "items": []}),
    ("GET", r"storage/(b/[^/]+)/iam", _policy),
    ("PUT", r"storage/(b/[^/]+)/iam", _set_policy),
    ("POST", r"storage/upload/storage/v1/b/([^/]+)/o", _upload),
    ("GET", r"artifactregistry/v1/projects/[^/]+/locations/[^/]+/repositories/[^/:]+", _get),
    ("POST", r"artifactregistry/v1/(projects/[^/]+/locations/[^/]+)/repositories", _add_repository),
    ("DELETE", r"artifactregistry/v1/projects/[^/]+/locations/[^/]+/repositories/[^/:]+", _delete),
    ("GET", r"artifactregistry/(v1/.*/repositories/[^/]+):getIamPolicy", _policy),
    ("POST", r"artifactregistry/(v1/.*/repositories/[^/]+):setIamPolicy", _set_policy),
    ("GET", r"artifactregistry/v1/(.*/packages/[^/]+)/tags", _tags),
    ("GET", r"artifactregistry/v1/.*/packages/[^/]+/tags/[^/]+", _get),
    ("GET", r"iam/v1/projects/-/serviceAccounts/[^/]+", _get),
    ("POST", r"iam/v1/projects/([^/]+)/serviceAccounts", _add_account),
    ("GET", r"secretmanager/v1/projects/[^/]+/secrets/[^/:]+", _get),
    ("POST", r"secretmanager/v1/projects/([^/]+)/secrets", _add_secret),
    ("DELETE", r"secretmanager/v1/projects/[^/]+/secrets/[^/:]+", _delete),
    ("POST", r"secretmanager/v1/(projects/[^/]+/secrets/[^/]+):addVersion", _add_secret_version),
    ("GET", r"secretmanager/v1/(projects/[^/]+/secrets/[^/]+)/versions", _secret_versions),
    ("GET", r"secretmanager/(v1/projects/[^/]+/secrets/[^/]+):getIamPolicy", _policy),
    ("POST", r"secretmanager/(v1/projects/[^/]+/secrets/[^/]+):setIamPolicy", _set_policy),
    ("POST", r"cloudbuild/v1/(projects/[^/]+/locations/[^/]+)/builds", _build),
    ("GET", r"cloudbuild/v1/projects/[^/]+/locations/[^/]+/builds/[^/]+", _get),
    ("POST", r"aiplatform/v1/(projects/[^/]+/locations/[^/]+)/customJobs", _add_job),
    ("GET", r"aiplatform/v1/(projects/[^/]+/locations/[^/]+)/customJobs", _jobs),
    ("POST", r"aiplatform/v1/(projects/[^/]+/locations/[^/]+/customJobs/[^/]+):cancel", _cancel_job),
    ("POST", r"tpu/v2/(projects/[^/]+/locations/[^/]+)/queuedResources", _add_queued_resource),
    ("POST", r"tpu/v2/(projects/[^/]+/locations/[^/]+)/nodes", _add_node),
    ("GET", r"tpu/(v2)/(projects/[^/]+)/locations/([^/]+)/queuedResources",
     _listing("queuedResources", "queuedResources")),
    ("GET", r"tpu/(v2)/(projects/[^/]+)/locations/([^/]+)/nodes", _listing("nodes", "nodes")),
    ("GET", r"tpu/v2/projects/[^/]+/locations/[^/]+/(queuedResources|nodes)/[^/]+", _get),
    ("DELETE", r"tpu/v2/projects/[^/]+/locations/[^/]+/(queuedResources|nodes)/[^/]+", _delete),
    ("GET", r"compute/projects/[^/]+/zones/[^/]+", lambda state, request, *_: {"name": request.path.split("/")[-1]}),
    ("GET", r"compute/projects/cos-cloud/global/images/family/cos-stable",
     lambda *_: {"name": "cos-stable", "selfLink": "projects/cos-cloud/global/images/cos-stable"}),
    ("GET", r"compute/projects/[^/]+/zones/[^/]+/(autoscalers|instanceGroups)", lambda *_: {"items": []}),
    ("POST", r"compute/(.*)/operations/[^/]+/wait", _compute_wait),
    ("POST", r"compute/projects/[^/]+/global/firewalls", _add_compute(compute_v1.Firewall)),
    ("POST", r"compute/projects/[^/]+/global/instanceTemplates", _add_compute(compute_v1.InstanceTemplate)),
    ("POST", r"compute/projects/[^/]+/zones/[^/]+/instanceGroupManagers",
     _add_compute(compute_v1.InstanceGroupManager)),
    ("GET", r"compute/projects/([^/]+)/aggregated/(instanceGroupManagers|instanceTemplates)", _aggregated),
    ("GET", r"compute/projects/[^/]+/(global|zones/[^/]+)/(firewalls|instanceTemplates|instanceGroupManagers)/[^/]+",
     _get),
    ("DELETE",
     r"compute/projects/[^/]+/(global|zones/[^/]+)/(firewalls|instanceTemplates|instanceGroupManagers)/[^/]+",
     _delete),
)  # fmt: skip
"""Method, service and path, and who answers; the path's groups are arguments."""


def fake(directory: pathlib.Path) -> Iterator[Server]:
    """Yields a server with one project; the body of a fixture."""
    server = Server(directory)
    server.state.add("cloudresourcemanager/v1/projects/my-project", {"projectId": "my-project"})
    try:
        yield server
    finally:
        server.close()
