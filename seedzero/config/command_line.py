"""Reads command lines with absl's flags: a flag for each field, `--flagfile`, `--noSWITCH`.

absl alone reads `--json false` as a switch and a word, and takes `--json` as the value of a flag before it; here both
mean what they look like. Values are kept as the texts that were given, because the command that resumes a run repeats
them.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from absl import flags

from seedzero.config import options
from seedzero.core import errors

Check = Callable[[str], object]
"""Raises ConfigError for a text that is not a value of the flag."""
_MARK = "\ufeff"
"""Begins files of some editors."""
_COMMENT = re.compile(rf"{_MARK}\s*((#|//).*)?")


class _Text(flags.ArgumentParser[str]):
    """Checks a text and leaves it unchanged."""

    def __init__(self, check: Check | None) -> None:
        self._check = check

    def parse(self, argument: str) -> str:
        if self._check:
            self._check(argument)
        return argument


def define(names: Mapping[str, Check | None], switches: Collection[str]) -> flags.FlagValues:
    """Returns the flags of a command line. names: each with its check, or None for any text."""
    values = flags.FlagValues()
    values.set_gnu_getopt()  # words may stand between flags
    for name, check in names.items():
        is_switch = name in switches
        flag = flags.Flag(_Text(check), None, name, None, None, boolean=is_switch, allow_using_method_names=True)
        flags.DEFINE_flag(flag, values)
    return values


def with_files(args: Sequence[str]) -> list[str]:
    """Replaces each --flagfile of a command line by the file's lines. Raises UsageError for a file without text."""
    if "--flagfile=" in args:
        raise errors.UsageError("--flagfile= is empty; expected a text file with one --flag=value on each line")
    try:
        found = flags.FlagValues().read_flags_from_files(list(args))
    except flags.Error as error:
        said = str(error).removeprefix("ERROR:: ")
        raise errors.UsageError(
            f"{said}; --flagfile=FILE takes a text file with one --flag=value on each line"
        ) from None
    except UnicodeDecodeError as error:
        raise errors.UsageError(
            f"a --flagfile is not a text file ({error}); expected one --flag=value on each line"
        ) from None
    if not any(word.startswith(_MARK) for word in found):
        return found
    # What follows the mark may be a comment, or name another file.
    bare = [word.removeprefix(_MARK) for word in found if not _COMMENT.fullmatch(word)]
    return with_files(bare)


def read(
    values: flags.FlagValues, args: Sequence[str], unknown: Callable[[str], str], aliases: Mapping[str, str] = {}
) -> tuple[list[str], dict[str, str]]:
    """Returns the words, and each given flag's text by name.

    If a flag has several texts, the last one counts, and its place gives the order.

    unknown: returns how the message about an unknown flag continues. aliases: other names of flags.

    Raises:
      UsageError: an unknown flag, or a missing value.
      ConfigError: of a flag's check.
    """
    joined = list(_joined(args, values, unknown, aliases))
    words = values(["seedzero", *joined])[1:]
    given: dict[str, str] = {}
    for name in (arg.removeprefix("--").partition("=")[0] for arg in joined if arg.startswith("--")):
        given.pop(name, None)
        given[name] = str(values[name].value)
    return words, given


def _joined(
    args: Sequence[str], values: flags.FlagValues, unknown: Callable[[str], str], aliases: Mapping[str, str]
) -> Iterator[str]:
    """Yields words, and each flag as --NAME=VALUE."""
    rest = collections.deque(args)
    while rest:
        arg = rest.popleft()
        key, has_value, value = arg.removeprefix("--").partition("=")
        name, positive = (aliases.get(each, each) for each in (key, key.removeprefix("no")))
        if not arg.startswith("-"):
            yield arg
        elif name in values and has_value:
            yield f"--{name}={value}"
        elif name in values and values[name].boolean:
            is_next = bool(rest) and rest[0].lower() in options.BOOLEANS
            yield f"--{name}={rest.popleft() if is_next else 'true'}"
        elif name in values:
            if not rest or rest[0].startswith("--"):
                raise errors.UsageError(f"--{key} has no value; write --{key}=VALUE")
            yield f"--{name}={rest.popleft()}"
        elif positive in values and values[positive].boolean and not has_value:
            yield f"--{positive}=false"
        else:
            raise errors.UsageError(f"unknown setting {arg}{unknown(key)}")
