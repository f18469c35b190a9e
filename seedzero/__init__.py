"""Distributed reinforcement learning: thin environment workers, one accelerator host.

The command line uses `train`, `load`, `evaluate` and `export`. `connect` asks a policy server, `read_record` reads
recorded episodes, and `search` is the tree search alone. `errors` has every exception that these functions raise on
purpose. Nothing is imported before you use it.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

__all__ = [
    "Evaluation",
    "Policy",
    "Record",
    "RemotePolicy",
    "Result",
    "Thought",
    "connect",
    "errors",
    "evaluate",
    "export",
    "load",
    "make_env",
    "read_record",
    "search",
    "train",
]


if TYPE_CHECKING:
    from seedzero import search
    from seedzero.acting.actors.acting_policy import Policy
    from seedzero.acting.actors.remote_policy import RemotePolicy, connect
    from seedzero.acting.actors.search_traces import Thought
    from seedzero.acting.actors.single_env import make_env
    from seedzero.acting.tables.records import Record, read_record
    from seedzero.api.runs import Evaluation, evaluate, export, load
    from seedzero.api.training import train
    from seedzero.core import errors
    from seedzero.learner.endings import Result
else:
    _PLACES = {
        "Evaluation": "seedzero.api.runs",
        "Policy": "seedzero.acting.actors.acting_policy",
        "Record": "seedzero.acting.tables.records",
        "RemotePolicy": "seedzero.acting.actors.remote_policy",
        "Result": "seedzero.learner.endings",
        "Thought": "seedzero.acting.actors.search_traces",
        "connect": "seedzero.acting.actors.remote_policy",
        "errors": "seedzero.core.errors",
        "evaluate": "seedzero.api.runs",
        "export": "seedzero.api.runs",
        "load": "seedzero.api.runs",
        "make_env": "seedzero.acting.actors.single_env",
        "read_record": "seedzero.acting.tables.records",
        "search": "seedzero.search",
        "train": "seedzero.api.training",
    }
    """Public name -> its module, or the module that has it."""

    def __getattr__(name):
        if name not in _PLACES:
            raise AttributeError(f"module 'seedzero' has no attribute {name!r}")
        module = importlib.import_module(_PLACES[name])
        return module if _PLACES[name].endswith(f".{name}") else getattr(module, name)

    def __dir__():
        return sorted([*globals(), *_PLACES])
