"""A name means one thing: public classes and the names of imported modules."""

import ast
import collections
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("seedzero", "tests", "experiments", "examples")
PUBLIC = {"seedzero/__init__.py"}
"""Files whose names are the package's own for users."""


def _files(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "_pb2" not in name:
                yield name, ast.parse(path.read_text())


def repeated_classes(files: Iterator[tuple[str, ast.Module]]) -> dict[str, list[str]]:
    """Returns the files of public class names that occur more than once; Flax modules may share a name."""
    found = collections.defaultdict(list)
    for file, tree in files:
        for node in tree.body:
            is_public = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
            if is_public and not any(ast.unparse(base) == "nn.Module" for base in node.bases):
                found[node.name].append(file)
    return {name: places for name, places in found.items() if len(places) > 1}


def aliases(files: Iterator[tuple[str, ast.Module]]) -> dict[str, set[str]]:
    """Returns the names under which each of the project's modules is imported."""
    found = collections.defaultdict(set)
    for file, tree in files:
        if file in PUBLIC:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "seedzero":
                for name in node.names:
                    found[f"{node.module}.{name.name}"].add(name.asname or name.name)
    return found


def test_a_public_class_name_occurs_once() -> None:
    assert repeated_classes(_files("seedzero")) == {}


def test_a_module_has_one_name_wherever_it_is_imported() -> None:
    found = aliases(_files(*FOLDERS))
    assert len(found) > 100
    assert {module: names for module, names in found.items() if len(names) > 1} == {}
    assert {module: names for module, names in found.items() if any(name.endswith("_lib") for name in names)} == {}


@pytest.mark.parametrize(
    ("sources", "classes", "names"),
    [
        (["class A: ...", "class A: ...", "class A(nn.Module): ..."], {"A": ["0", "1"]}, {}),
        (["class A(nn.Module): ...", "class A: ...", "class _B: ...", "class _B: ..."], {}, {}),
        (
            ["from seedzero.core import types", "def f():\n  from seedzero.core import types as core_types"],
            {},
            {"seedzero.core.types": {"types", "core_types"}},
        ),
    ],
)
def test_repeated_names_are_found(
    sources: list[str], classes: dict[str, list[str]], names: dict[str, set[str]]
) -> None:
    files = [(str(index), ast.parse(source)) for index, source in enumerate(sources)]
    assert repeated_classes(iter(files)) == classes
    assert aliases(iter(files)) == names
