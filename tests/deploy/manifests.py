"""Reads and checks the manifests of Kubernetes, for their tests."""

from __future__ import annotations

import copy
import pathlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="it comes with the extra clouds")

VERSION = "1.30"
"""The oldest that the manifests are for. Its schema is also the strictest: newer ones know more keys."""

Document = dict[str, Any]


def validate(document: Document) -> None:
    kubernetes_validate.validate(document, VERSION, strict=True)


def built(folder: pathlib.Path) -> list[Document]:
    """Returns what `kubectl apply -k` would send, made by kustomize itself; without kubectl the test is skipped."""
    program = shutil.which("kubectl") or pytest.skip("kubectl is not installed")
    done = subprocess.run([program, "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def find(documents: Sequence[Document], kind: str) -> Document:
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def only(found: Mapping[str, Any], known: set[str]) -> None:
    unknown = set(found) - known
    if unknown:
        raise ValueError(f"unknown keys {sorted(unknown)}")


def container(workload: Document) -> Document:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(container)


def flag(container: Document, name: str) -> str:
    (value,) = [word.partition("=")[2] for word in container["args"] if word.startswith(f"--{name}=")]
    return str(value)


def misspelt(document: Document, path: tuple[str | int, ...], wrong: str) -> Document:
    """Returns a copy of the document with another name of one key."""
    document = copy.deepcopy(document)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[wrong] = place.pop(path[-1])
    return document
