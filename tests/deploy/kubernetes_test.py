"""The manifests of Kubernetes: what an API server would refuse, and what it would not: names that must agree."""

from __future__ import annotations

import copy
import pathlib
import re
import shlex
import shutil
from typing import Any

import deploy_files
import manifests
import pytest

DIRECTORY = deploy_files.ROOT / "cluster" / "kubernetes"
Document = dict[str, Any]


def _resources() -> list[Document]:
    """Everything that `kubectl apply -k` makes, and the example of the Secret."""
    names = deploy_files.documents(DIRECTORY / "kustomization.yaml")[0]["resources"]
    names = [*names, "namespace.yaml", "secret.example.yaml"]
    return [document for name in names for document in deploy_files.documents(DIRECTORY / name)]


def _id(document: Document) -> str:
    return f"{document['kind']}-{document['metadata']['name']}"


RESOURCES = _resources()
*BESIDE_RAY_JOB, RAY_JOB = deploy_files.documents(DIRECTORY / "rayjob.yaml")


# Keys of ray.io/v1 that the file uses: there is no schema of it in Python. Pod templates are checked as Pods.
RAY_JOB_KEYS = {
    "backoffLimit",
    "entrypoint",
    "rayClusterSpec",
    "shutdownAfterJobFinishes",
    "submissionMode",
    "ttlSecondsAfterFinished",
}
RAY_CLUSTER_KEYS = {"headGroupSpec", "rayVersion", "workerGroupSpecs"}
RAY_HEAD_KEYS = {"rayStartParams", "template"}
RAY_GROUP_KEYS = {"groupName", "maxReplicas", "minReplicas", "rayStartParams", "replicas", "template"}


