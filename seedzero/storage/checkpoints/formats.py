"""The format of run directories: its number, the errors for other formats, and settings that this version lacks.

A learner writes the number into config.json when it starts, and into the manifest of each checkpoint. It covers all
files of a run directory: settings, spec, checkpoints with the replay's rows, metrics and recordings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import seedzero
from seedzero.config import configs, options
from seedzero.core import errors

FORMAT = 2
"""The number of the present format. Version 0.3 and later ones read it; another number is for another form."""
_BEFORE = 1
_MARK = "evaluation.policy"
"""The newest setting when runs began to write the number; of those without a number, the present format has it."""
_LAST_READER = "commit b0b85cab"
"""The last version that reads format 1."""


def check(content: Mapping[str, Any]) -> None:
    """Raises ConfigError if the content of config.json is that of another format than this version's."""
    found = content.get("format", FORMAT if _MARK in content["config"] else _BEFORE)
    if found != FORMAT:
        raise errors.ConfigError(explain(found, str(content.get("version", ""))))


def explain(found: object, version: str = "") -> str:
    """Says which version reads another format. version: the one that wrote it, if known."""
    if isinstance(found, int) and found < FORMAT:
        return (
            f"it has format {found}, this version reads format {FORMAT}; {_LAST_READER} reads it: evaluate or resume "
            "the run there, or train a new one"
        )
    return (
        f"it has format {found!r}, this is seedzero {seedzero.__version__}, which reads format {FORMAT}; take "
        f"{f'version {version}, which wrote it' if version else 'the later version that wrote it'}"
    )


def config(values: Mapping[str, options.Value]) -> configs.Config:
    """Returns the configuration in config.json, without importing a user's own agent, and without `unknown` settings.

    values: by SECTION.KEY. Raises ConfigError.
    """
    kind = configs.kind_of_saved(values)
    known = configs.fields(kind)
    return configs.override(kind(), {name: value for name, value in values.items() if name in known})


def unknown(values: Mapping[str, options.Value]) -> list[str]:
    """Returns the saved settings, with values, that this version lacks, because they were removed or are newer."""
    known = configs.fields(configs.kind_of_saved(values))
    return [f"--{name}={options.shown(value)}" for name, value in values.items() if name not in known]
