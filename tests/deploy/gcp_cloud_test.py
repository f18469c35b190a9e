"""gcp/*.sh with the real gcloud, against Google Cloud on loopback, which refuses what Google's protos do not know."""

from __future__ import annotations

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from seedzero.cli import gcp

if TYPE_CHECKING:
    import fake_google_cloud

pytestmark = pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")

ROOT = pathlib.Path(__file__).parents[2]
PLACE = "projects/my-project/locations/us-central1"
ACCOUNT = "seedzero-{}@my-project.iam.gserviceaccount.com"


class Cloud:
    """The fake, and a way to run scripts against it."""

    def __init__(self, server: fake_google_cloud.Server, directory: pathlib.Path) -> None:
        self.server = server
        self._directory = directory
        self.folder = ROOT / "gcp"

    def run(self, script: str, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", str(self.folder / script), "--project=my-project", "--yes", *args],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, **self.server.environment(), "POLL_SECONDS": "0.05"},
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        return done

    def push_images(self, google: Any) -> None:
        """Makes the images of this commit."""
        script = f'script=test; . "{self.folder}/lib.sh"; image_tag'
        tag = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("learner-cpu", "learner-tpu", "worker"):
            google.push(self.server.state, f"us-central1-docker.pkg.dev/my-project/seedzero/{name}:{tag}")

    def set_up(self) -> None:
        """Makes what gcp/setup.sh makes, as far as the other scripts need it."""
        for name in ("train", "build"):
            email = ACCOUNT.format(name)
            self.server.state.add(f"iam/v1/projects/-/serviceAccounts/{email}", {"email": email})
        self.server.state.add("storage/b/my-project-seedzero", {"name": "my-project-seedzero"})
        repository = f"{PLACE}/repositories/seedzero"
        self.server.state.add(f"artifactregistry/v1/{repository}", {"name": repository, "format": "DOCKER"})
        secret = "projects/my-project/secrets/seedzero-fleet"
        self.server.state.add(f"secretmanager/v1/{secret}", {"name": secret})


@pytest.fixture(scope="module")
def google() -> Any:
    """The module fake_google_cloud: Google's protos take a second to import, so only tests that run do so."""
    return pytest.importorskip("fake_google_cloud", reason="the protos of Google Cloud come with the extra clouds")


@pytest.fixture
def empty(google: Any, tmp_path: pathlib.Path) -> Iterator[Cloud]:
    """A project in which nothing is."""
    for server in google.fake(tmp_path):
        yield Cloud(server, tmp_path)


@pytest.fixture
def bare(empty: Cloud) -> Cloud:
    """A project that was set up, without images."""
    empty.set_up()
    return empty


@pytest.fixture
def cloud(google: Any, bare: Cloud) -> Cloud:
    """A project that was set up, with the images of this commit."""
    bare.push_images(google)
    return bare


@pytest.mark.thorough
def test_a_job_is_submitted(cloud: Cloud) -> None:
    done = cloud.run("train_cartpole.sh", "--run=pole-1", "--spot", "--build=none")
    assert done.stdout.split()[-1] == f"{PLACE}/customJobs/1"
    (job,) = cloud.server.bodies("aiplatform/.*/customJobs")
    assert job["labels"] == {"app": "seedzero", "run": "pole-1"}
    scheduling = job["jobSpec"]["scheduling"]
    assert scheduling == {"strategy": "SPOT", "timeout": "3600s", "restartJobOnWorkerRestart": False}
    assert not cloud.server.refusals and not cloud.server.bodies("cloudbuild/.*/builds")


@pytest.mark.slow
def test_a_job_is_built_submitted_refused_twice_shown_and_stopped(bare: Cloud) -> None:
    cloud = bare
    cloud.run("train_atari.sh", "--run=pong-1", "--build=none", code=2)
    assert not cloud.server.changes()
    elsewhere = cloud.run("train_atari.sh", "--run=pong-1", "--region=us-east5", code=2)
    assert "gcp/setup.sh --project=my-project --region=us-east5 makes one" in elsewhere.stderr
    done = cloud.run("train_atari.sh", "--run=pong-1", "--spot", "--", "--seed=3")
    assert done.stdout.split()[-1] == f"{PLACE}/customJobs/1"
    learner, worker = (body["substitutions"] for body in cloud.server.bodies("cloudbuild/.*/builds"))
    assert (learner["_DOCKERFILE"], learner["_ARGUMENT"]) == ("docker/learner.Dockerfile", "EXTRAS=cuda")
    assert (worker["_DOCKERFILE"], worker["_ARGUMENT"]) == ("docker/worker.Dockerfile", "EXTRAS=")
    for build in (learner, worker):
        assert (ROOT / build["_DOCKERFILE"]).is_file()
    (job,) = cloud.server.bodies("aiplatform/.*/customJobs")
    pools = job["jobSpec"]["workerPoolSpecs"]
    assert [pool["containerSpec"]["imageUri"] for pool in pools] == [learner["_IMAGE"], worker["_IMAGE"]]
    assert job["labels"] == {"app": "seedzero", "run": "pong-1"}
    scheduling = job["jobSpec"]["scheduling"]
    assert scheduling == {"strategy": "SPOT", "timeout": "14400s", "restartJobOnWorkerRestart": False}

    again = cloud.run("train_atari.sh", "--run=pong-1", code=2)
    assert "pong-1 " in again.stderr and "job" in again.stderr

    shown = cloud.run("status.sh").stdout
    assert re.search(r"custom-job +1 +JOB_STATE_PENDING +pong-1 +us-central1 +g2-standard-16,n1-highcpu-32\n", shown)

    stopped = cloud.run("stop.sh", "--run=pong-1")
    assert re.search("nothing .* hour", stopped.stderr)
    assert cloud.server.state.find(f"aiplatform/v1/{PLACE}/customJobs/1")["state"] == "JOB_STATE_CANCELLED"
    assert not cloud.server.refusals


@pytest.mark.slow
def test_an_own_environment_trains_from_its_images_once_they_are_pushed(cloud: Cloud, google: Any) -> None:
    image = "us-central1-docker.pkg.dev/my-project/seedzero/my-env:1"
    words = ("--env=python:my_env:MyEnv", f"--image={image}", "--run=mine", "--accelerator=cpu", "--preset=discrete")
    missing = cloud.run("train.sh", *words, code=2)
    assert f"scripts/image --env=python:my_env:MyEnv --image={image} --push" in missing.stderr
    newest = cloud.run("train.sh", words[0], words[1].removesuffix(":1"), *words[2:], code=2)
    assert f"there is no image {image.replace(':1', '-learner:latest')}; " in newest.stderr
    assert not cloud.server.changes()
    images = [image.replace(":1", f"-{part}:1") for part in ("learner", "worker")]
    for name in images:
        google.push(cloud.server.state, name)
    cloud.run("train.sh", *words)
    (job,) = cloud.server.bodies("aiplatform/.*/customJobs")
    pools = job["jobSpec"]["workerPoolSpecs"]
    assert [pool["containerSpec"]["imageUri"] for pool in pools] == images
    assert not cloud.server.refusals and not cloud.server.bodies("cloudbuild/.*/builds")


@pytest.mark.slow
def test_a_tpu_vm_and_its_workers_are_made_once_and_stopped(cloud: Cloud) -> None:
    flags = ("--run=pong-2", "--spot", "--build=none", "--workers=3", "--", "--seed=3")
    cloud.run("train_atari_tpu_vm.sh", *flags)
    (queued,) = cloud.server.bodies("tpu/.*/queuedResources")
    (spec,) = queued["tpu"]["nodeSpec"]
    node = spec["node"]
    assert "spot" in queued and node["acceleratorType"] == "v5litepod-4"
    assert node["serviceAccount"]["email"] == ACCOUNT.format("train") and node["tags"] == ["seedzero"]
    metadata = node["metadata"]
    startup = (ROOT / "gcp" / "startup.sh").read_text()
    assert metadata["startup-script"] == startup
    learner = gcp.split(metadata["seedzero-arguments"].split())[1]
    assert learner[0] == "train" and learner[-1] == "--seed=3"
    assert metadata["seedzero-docker-flags"] == "--privileged --user=root --env=JAX_PLATFORMS=tpu,cpu"

    (template,) = cloud.server.bodies("compute/.*/instanceTemplates")
    properties = template["properties"]
    items = {item["key"]: item["value"] for item in properties["metadata"]["items"]}
    assert items["startup-script"] == startup and items["seedzero-arguments"].split()[-1] == "worker"
    assert properties["scheduling"]["provisioningModel"] == "SPOT"
    assert properties["tags"]["items"] == ["seedzero"]
    (group,) = cloud.server.bodies("compute/.*/instanceGroupManagers")
    assert (group["name"], group["targetSize"]) == ("seedzero-pong-2", 3)

    before = len(cloud.server.changes())
    cloud.run("train_atari_tpu_vm.sh", *flags)
    other = cloud.run("train_atari_tpu_vm.sh", *flags, "--max_env_steps=9000000", code=2)
    assert "gcp/stop.sh --run=pong-2" in other.stderr
    assert len(cloud.server.changes()) == before

    cloud.run("stop.sh")
    left = [key for key in cloud.server.state.resources if key.startswith(("tpu/", "compute/"))]
    assert not left and not cloud.server.refusals


@pytest.mark.slow
def test_the_rule_between_the_hosts_of_a_slice_goes_with_the_slice(cloud: Cloud) -> None:
    cloud.run("train_atari_tpu_vm.sh", "--run=four", "--num_learners=4", "--build=none", "--workers=0")
    (firewall,) = cloud.server.bodies("compute/.*/firewalls")
    assert firewall["name"] == "seedzero-host" and firewall["allowed"] == [{"IPProtocol": "tcp"}]
    cloud.run("stop.sh", "--run=another")
    assert cloud.server.state.under("compute/.*/firewalls/.*")
    cloud.run("stop.sh", "--run=four")
    assert not cloud.server.state.under("(tpu|compute)/.*") and not cloud.server.refusals


@pytest.mark.slow
def test_setup_makes_a_project_ready_and_a_second_time_changes_nothing_but_rights(empty: Cloud) -> None:
    done = empty.run("setup.sh")
    (bucket,) = empty.server.bodies("storage/b")
    assert bucket["iamConfiguration"]["publicAccessPrevention"] == "enforced"
    assert bucket["softDeletePolicy"]["retentionDurationSeconds"] == "0"
    (version,) = empty.server.bodies(".*:addVersion")
    text = base64.b64decode(version["payload"]["data"]).decode()
    secret = json.loads(text)
    assert set(secret) == set(gcp.google_cloud.Secret._fields)
    assert len(secret["token"]) == 64 and secret["token"] not in done.stdout + done.stderr
    certificate = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName"], input=secret["certificate"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert f"DNS:{gcp.SERVER_NAME}" in certificate
    assert _rights(empty.server.state.policies) == {
        ("storage/b/my-project-seedzero", "train", "roles/storage.objectUser"),
        ("storage/b/my-project-seedzero", "build", "roles/storage.objectViewer"),
        (f"artifactregistry/v1/{PLACE}/repositories/seedzero", "train", "roles/artifactregistry.reader"),
        (f"artifactregistry/v1/{PLACE}/repositories/seedzero", "build", "roles/artifactregistry.writer"),
        ("secretmanager/v1/projects/my-project/secrets/seedzero-fleet", "train", "roles/secretmanager.secretAccessor"),
        ("cloudresourcemanager/v1/projects/my-project", "train", "roles/logging.logWriter"),
        ("cloudresourcemanager/v1/projects/my-project", "build", "roles/logging.logWriter"),
    }
    (firewall,) = empty.server.bodies("compute/.*/firewalls")
    assert firewall["allowed"] == [{"IPProtocol": "tcp", "ports": [str(gcp.PORT)]}]
    assert firewall["sourceTags"] == firewall["targetTags"] == ["seedzero"]

    before, resources = len(empty.server.changes()), set(empty.server.state.resources)
    empty.run("setup.sh")
    again = {found.path.rpartition(":")[2].rpartition("/")[2] for found in empty.server.changes()[before:]}
    assert again == {"batchEnable", "getIamPolicy", "setIamPolicy", "iam"}
    assert set(empty.server.state.resources) == resources and not empty.server.refusals

    other = empty.run("setup.sh", "--network=mine", code=2)
    assert "seedzero-learner is for network default, not mine" in other.stderr
    assert "gcloud compute firewall-rules delete seedzero-learner" in other.stderr

    empty.run("setup.sh", "--rotate_secret")
    assert len(empty.server.bodies(".*:addVersion")) == 2


def _rights(policies: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (what, re.sub(r".*seedzero-(\w+)@.*", r"\1", member), binding["role"])
        for what, policy in policies.items()
        for binding in policy["bindings"]
        for member in binding["members"]
    }


@pytest.mark.slow
def test_setup_makes_a_project_only_with_a_billing_account(empty: Cloud) -> None:
    del empty.server.state.resources["cloudresourcemanager/v1/projects/my-project"]
    refused = empty.run("setup.sh", code=2)
    assert "--billing_account=ID creates it" in refused.stderr and not empty.server.changes()
    empty.run("setup.sh", "--billing_account=012345-6789AB-CDEF01")
    assert empty.server.state.billed == {"my-project"}


@pytest.mark.slow
def test_a_tpu_vm_at_once_and_one_that_was_taken_away(cloud: Cloud) -> None:
    cloud.run("train_atari_tpu_vm.sh", "--run=now", "--provisioning=now", "--build=none", "--workers=0")
    (node,) = cloud.server.bodies("tpu/.*/nodes")
    assert node["acceleratorType"] == "v5litepod-4" and not cloud.server.bodies("compute/.*")
    name = "tpu/v2/projects/my-project/locations/us-central1-a/nodes/seedzero-now"
    cloud.server.state.find(name)["state"] = "PREEMPTED"
    cloud.run("train_atari_tpu_vm.sh", "--run=now", "--provisioning=now", "--build=none", "--workers=0")
    assert cloud.server.state.find(name)["state"] == "READY"

    flags = ("--run=gone", "--build=none", "--workers=0")
    cloud.run("train_atari_tpu_vm.sh", *flags)
    name = "tpu/v2/projects/my-project/locations/us-central1-a/queuedResources/seedzero-gone"
    cloud.server.state.find(name)["state"]["state"] = "SUSPENDED"
    cloud.run("train_atari_tpu_vm.sh", *flags)
    assert cloud.server.state.find(name)["state"]["state"] == "ACTIVE"

    stopped = cloud.run("stop.sh", "--run=now").stderr
    assert "seedzero-now" in stopped and "seedzero-gone" not in stopped
    assert list(cloud.server.state.under("tpu/.*")) == [cloud.server.state.find(name)]


@pytest.mark.slow
def test_stop_removes_storage_only_when_it_is_told_to(cloud: Cloud) -> None:
    cloud.run("train_cartpole.sh", "--run=c", "--build=none")
    done = cloud.run("stop.sh")
    assert "gs://my-project-seedzero" in done.stderr
    assert cloud.server.state.find("storage/b/my-project-seedzero")
    cloud.run("stop.sh", "--delete_storage")
    gone = ("iam/", "cloudresourcemanager/", f"artifactregistry/v1/{PLACE}/repositories/seedzero/packages/")
    left = [key for key in cloud.server.state.resources if not key.startswith(gone)]
    assert left == [f"aiplatform/v1/{PLACE}/customJobs/1"]  # cancelled


def _refusal(google: Any) -> Callable[..., None]:
    def refuse(*_: Any) -> None:
        raise google.Refused(400, "Permission denied")

    return refuse


@pytest.mark.slow
def test_stop_fails_while_something_is_left(google: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.run("train_cartpole.sh", "--run=c", "--build=none")
    routes = [(method, path, handle) for method, path, handle in google.ROUTES if "cancel" not in path]
    stays = ("POST", r"aiplatform/v1/(.*):cancel", lambda *_: {})
    monkeypatch.setattr(google, "ROUTES", (stays, *routes))
    done = cloud.run("stop.sh", code=1)
    assert "JOB_STATE_PENDING" in done.stderr

    routes.insert(0, ("POST", r"aiplatform/v1/(.*):cancel", _refusal(google)))
    monkeypatch.setattr(google, "ROUTES", tuple(routes))
    cloud.run("train_atari_tpu_vm.sh", "--run=t", "--provisioning=now", "--build=none", "--workers=0")
    done = cloud.run("stop.sh", code=1)
    assert "custom-job 1 " in done.stderr
    assert not cloud.server.state.under("tpu/.*")


@pytest.mark.slow
def test_missing_rights_are_not_taken_for_a_missing_thing(
    google: Any, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = ("GET", r"artifactregistry/.*", _refusal(google))
    monkeypatch.setattr(google, "ROUTES", (forbidden, *google.ROUTES))
    done = cloud.run("train_cartpole.sh", code=1)
    assert "Permission denied" in done.stderr
    assert not cloud.server.changes()
