"""The JobSet of several learner hosts: what its controller would refuse, and numbers and names that must agree."""

from __future__ import annotations

import os
import pathlib
import subprocess

import deploy_files
import manifests
import pytest

FILE = deploy_files.ROOT / "cluster" / "kubernetes" / "jobset.yaml"
*BESIDE, JOB_SET = deploy_files.documents(FILE)
HOST, HOST_WORKER = (job["template"] for job in JOB_SET["spec"]["replicatedJobs"])

# Keys of jobset.x-k8s.io/v1alpha2 that the file uses; each replicated job's template is checked as a Job.
JOB_SET_KEYS = {"failurePolicy", "network", "replicatedJobs", "successPolicy"}
NETWORK_KEYS = {"enableDNSHostnames", "publishNotReadyAddresses", "subdomain"}
FAILURE_KEYS = {"maxRestarts", "restartStrategy", "rules"}
SUCCESS_KEYS = {"operator", "targetReplicatedJobs"}
REPLICATED_JOB_KEYS = {"dependsOn", "groupName", "name", "replicas", "template"}


def _validate_job_set(job_set: manifests.Document) -> None:
    """Checks a JobSet, which no schema is at hand for: its own keys by name, each template as a Job."""
    manifests.only(job_set, {"apiVersion", "kind", "metadata", "spec"})
    spec = job_set["spec"]
    manifests.only(spec, JOB_SET_KEYS)
    manifests.only(spec["network"], NETWORK_KEYS)
    manifests.only(spec["failurePolicy"], FAILURE_KEYS)
    manifests.only(spec["successPolicy"], SUCCESS_KEYS)
    for job in spec["replicatedJobs"]:
        manifests.only(job, REPLICATED_JOB_KEYS)
        manifests.only(job["template"], {"metadata", "spec"})
        metadata = {"name": "as-a-job", **job["template"].get("metadata", {})}
        manifests.validate(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["template"]["spec"]}
        )


@pytest.mark.parametrize("document", BESIDE, ids=lambda document: f"{document['kind']}-{document['metadata']['name']}")
def test_an_api_server_would_take_it(document: manifests.Document) -> None:
    manifests.validate(document)


def test_the_controller_of_jobsets_would_take_the_job_set() -> None:
    _validate_job_set(JOB_SET)


@pytest.mark.parametrize("workload", [HOST, HOST_WORKER], ids=["host", "worker"])
def test_pods_have_the_rights_and_the_token_of_those_of_one_learner(workload: manifests.Document) -> None:
    learner = deploy_files.documents(FILE.with_name("learner.yaml"))[0]
    spec, of_one = workload["spec"]["template"]["spec"], learner["spec"]["template"]["spec"]
    for key in ("securityContext", "automountServiceAccountToken", "enableServiceLinks"):
        assert spec[key] == of_one[key]
    container, like = manifests.container(workload), manifests.container(learner)
    assert container["securityContext"] == like["securityContext"]
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]
    token = next(volume for volume in of_one["volumes"] if volume["name"] == "token")
    assert token in spec["volumes"] and manifests.flag(container, "token_file") == manifests.flag(like, "token_file")
    assert next(mount for mount in like["volumeMounts"] if mount["name"] == "token") in container["volumeMounts"]
    assert {volume["name"] for volume in spec["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    assert spec["terminationGracePeriodSeconds"] >= 30


def test_every_host_of_the_job_set_takes_its_part_of_one_run() -> None:
    container, num_hosts = manifests.container(HOST), HOST["spec"]["completions"]
    (index,) = [variable for variable in container["env"] if variable["name"] == "HOST_INDEX"]
    assert index["valueFrom"]["fieldRef"]["fieldPath"].endswith("['batch.kubernetes.io/job-completion-index']")
    for number in range(num_hosts):
        words = [word.replace("$(HOST_INDEX)", str(number)) for word in container["args"]]
        assert f"--cluster.index={number}" in words
        deploy_files.check_command(words)
    assert int(manifests.flag(container, "cluster.num_hosts")) == num_hosts == HOST["spec"]["parallelism"]
    assert (HOST["spec"]["completionMode"], HOST["spec"]["backoffLimit"]) == ("Indexed", 0)
    deploy_files.check_command(manifests.container(HOST_WORKER)["args"])
    workers = int(manifests.flag(container, "worker.num_remote")) * num_hosts
    assert HOST_WORKER["spec"]["completions"] == HOST_WORKER["spec"]["parallelism"] == workers


def test_hosts_and_workers_of_the_job_set_know_each_other_by_name() -> None:
    container, network = manifests.container(HOST), JOB_SET["spec"]["network"]
    assert network["enableDNSHostnames"] and JOB_SET["spec"]["successPolicy"]["targetReplicatedJobs"] == ["host"]
    prefix = f"{JOB_SET['metadata']['name']}-{JOB_SET['spec']['replicatedJobs'][0]['name']}-0"
    names = [f"{prefix}-{index}.{network['subdomain']}" for index in range(HOST["spec"]["completions"])]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert manifests.flag(container, "cluster.coordinator") == f"{names[0]}:{ports['cluster']}"
    assert manifests.flag(container, "listen") == f"0.0.0.0:{ports['grpc']}"
    assert manifests.flag(manifests.container(HOST_WORKER), "server").split(",") == [
        f"{name}:{ports['grpc']}" for name in names
    ]
    hosts, workers = (policy["spec"] for policy in BESIDE if policy["kind"] == "NetworkPolicy")
    labels = {kind: job["spec"]["template"]["metadata"]["labels"] for kind, job in (("h", HOST), ("w", HOST_WORKER))}
    assert hosts["podSelector"]["matchLabels"] == labels["h"] and workers["podSelector"]["matchLabels"] == labels["w"]
    to_hosts, from_workers, _ = hosts["ingress"]
    assert to_hosts == {"from": [{"podSelector": {"matchLabels": labels["h"]}}]}, "on all ports"
    assert from_workers["from"] == [{"podSelector": {"matchLabels": labels["w"]}}]
    assert workers["egress"][0]["to"] == [{"podSelector": {"matchLabels": labels["h"]}}]


def test_hosts_of_the_job_set_are_a_whole_slice_and_must_find_their_chips() -> None:
    spec, container = HOST["spec"]["template"]["spec"], manifests.container(HOST)
    rows, columns = spec["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x")
    chips = int(container["resources"]["limits"]["google.com/tpu"])
    assert chips * HOST["spec"]["completions"] == int(rows) * int(columns)
    assert container["resources"]["requests"]["google.com/tpu"] == str(chips)
    assert {"name": "JAX_PLATFORMS", "value": "tpu,cpu"} in container["env"]
    assert "nodeSelector" not in HOST_WORKER["spec"]["template"]["spec"]


@pytest.mark.parametrize(("own", "sent", "code"), [(0, "", 0), (75, "", 75), (0, "TERM", 75)])
def test_a_host_that_is_told_to_leave_does_not_count_as_finished(
    own: int, sent: str, code: int, tmp_path: pathlib.Path
) -> None:
    program = tmp_path / "seedzero"
    leave = f"kill -{sent} $PPID; " if sent else ""
    program.write_text(
        f"#!/bin/sh\n[ \"$*\" = 'train --seed=1' ] || exit 2\ntrap 'exit {own}' TERM\n"
        f"{leave}{'while :; do read line < wait; done' if sent else f'exit {own}'}\n"
    )
    program.chmod(0o755)
    os.mkfifo(tmp_path / "wait")
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = [*manifests.container(HOST)["command"], "train", "--seed=1"]
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False, timeout=600).returncode == code
