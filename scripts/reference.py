"""Writes the generated parts of the documents: tables of settings, and the functions of the Python API.

`.venv/bin/python scripts/reference.py` writes all of them; `--check` changes nothing, and exits with 1 if a part is
old. A part lies between `<!-- NAME -->` and `<!-- end -->`; the text around it is yours.

`--messages` prints what users read instead, for a review of the wording: the texts that are raised, reported or held
by a rule between settings, with their place and their letters. A placeholder counts as its two braces.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import pathlib
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import seedzero
from seedzero.config import configs, options
from seedzero.core import errors
from seedzero.core import types as core_types

ROOT = pathlib.Path(__file__).parents[1]
WIDTH = 100
SHARED = ("network", "optimizer", "reward", "search", "seats")
"""Sections whose defaults each agent has for itself; its page lists them as flags."""
MARKS = {"no": "*", "on resume": "", "any time": "+"}
"""May a setting change? -> its sign in the tables, as docs/settings.md explains it."""
SEEDZERO = (seedzero, seedzero.search)
"""What users import names from."""
PART = re.compile(r"^<!-- (?P<name>(?:settings|:::) \S+) -->\n.*?^<!-- end -->$", re.DOTALL | re.MULTILINE)


def written(text: str) -> str:
    """Returns a document with all its generated parts as they should be."""
    makers: dict[str, Callable[[str], str]] = {"settings": settings, ":::": function}

    def part(found: re.Match[str]) -> str:
        kind, _, name = found["name"].partition(" ")
        gap = "\n\n" if kind == "settings" else "\n"  # the site renders these tables, and replaces the other parts
        return gap.join([f"<!-- {found['name']} -->", makers[kind](name), "<!-- end -->"])

    return PART.sub(part, text)


def settings(name: str) -> str:
    """Returns the settings of a section that all agents have, or of an agent: its own and those with its defaults.

    The advanced ones of a section follow its table as flags. "shared": what the settings mean of which each agent has
    defaults for itself.
    """
    config = configs.of_agent(name) if name in configs.agent_names() else configs.Config()
    if name == "shared":
        rows = [_row(setting, config) for setting in _shared() if not _is_advanced(setting)]
        return "\n".join(["| setting | range | meaning |", "|---|---|---|", *rows])
    if name not in configs.agent_names():
        return section(name, config)
    others = [part for part in config.agent.SECTIONS if part not in ("league", *SHARED)]
    parts = [f"### `{part}`\n\n{section(part, config)}" for part in dict.fromkeys([name, *others])]
    return "\n\n".join([*parts, f"### Shared settings\n\n{defaults(config)}"])


def section(name: str, config: configs.Config) -> str:
    """Returns a table of the settings of a section that the agent reads, and its advanced ones as flags."""
    found = [setting for setting in configs.fields() if _section(setting) == name and configs.is_read(setting, config)]
    rows = [_row(setting, config) for setting in found if not _is_advanced(setting)]
    head = ["| setting | default | range | meaning |", "|---|---|---|---|"]
    table = "\n".join([*head, *rows]) if rows else ""
    advanced = _block(textwrap.wrap(" ".join(_flags(filter(_is_advanced, found), config)), WIDTH))
    return "\n\n".join(filter(None, [table, advanced]))


def defaults(config: configs.Config) -> str:
    """Returns an agent's values of the settings that agents share, as flags; comments have the agent's own choices."""
    names = [name for name in _shared() if configs.is_read(name, config)]
    choices = [", ".join(config.agent.CHOICES.get(name, ())) for name in names]
    rows = zip(_flags(names, config), choices, strict=True)
    return _block([f"{flag:<40}# {own}" if own else flag for flag, own in rows])


def _flags(names: Iterable[str], config: configs.Config) -> list[str]:
    values = configs.flatten(config)
    return [f"{configs.flag(name)}={options.shown(values[name]) if values[name] != '' else ''}" for name in names]


def _block(lines: Sequence[str]) -> str:
    return "\n".join(["```", *lines, "```"]) if lines else ""


def _shared() -> list[str]:
    return sorted(
        (name for name in configs.fields() if _section(name) in SHARED), key=lambda name: SHARED.index(_section(name))
    )


def _section(name: str) -> str:
    return name.partition(".")[0]


def _is_advanced(name: str) -> bool:
    return configs.mark(name) == options.ADVANCED


def _row(name: str, config: configs.Config) -> str:
    metadata, value = configs.fields()[name].metadata, configs.flatten(config)[name]
    shown = "" if value == "" else f"`{options.shown(value)}`"
    mark = MARKS[metadata["resumable"] or "no"]
    choices = config.agent.CHOICES.get(name, ()) if _section(name) not in SHARED else ()
    limits = _range(value, choices or metadata["choices"], metadata["low"], metadata["high"])
    if _section(name) in SHARED:
        cells = [" ".join(filter(None, [limits, mark])), metadata["help"]]
    else:
        cells = [" ".join(filter(None, [shown, metadata["unit"], mark])), limits, metadata["help"]]
    cells = list(map(_cell, cells))
    if configs.mark(name) == options.START:
        cells[0] = f"{cells[0]} **{options.START}**".strip()
    return f"| `{configs.flag(name)}` | {' | '.join(cells)} |"


def _range(value: options.Value, choices: tuple[str, ...], low: float, high: float) -> str:
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    if isinstance(value, bool | str):
        return ""  # the default shows that it is a switch or a text
    if high in (math.inf, options.LARGEST_FLOAT, options.LARGEST, options.LARGEST_COUNT):
        return "any number" if low <= -options.LARGEST_FLOAT else f"at least {_number(low)}" if low else ""
    return f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:g}"


def _cell(text: str) -> str:
    """Returns text for a cell of Markdown: outside code, signs that would be read as markup are escaped."""
    parts = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else re.sub(r"([*<])", r"\\\1", part) for part in parts)


def function(path: str) -> str:
    """Returns signature and first paragraph of a function or class; of a module its classes, or its tree of errors."""
    found = _find(path)
    if not inspect.ismodule(found):
        return _entry(_public(path), found)
    if found is errors:
        tree = _doc(found).split("\n\n")[1]
        return f"```\n{textwrap.dedent(tree)}\n```"
    members = [member for member in vars(found).values() if inspect.isclass(member) and member.__module__ == path]
    names = [_name(member) or f"{path}.{member.__name__}" for member in members]
    if any(map(_name, members)):  # a part of the package for users: without what that does not offer
        members, names = zip(*[pair for pair in zip(members, names, strict=True) if _name(pair[0])], strict=True)
    rows = [
        f"| `{name}` | {_fields(member)} | {_cell(_first(member))} |"
        for name, member in zip(names, members, strict=True)
    ]
    return "\n".join(["| class | fields | meaning |", "|---|---|---|", *rows])


def _fields(kind: type) -> str:
    return ", ".join(f"`{name}`" for name in inspect.signature(kind).parameters)


def _find(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _public(path: str) -> str:
    """Returns the name under which a user imports a function of the package."""
    return _name(_find(path)) or path


def _name(found: Any) -> str:
    """Returns the name of an object, or of a class that extends it, in `seedzero` or `seedzero.search`; "": none."""
    public = {f"{module.__name__}.{name}": getattr(module, name) for module in SEEDZERO for name in module.__all__}
    same = [name for name, value in public.items() if value is found]
    if not same and inspect.isclass(found) and found.__module__.startswith("seedzero."):
        same = [name for name, value in public.items() if inspect.isclass(value) and found in value.__mro__]
    return same[0] if same else ""


def _entry(name: str, found: Any) -> str:
    lines = [f"```text\n{_signature(name, found)}\n```"]
    if first := _first(found):
        lines.append(textwrap.fill(first, WIDTH, break_long_words=False, break_on_hyphens=False))
    if methods := list(_methods(found)):
        lines.append("\n".join(["| method | meaning |", "|---|---|", *methods]))
    return "\n\n".join(lines)


def _signature(name: str, found: Any) -> str:
    """Returns a signature: a line, or as many parameters in each line as fit."""
    if getattr(found, "_is_protocol", False):
        return f"class {name}"
    parameters, result = _parameters(found)
    lines = [""]
    if len(f"{name}({', '.join(parameters)}){result}") <= WIDTH:
        return f"{name}({', '.join(parameters)}){result}"
    for parameter in parameters:
        if len(lines[-1]) + len(parameter) > WIDTH - 6:
            lines.append("")
        lines[-1] += f"{parameter}, "
    return f"{name}(\n" + "".join(f"    {line.rstrip()}\n" for line in lines) + f"){result}"


def _parameters(found: Any) -> tuple[list[str], str]:
    signature = inspect.signature(found)
    names: list[str] = []
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and kind not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            names.append("*")
        kind = parameter.kind
        names.append(_plain(parameter, vars(sys.modules[found.__module__])))
    result = signature.return_annotation
    if inspect.isclass(found) or result is signature.empty:
        return names, ""
    return names, f" -> {_type(result, vars(sys.modules[found.__module__]))}"


def _type(text: str, known: Mapping[str, Any]) -> str:
    """Returns an annotation by the names that users import, with what an alias of its module stands for."""

    def word(found: re.Match[str]) -> str:
        first, *rest = found[0].split(".")
        value = known.get(first)
        for name in rest:
            value = getattr(value, name, None)
        if value is None and (last := found[0].rpartition(".")[2]) in seedzero.__all__:
            return f"seedzero.{last}"  # imported for type checkers only
        if _name(value) or typing.get_origin(value) is None:
            return _name(value) or found[0]
        is_union = typing.get_origin(value) in (typing.Union, types.UnionType)
        parts = typing.get_args(value) if is_union else (value,)
        return re.sub(r"\b(?:typing|collections\.abc)\.", "", " | ".join(map(inspect.formatannotation, parts)))

    return re.sub(r"(?<!['\w])[A-Za-z_][\w.]*(?!['\w])", word, text)


def _plain(parameter: inspect.Parameter, known: Mapping[str, Any] = types.MappingProxyType({})) -> str:
    """Returns a parameter with its annotation, by the names of `known`, the annotation's module."""
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = parameter.annotation
    text = star + parameter.name
    if annotation is not parameter.empty:
        written = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
        text += f": {_type(written, known) if isinstance(written, str) else inspect.formatannotation(written)}"
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {parameter.default!r}" if annotation is not parameter.empty else f"{text}={parameter.default!r}"


