"""Configures the log of a program on standard error. Importing seedzero changes nobody's logging."""

from __future__ import annotations

import logging


def show(prefix: str, verbosity: int) -> None:
    """Shows warnings of all packages, and messages of seedzero from one of absl's levels up (0: information)."""
    from absl import flags
    from absl import logging as absl_logging
    from absl.logging import converter

    flags.FLAGS.mark_as_parsed()  # absl's own handlers; until then it warns that they are missing

    handler = absl_logging.get_absl_handler()
    handler.setFormatter(logging.Formatter(f"{prefix}: %(message)s"))
    absl_logging.use_absl_handler()
    logging.getLogger("seedzero").setLevel(converter.absl_to_standard(verbosity))
