"""Messages of Google Cloud's packages, without the clients beside them, whose import takes a minute at first."""

from __future__ import annotations

import importlib
import pathlib
import sys
import types


def load(package: str, *files: str) -> types.SimpleNamespace:
    """Returns the message classes of some files in a package's `types`.

    The package's own `__init__` and that of its `types` are not run: from now on empty modules stand for them.

    Raises:
      ImportError: there is no such package, or no such file in it.
    """
    parent, _, name = package.rpartition(".")
    folders = [pathlib.Path(path, name) for path in importlib.import_module(parent).__path__]
    for module, paths in ((package, folders), (f"{package}.types", [path / "types" for path in folders])):
        stub = types.ModuleType(module)
        stub.__path__ = list(map(str, paths))
        sys.modules.setdefault(module, stub)
    found = [importlib.import_module(f"{package}.types.{file}") for file in files]
    return types.SimpleNamespace(**{name: getattr(module, name) for module in found for name in module.__all__})


aiplatform_v1 = load("google.cloud.aiplatform_v1", "custom_job")
artifactregistry_v1 = load("google.cloud.artifactregistry_v1", "repository")
cloudbuild_v1 = load("google.cloud.devtools.cloudbuild_v1", "cloudbuild")
compute_v1 = load("google.cloud.compute_v1", "compute")
iam_admin_v1 = load("google.cloud.iam_admin_v1", "iam")
secretmanager_v1 = load("google.cloud.secretmanager_v1", "resources", "service")
service_usage_v1 = load("google.cloud.service_usage_v1", "serviceusage")
tpu_v2 = load("google.cloud.tpu_v2", "cloud_tpu")