def _methods(found: Any) -> Iterator[str]:
    """Yields a row for each public method and property of a class, in the order of the source."""
    if not inspect.isclass(found):
        return
    for name, member in vars(found).items():
        is_property = isinstance(member, property)
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name[0] == "_" or found is core_types.EnvSpec or not (is_property or inspect.isfunction(plain)):
            continue  # the methods of a spec are for seedzero itself
        first = re.split(r"(?<=[.;])\s", _first(member), maxsplit=1)[0].rstrip(";")
        shown = name if is_property else f"{name}({', '.join(_arguments(plain))})"
        yield f"| `{shown}` | {_cell(first)} |"


def _arguments(method: Any) -> Iterator[str]:
    """Yields the arguments of a method without their types; what has a default is named with it."""
    for parameter in list(inspect.signature(method).parameters.values())[1:]:
        yield _plain(parameter.replace(annotation=parameter.empty))


def _doc(found: Any) -> str:
    return inspect.cleandoc(found.__doc__ or "")


def _first(found: Any) -> str:
    """Returns the first paragraph of a docstring as a line."""
    first = " ".join(_doc(found).partition("\n\n")[0].split())
    is_made = inspect.isclass(found) and first.startswith(f"{found.__name__}(")  # by dataclasses
    return "" if is_made else first


