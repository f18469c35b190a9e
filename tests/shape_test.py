"""Files and classes stay small enough to be read at once."""

import ast
import pathlib
import re

PACKAGE = pathlib.Path(__file__).parents[1] / "seedzero"
MOST_LINES = 800
MOST_METHODS = 16
MOST_LETTERS = 80


def _sources() -> dict[str, str]:
    files = (path for path in sorted(PACKAGE.rglob("*.py")) if "_pb2" not in path.name)
    return {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in files}


def num_methods(source: str) -> dict[str, int]:
    """Returns the methods of each class, properties among them."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return {found.name: sum(isinstance(node, kinds) for node in found.body) for found in classes}


def test_no_file_is_longer_than_a_few_screens() -> None:
    sizes = {file: len(source.splitlines()) for file, source in _sources().items()}
    assert len(sizes) > 100
    assert {file: size for file, size in sizes.items() if size > MOST_LINES} == {}


def test_no_class_has_more_methods_than_a_reader_keeps_in_mind() -> None:
    found = {(file, name): size for file, source in _sources().items() for name, size in num_methods(source).items()}
    assert {place: size for place, size in found.items() if size > MOST_METHODS} == {}


def test_methods_are_counted() -> None:
    source = "class A:\n  x = 1\n  def f(self): ...\n  @property\n  def g(self): ...\n  class B: ...\ndef h(): ..."
    assert num_methods(source) == {"A": 2, "B": 0}


def test_names_of_tests_fit_a_line() -> None:
    files = sorted(pathlib.Path(__file__).parent.rglob("*_test.py"))
    names = [name for file in files for name in re.findall(r"def (test_\w+)\(", file.read_text())]
    assert len(names) > 1000
    assert [name for name in names if len(name) > MOST_LETTERS] == []