def _validate_ray_job(job: Document) -> None:
    """Checks a RayJob, which no schema is at hand for: its own keys by name, each pod template as a Pod.

    Raises:
      ValidationError: a pod template is wrong.
      ValueError: another key is.
    """
    manifests.only(job, {"apiVersion", "kind", "metadata", "spec"})
    manifests.only(job["spec"], RAY_JOB_KEYS)
    cluster = job["spec"]["rayClusterSpec"]
    manifests.only(cluster, RAY_CLUSTER_KEYS)
    manifests.only(cluster["headGroupSpec"], RAY_HEAD_KEYS)
    for group in cluster["workerGroupSpecs"]:
        manifests.only(group, RAY_GROUP_KEYS)
    for template in _ray_templates(job):
        manifests.only(template, {"metadata", "spec"})
        metadata = {"name": "as-a-pod", **template.get("metadata", {})}
        manifests.validate({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


def _ray_templates(job: Document) -> list[Document]:
    cluster = job["spec"]["rayClusterSpec"]
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def _find(kind: str, name: str) -> Document:
    (found,) = [x for x in RESOURCES if x["kind"] == kind and x["metadata"]["name"] == name]
    return found


LEARNER = _find("StatefulSet", "seedzero-learner")
WORKER = _find("Deployment", "seedzero-worker")
OF_POLICY = deploy_files.documents(DIRECTORY.with_name("kubernetes-policy") / "policy.yaml")
POLICY = OF_POLICY[0]


def _pod_specs() -> list[Document]:
    workloads = (LEARNER, WORKER, POLICY)
    templates = [*(workload["spec"]["template"] for workload in workloads), *_ray_templates(RAY_JOB)]
    return [template["spec"] for template in templates]


@pytest.mark.parametrize("document", [*RESOURCES, *OF_POLICY, *BESIDE_RAY_JOB], ids=_id)
def test_an_api_server_would_take_it(document: Document) -> None:
    manifests.validate(document)


def test_kuberay_would_take_the_ray_job() -> None:
    _validate_ray_job(RAY_JOB)


def test_the_checks_see_a_misspelt_key_wherever_it_is() -> None:
    pod = ("spec", "template", "spec")
    for path, wrong in (
        ((*pod, "terminationGracePeriodSeconds"), "terminationGracePeriodSecond"),
        ((*pod, "containers", 0, "startupProbe", "grpc", "port"), "prot"),
        ((*pod, "securityContext", "runAsNonRoot"), "runAsNonroot"),
    ):
        with pytest.raises(manifests.kubernetes_validate.ValidationError):
            manifests.validate(manifests.misspelt(LEARNER, path, wrong))
    cluster = ("spec", "rayClusterSpec")
    for path, wrong in (
        (("spec", "entrypoint"), "entryPoint"),
        ((*cluster, "workerGroupSpecs", 0, "minReplicas"), "minReplica"),
        ((*cluster, "workerGroupSpecs", 0, "template", "spec", "containers", 0, "image"), "imgae"),
    ):
        with pytest.raises((manifests.kubernetes_validate.ValidationError, ValueError)):
            _validate_ray_job(manifests.misspelt(RAY_JOB, path, wrong))


def test_kustomize_takes_every_file_that_is_there() -> None:
    (found,) = deploy_files.documents(DIRECTORY / "kustomization.yaml")
    assert set(found) == {"apiVersion", "kind", "namespace", "labels", "resources", "configMapGenerator", "images"}
    # The namespace is none of a run's: whoever deletes a run would delete those beside it.
    apart = {"kustomization.yaml", "namespace.yaml", "secret.example.yaml", "rayjob.yaml", "jobset.yaml"}
    assert set(found["resources"]) == {path.name for path in DIRECTORY.glob("*.yaml")} - apart
    used = {manifests.container(workload)["image"] for workload in (LEARNER, WORKER)}
    assert {image["name"] for image in found["images"]} == used


def _patched(name: str) -> tuple[Document, Document]:
    """Returns a variant's kustomization, and the learner as its patch makes it."""
    folder = DIRECTORY.with_name(name)
    (found,) = deploy_files.documents(folder / "kustomization.yaml")
    assert (folder / found["resources"][0]).resolve() == DIRECTORY
    assert DIRECTORY not in folder.parents  # kustomize refuses a base that contains what builds on it
    (patch,) = found["patches"]
    assert (patch["target"]["kind"], patch["target"]["name"]) == ("StatefulSet", LEARNER["metadata"]["name"])
    patched = copy.deepcopy(LEARNER)
    for operation in deploy_files.yaml.safe_load(patch["patch"]):
        assert operation["op"] == "add"
        *path, last = [part.replace("~1", "/") for part in operation["path"].split("/")[1:]]
        place: Any = patched
        for part in path:
            place = place[int(part) if isinstance(place, list) else part]
        if last == "-":
            assert isinstance(place, list)
            place.append(operation["value"])
        else:
            place[last] = operation["value"]
    manifests.validate(patched)
    return found, patched


def test_the_gpu_variant_patches_a_place_that_is_there() -> None:
    found, patched = _patched("kubernetes-gpu")
    assert set(found) == {"apiVersion", "kind", "namespace", "resources", "patches"} and len(found["resources"]) == 1
    assert manifests.container(patched)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    (head,) = _ray_templates(RAY_JOB)[0]["spec"]["containers"]
    for container in (manifests.container(patched), head):
        assert container["env"][-1] == {"name": "JAX_PLATFORMS", "value": "cuda,cpu"}


def _words(container: Document, data: dict[str, str], folder: pathlib.Path) -> list[str]:
    """Returns a container's arguments with the run's variables and its preset, which is written to the folder."""
    (folder / "run.preset").write_text(data["run.preset"])
    words = [re.sub(r"\$\((\w+)\)", lambda found: data[found[1]], word) for word in container["args"]]
    return [word.replace("/etc/seedzero", str(folder)) for word in words]


@pytest.mark.parametrize("name", ["kubernetes", "kubernetes-gpu", "kubernetes-policy", "kubernetes-own"])
def test_what_kustomize_makes_is_taken_by_an_api_server_and_by_seedzero(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(deploy_files.ROOT / "examples" / "own_environment.py", tmp_path)
    (tmp_path / "my_env.py").write_text("from own_environment import Corridor as MyEnv\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    documents = manifests.built(DIRECTORY.with_name(name))
    for document in documents:
        manifests.validate(document)
    run = manifests.find(documents, "ConfigMap")
    workloads = [document for document in documents if document["kind"] in ("StatefulSet", "Deployment")]
    for workload in workloads:
        words = _words(manifests.container(workload), run["data"], tmp_path)
        deploy_files.check_command(words)
        if words[0] == "worker":
            services = [document["metadata"]["name"] for document in documents if document["kind"] == "Service"]
            assert manifests.flag({"args": words}, "server").removesuffix(":7777") in services
        refs = [
            one["valueFrom"]["configMapKeyRef"] for one in manifests.container(workload)["env"] if "value" not in one
        ]
        assert refs and all(ref["name"] == run["metadata"]["name"] for ref in refs)
    assert len(workloads) == 2 + (name == "kubernetes-policy")


def test_two_runs_live_in_one_namespace(tmp_path: pathlib.Path) -> None:
    shutil.copytree(DIRECTORY, tmp_path / DIRECTORY.name)
    shutil.copytree(DIRECTORY.with_name("kubernetes-own"), own := tmp_path / "kubernetes-own")
    text = (own / "kustomization.yaml").read_text()
    (own / "kustomization.yaml").write_text(text.replace("# - egress.yaml ", "- egress.yaml "))
    one, other = manifests.built(tmp_path / DIRECTORY.name), manifests.built(own)
    assert len(other) == len(one) + 1 and not {*map(_id, one)} & {*map(_id, other)}
    assert {document["metadata"]["namespace"] for document in (*one, *other)} == {"seedzero"}
    selectors = [_selector(document) for document in (*one, *other)]
    pods = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in (*one, *other)
        if document["kind"] in ("StatefulSet", "Deployment")
    ]
    found = [sum(selector.items() <= labels.items() for labels in pods) for selector in selectors if selector]
    assert len(pods) == 4 and set(found) == {1}
    egress = [x["spec"] for x in other if x["kind"] == "NetworkPolicy" and "egress" in x["metadata"]["name"]]
    assert egress[0]["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "own-1"
    preset = manifests.find(other, "ConfigMap")["data"]["run.preset"]
    scaler = manifests.find(other, "HorizontalPodAutoscaler")["spec"]
    assert f"--worker.num_remote={scaler['maxReplicas']}\n" in preset


def _selector(document: Document) -> dict[str, str]:
    """Returns the labels of the pods that a resource is for, or none."""
    spec = document.get("spec", {})
    found = spec.get("podSelector", spec.get("selector", {}))
    return dict(found.get("matchLabels", {} if document["kind"] == "NetworkPolicy" else found))


def test_seedzero_takes_the_entrypoint_of_the_ray_job() -> None:
    program, *words = shlex.split(RAY_JOB["spec"]["entrypoint"])
    assert program == "seedzero"
    deploy_files.check_command(words)


def test_ray_is_of_the_version_that_the_images_have() -> None:
    lock = (deploy_files.ROOT / "requirements" / "learner-ray.txt").read_text()
    assert f"\nray=={RAY_JOB['spec']['rayClusterSpec']['rayVersion']} " in lock


def test_workers_find_the_learner_by_the_name_and_port_of_its_service() -> None:
    service = _find("Service", "seedzero-learner")
    labels = LEARNER["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["clusterIP"] == "None"
    assert LEARNER["spec"]["serviceName"] == service["metadata"]["name"]
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    learner_there = f"LEARNER={service['metadata']['name']}:{ports['grpc']}"
    (run,) = deploy_files.documents(DIRECTORY / "kustomization.yaml")[0]["configMapGenerator"]
    assert learner_there in run["literals"] and manifests.flag(manifests.container(WORKER), "server") == "$(LEARNER)"
    learner = manifests.container(LEARNER)
    assert {port["name"]: port["containerPort"] for port in learner["ports"]} == ports
    assert manifests.flag(learner, "listen") == f"0.0.0.0:{ports['grpc']}"
    assert int(manifests.flag(learner, "metrics_port")) == ports["metrics"]
    assert manifests.flag(learner, "metrics_host") == "0.0.0.0"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert learner[probe]["grpc"] == {"port": ports["grpc"]}


def test_a_policy_server_fetches_with_a_token_that_workers_do_not_have() -> None:
    _, learner = _patched("kubernetes-policy")
    policy, there = manifests.container(POLICY), manifests.container(learner)
    assert manifests.flag(policy, "learner") == "$(LEARNER)"
    name = manifests.flag(there, "serve.token_file")
    assert name == manifests.flag(policy, "serve.token_file") == "/run/secrets/policy/pool"
    mount, volume = there["volumeMounts"][-1], learner["spec"]["template"]["spec"]["volumes"][-1]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/run/secrets/policy")
    assert volume["secret"]["items"] == [{"key": "pool", "path": "pool"}]  # not the token of the server's clients
    secrets = {
        workload["metadata"]["name"]: [
            one["secret"]["secretName"] for one in workload["spec"]["template"]["spec"]["volumes"] if "secret" in one
        ]
        for workload in (learner, WORKER, POLICY)
    }
    assert secrets == {
        "seedzero-learner": ["seedzero-token", "seedzero-policy"],
        "seedzero-worker": ["seedzero-token"],
        "seedzero-policy": ["seedzero-policy"],
    }


def test_clients_find_the_policy_server_and_it_the_learner() -> None:
    deployment, service, clients, learner = (document["spec"] for document in OF_POLICY)
    labels, policy = deployment["template"]["metadata"]["labels"], manifests.container(POLICY)
    assert deployment["selector"]["matchLabels"] == service["selector"] == labels
    assert clients["podSelector"]["matchLabels"] == labels
    ports = [port["port"] for port in service["ports"]]
    assert int(manifests.flag(policy, "port")) == ports[0] == clients["ingress"][0]["ports"][0]["port"]
    assert int(manifests.flag(policy, "metrics_port")) == clients["ingress"][1]["ports"][0]["port"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert policy[probe]["grpc"] == {"port": ports[0]}
    assert learner["podSelector"]["matchLabels"].items() <= LEARNER["spec"]["template"]["metadata"]["labels"].items()
    (rule,) = learner["ingress"]
    assert rule["from"][0]["podSelector"]["matchLabels"] == labels and rule["ports"][0]["port"] == 7777


def test_only_workers_reach_the_learner_and_only_prometheus_its_metrics() -> None:
    deny = _find("NetworkPolicy", "seedzero-deny")["spec"]
    assert deny == {"podSelector": {}, "policyTypes": ["Ingress"]}
    policy = _find("NetworkPolicy", "seedzero-learner")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= LEARNER["spec"]["template"]["metadata"]["labels"].items()
    from_workers, from_prometheus = policy["ingress"]
    (peer,) = from_workers["from"]
    assert peer["podSelector"]["matchLabels"].items() <= WORKER["spec"]["template"]["metadata"]["labels"].items()
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"
    assert [port["port"] for port in from_workers["ports"]] == [7777]
    assert [port["port"] for port in from_prometheus["ports"]] == [9100]
    assert "podSelector" not in from_prometheus["from"][0]


def test_the_autoscaler_owns_the_workers() -> None:
    scaler = _find("HorizontalPodAutoscaler", "seedzero-worker")["spec"]
    target = {"apiVersion": WORKER["apiVersion"], "kind": WORKER["kind"], "name": WORKER["metadata"]["name"]}
    assert scaler["scaleTargetRef"] == target
    assert "replicas" not in WORKER["spec"]
    # A utilization is a share of what is asked for: a worker that could use more would never look idle.
    assert manifests.container(WORKER)["resources"]["requests"]["cpu"] == manifests.flag(
        manifests.container(WORKER), "threads"
    )


@pytest.mark.parametrize("spec", _pod_specs(), ids=["learner", "worker", "policy", "ray-head", "ray-workers"])
def test_pods_are_not_root_and_say_what_they_need(spec: Document) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001  # of the images
    assert spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("workload", [LEARNER, WORKER], ids=_id)
def test_there_is_time_to_leave_and_the_token_is_a_file(workload: Document) -> None:
    spec = workload["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= 30
    container = manifests.container(workload)
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert str(pathlib.PurePosixPath(manifests.flag(container, "token_file")).parent) == mounts["token"]["mountPath"]
    (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "token"]
    secret = _find("Secret", volume["secret"]["secretName"])
    assert pathlib.PurePosixPath(manifests.flag(container, "token_file")).name in secret["stringData"]
    assert volume["secret"]["defaultMode"] == 0o440
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    assert {volume["name"] for volume in spec["volumes"]} | {"runs"} >= set(mounts)
