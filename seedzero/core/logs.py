"""The log of a program on standard error; whoever imports seedzero keeps the logging of their own."""

from __future__ import annotations

import logging


def show(prefix: str, verbosity: int) -> None:
    """Shows warnings of all packages, and messages of seedzero from a level of absl on, such as 0: information."""
    from absl import flags
    from absl import logging as absl_logging
    from absl.logging import converter

    flags.FLAGS.mark_as_parsed()  # absl's own; until then it warns that they are not

    handler = absl_logging.get_absl_handler()
    handler.setFormatter(logging.Formatter(f"{prefix}: %(message)s"))
    absl_logging.use_absl_handler()
    logging.getLogger("seedzero").setLevel(converter.absl_to_standard(verbosity))
