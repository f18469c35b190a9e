"""An agent's part of a preset."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from seedzero.config import options


@dataclasses.dataclass(frozen=True)
class Part:
    """Values by SECTION.KEY over the preset's shared ones; on_cpu: without accelerator."""

    values: Mapping[str, options.Value]
    on_cpu: Mapping[str, options.Value] = dataclasses.field(default_factory=dict)
