"""Prints the shape of a checkout's code as a table: lines by room, functions, classes, names.

python experiments/code_table.py CHECKOUT...: one column for each. Generated files do not count.
"""

from __future__ import annotations

import ast
import collections
import pathlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence

FOLDERS = ("seedzero", "tests", "experiments", "examples")
"""Folders whose imports count."""
MOST_LINES, MOST_METHODS = 400, 16
"""Limits of a file and of a class."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def table(checkout: pathlib.Path) -> dict[str, int | float]:
    """Returns the rows of a checkout, label -> number."""
    files = dict(_files(checkout / "seedzero"))
    trees = {path: ast.parse(source) for path, source in files.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    sizes = sorted(node.end_lineno - node.lineno + 1 for node in nodes if isinstance(node, _FUNCTIONS))  # type: ignore[operator]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    lengths = {path: len(source.splitlines()) for path, source in files.items()}
    every = (ast.parse(source) for folder in FOLDERS for _, source in _files(checkout / folder))
    return {
        "lines": sum(lengths.values()),
        **_by_room(lengths, checkout / "seedzero"),
        "files": len(files),
        f"files over {MOST_LINES} lines": sum(length > MOST_LINES for length in lengths.values()),
        "functions": len(sizes),
        "function lines: median": statistics.median(sizes),
        "function lines: p90": sizes[9 * len(sizes) // 10],
        "function lines: max": sizes[-1],
        "classes": len(classes),
        f"classes over {MOST_METHODS} methods": sum(_num_methods(node) > MOST_METHODS for node in classes),
        "public class names that repeat": _num_repeated(list(trees.values())),
        "imports under a name that ends in _lib": sum(_num_lib(tree) for tree in every),
    }


def _files(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    for path in sorted(folder.rglob("*.py")):
        if "_pb2" not in path.name:
            yield path, path.read_text(encoding="utf-8")


def _by_room(lengths: Mapping[pathlib.Path, int], package: pathlib.Path) -> dict[str, int]:
    rooms: collections.Counter[str] = collections.Counter()
    for path, length in lengths.items():
        rooms["/".join(path.relative_to(package).parts[:-1][:1]) or "(top)"] += length
    return {f"lines: {room}": rooms[room] for room in sorted(rooms)}


def _num_methods(node: ast.ClassDef) -> int:
    return sum(isinstance(part, _FUNCTIONS) for part in node.body)


def _num_repeated(trees: Sequence[ast.Module]) -> int:
    """Returns the public names of several classes; Flax modules do not count."""
    nodes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    flax = [node for node in nodes if any(ast.unparse(base) == "nn.Module" for base in node.bases)]
    names = collections.Counter(node.name for node in nodes if node not in flax and not node.name.startswith("_"))
    return sum(count > 1 for count in names.values())


def _num_lib(tree: ast.Module) -> int:
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return sum((name.asname or name.name).endswith("_lib") for node in imports for name in node.names)


if __name__ == "__main__":
    columns = [table(pathlib.Path(name)) for name in sys.argv[1:]]
    for label in dict.fromkeys(label for column in columns for label in column):
        print(f"{label:40}", *(f"{column.get(label, 0):8g}" for column in columns))