TOLD = re.compile(
    r"errors\.\w+|(?:.*\.)?(?:_?say|_say_once|_?report|message|info|warn|warning|error|failure|leave_at_once|note|_several)"
    r"|(?:notes|problems|losses|warned|noted|wrong)\.append"
)
"""Functions that get a text of an error, for the console, for the log or for a rule between settings."""


class Message(NamedTuple):
    """A text that users read.

    Attributes:
      place: the file below seedzero/ and the function around it, as `learner/loop/rosters.py Roster.assign`.
      line: its line.
      text: with placeholders as in the source, as {name}.
    """

    place: str
    line: int
    text: str

    @property
    def num_letters(self) -> int:
        """Its letters; a placeholder has two, its braces."""
        return len(re.sub(r"\{[^{}]*\}", "{}", self.text))


def messages() -> list[Message]:
    """Returns what the sources raise and report, in the order of files and lines."""
    package = ROOT / "seedzero"
    found: list[Message] = []
    for path in sorted(package.rglob("*.py")):
        if "_pb2" not in path.name:
            file = path.relative_to(package).as_posix()
            found += messages_of(file, ast.parse(path.read_text(encoding="utf-8")))
    return found


def messages_of(file: str, tree: ast.Module) -> Iterator[Message]:
    """Yields the messages of a module."""

    def visit(node: ast.AST, names: tuple[str, ...], values: dict[str, list[ast.expr]]) -> Iterator[Message]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names, values = (*names, node.name), _assigned(node)
        if isinstance(node, ast.Call) and (node in raised or TOLD.fullmatch(ast.unparse(node.func))):
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                for text in _texts(argument, values):
                    if " " in text.strip():
                        yield Message(f"{file} {'.'.join(names)}".strip(), argument.lineno, text)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, names, values)

    raised = {node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)}
    yield from sorted(visit(tree, (), {}), key=lambda message: message.line)


def _assigned(function: ast.AST) -> dict[str, list[ast.expr]]:
    """Returns what a function's names are assigned."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return found


def _texts(node: ast.expr, values: dict[str, list[ast.expr]]) -> list[str]:
    """Returns the texts that an expression may be, as far as the source shows; []: it is none."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else _placeholder(part) for part in node.values)
        return ["".join(map(str, parts))]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, values) + _texts(node.orelse, values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_texts(side, values) or [f"{{{ast.unparse(side)}}}"] for side in (node.left, node.right)]
        return [left + right for left in sides[0] for right in sides[1]]
    if isinstance(node, ast.Name):
        rest = {name: value for name, value in values.items() if name != node.id}
        return [text for value in values.get(node.id, ()) for text in _texts(value, rest)]
    return []


def _placeholder(part: ast.expr) -> str:
    """Returns the expression of an f-string in braces, without its own."""
    assert isinstance(part, ast.FormattedValue)
    return "{" + re.sub(r"[{}]", "", ast.unparse(part.value)) + "}"


def documents() -> dict[pathlib.Path, str]:
    """Returns the documents with generated parts, and their texts as they should be."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))}
    return {path: written(text) for path, text in texts.items() if PART.search(text)}


def main() -> int:
    if "--messages" in sys.argv:
        for found in messages():
            print(f"{found.place}:{found.line} ({found.num_letters})\n    {found.text}")
        return 0
    old = {path: text for path, text in documents().items() if path.read_text(encoding="utf-8") != text}
    for path, text in old.items():
        if "--check" in sys.argv:
            print(f"old: {path.relative_to(ROOT)}")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return int(bool(old) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
