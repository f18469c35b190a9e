"""Checks the installed packages against seedzero's requirements, which another installation may have broken."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata

from seedzero.core import packages

_COMPARE: Mapping[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def explain(error: ImportError) -> str | None:
    """Explains a failed import, and what to do, if installed packages are outside seedzero's bounds."""
    try:
        required = metadata.requires("seedzero") or []
    except metadata.PackageNotFoundError:  # a clone that nobody installed
        return None
    wrong = misfits(required, _version)
    if not wrong:
        return None
    found = ", ".join(f"{name} {version or 'is missing'} (needed: {bounds})" for name, version, bounds in wrong)
    command = packages.install_command(*(f"{name}{bounds}" for name, _, bounds in wrong))
    return (
        f"installed packages are not those that seedzero needs: {found}; another package may have changed them "
        f"({error}). Give each a virtual environment of its own, or install them again: {command}"
    )


def misfits(required: Iterable[str], version_of: Callable[[str], str | None]) -> list[tuple[str, str | None, str]]:
    """Returns (name, installed version or None, bounds) of each requirement that is not met.

    required: as in a wheel's metadata. Extras are ignored, and so are bounds that are no comparisons.
    """
    found = {}
    for requirement in required:
        match = re.match(r"([\w.-]+)\s*(?:\[.*?\])?\s*\(?([^;)]*)\)?\s*(;.*)?$", requirement)
        if match is None or match[3]:
            continue
        name, bounds = match[1], match[2].strip()
        version = version_of(name)
        if version is None or not _meets(version, bounds):
            found[name] = (name, version, bounds)
    return list(found.values())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _meets(version: str, bounds: str) -> bool:
    parts = re.findall(r"(>=|<=|==|!=|>|<)\s*([\d.]+)", bounds)
    return all(_COMPARE[sign](*_padded(version, bound)) for sign, bound in parts)


def _padded(*versions: str) -> list[tuple[int, ...]]:
    """Returns the leading numbers of versions, filled with zeros to one length."""
    numbers = [[int(part) for part in re.match(r"[\d.]*", text)[0].split(".") if part] for text in versions]  # type: ignore[index]
    return list(zip(*itertools.zip_longest(*numbers, fillvalue=0), strict=True))
