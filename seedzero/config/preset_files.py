"""Reads users' own presets: files with one --setting=value a line; lines that begin with # or // are comments."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple

from seedzero.config import configs, options, presets
from seedzero.core import errors


class PresetFile(NamedTuple):
    """The content of a file. Its settings count as the user's own, so a run directory keeps them."""

    preset: str  # the preset of the table that the file changes
    settings: dict[str, str]  # texts by SECTION.KEY


def is_file(preset: str) -> bool:
    """Returns whether --preset names a file: presets have neither dots nor slashes."""
    return "." in preset or "/" in preset


def read(path: str | os.PathLike[str]) -> PresetFile:
    """Returns the content of a file.

    Raises:
      ConfigError: with file and line, if a line is no setting, an unknown or repeated one, or has a wrong value.
    """
    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(("#", "//")):
            continue
        key, has_value, value = text.removeprefix("--").partition("=")
        key = configs.ALIASES.get(key, key)
        if not (text.startswith("--") and has_value):
            raise errors.ConfigError(f"{path}:{number}: {text!r}; expected --setting=value")
        if key in found:
            raise errors.ConfigError(f"{path}:{number}: --{key} is in line {lines[key]}, too; leave one out")
        found[key], lines[key] = value, number
    preset = found.pop("preset", "")
    if not preset:
        raise errors.ConfigError(f"{path}:1: --preset=NAME is missing, the preset that the file changes")
    try:
        agent = found.get("run.agent") or presets.agent_of(preset)
        values: dict[str, options.Value | str] = {**found}
        configs.override(presets.get(preset, agent), values)
        configs.check_read(found, agent)
    except errors.ConfigError as error:
        names = {name: (f"--{name}", configs.flag(name)) for name in lines}
        at = [line for name, line in lines.items() if any(flag in str(error) for flag in names[name])]
        raise errors.ConfigError(f"{path}:{(at or [lines.get(configs.ALIASES['agent'], 1)])[0]}: {error}") from None
    return PresetFile(preset, found)


def _text(path: str | os.PathLike[str]) -> str:
    try:
        content = pathlib.Path(path).read_bytes()
        return content.decode("utf-8-sig")  # editors on Windows put a mark at the beginning
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise errors.ConfigError(f"{path}:{line}: no text; expected lines of --setting=value") from None
    except OSError as error:
        raise errors.ConfigError(f"--preset={path}: {error.strerror}; expected a file, or a preset's name") from None
