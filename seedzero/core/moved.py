"""Keeps former names of modules that users' code imports: they work for one more version, with a warning."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
from collections.abc import Sequence

MODULES = {
    "seedzero.api.judge": "seedzero.api.exploitability",
    "seedzero.config.config": "seedzero.config.configs",
    "seedzero.config.muzero": "seedzero.config.muzero_config",
    "seedzero.config.ppo": "seedzero.config.ppo_config",
    "seedzero.config.sac": "seedzero.config.sac_config",
    "seedzero.config.vtrace": "seedzero.config.vtrace_config",
    "seedzero.envs.base": "seedzero.envs.env_base",
    "seedzero.evaluation.acting_policy": "seedzero.actors.acting_policy",
    "seedzero.evaluation.policy": "seedzero.actors.acting_policy",
    "seedzero.league.players": "seedzero.league.members",
    "seedzero.networks.inputs": "seedzero.networks.network_inputs",
    "seedzero.ops.returns": "seedzero.ops.nstep",
    "seedzero.replay.data": "seedzero.replay.sources",
    "seedzero.replay.frames": "seedzero.replay.frame_rows",
    "seedzero.replay.rings": "seedzero.replay.ring_store",
    "seedzero.replay.windows": "seedzero.replay.windowing",
}
"""Former name -> current name, for the modules that documents and examples mentioned."""


class _Loader(importlib.abc.Loader):
    def exec_module(self, module: types.ModuleType) -> None:
        new = MODULES[module.__name__]
        warnings.warn(f"{module.__name__} is now {new}; import that", DeprecationWarning, stacklevel=2)
        sys.modules[module.__name__] = importlib.import_module(new)  # the import takes it from there


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in MODULES:
            return importlib.machinery.ModuleSpec(fullname, _Loader())
        is_former_room = any(name.startswith(f"{fullname}.") for name in MODULES)  # found here only if it has gone
        return importlib.machinery.ModuleSpec(fullname, None, is_package=True) if is_former_room else None


def install() -> None:
    """Lets imports by the former names find the modules."""
    sys.meta_path.append(_Finder())
