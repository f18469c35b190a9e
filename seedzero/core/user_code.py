"""Loads functions of a user's own modules, which settings name as MODULE:FUNCTION."""

from __future__ import annotations

import ast
import contextlib
import contextvars
import difflib
import functools
import importlib
import inspect
import os
import pathlib
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from importlib import machinery
from typing import Any

from seedzero.core import errors, opponents

AGENT = "run.agent"
ENVIRONMENT = "env.id"
NETWORKS = ("network.module", "ppo.bonus")
"""Settings that may name a user's code."""
BUILDER = "league.builder"
MEMBERS = "league.members"
OPPONENTS = "env.opponents"
"""Settings that may name programs to start."""
ARGUMENTS = {ENVIRONMENT: "env.kwargs", BUILDER: "league.builder_args"}
"""Settings that hold the arguments for the function that another setting names."""

serves: contextvars.ContextVar[bool] = contextvars.ContextVar("serves", default=False)
"""True where a user's module is imported for a training; always in processes made for environments."""


_MOST_NAMED = 8
"""The most names of a module that a message lists."""
_SCRIPT = "__main__"
"""The module of the started program, which is a different one in every process."""


def importable(module: str) -> str:
    """Returns a module's name in other processes; for the started script that is its file's name, if it has one."""
    path = getattr(sys.modules.get(_SCRIPT), "__file__", None) or ""
    name, ending = os.path.splitext(os.path.basename(path))
    is_script = module == _SCRIPT and ending == ".py" and name.isidentifier() and name != _SCRIPT
    return name if is_script else module


def named_by(function: object) -> str:
    """Returns MODULE:FUNCTION of a function or class as other processes import it, or "" if no name leads to it."""
    module, name = importable(str(getattr(function, "__module__", ""))), str(getattr(function, "__qualname__", ""))
    return f"{module}:{name}" if module not in ("", _SCRIPT) and name.isidentifier() else ""


def not_a_script(name: str) -> str:
    """Explains why `__main__` is refused as a module, and what to do instead."""
    module = importable(_SCRIPT)
    module = "my_module" if module == _SCRIPT else module
    return (
        f"__main__ is another module in every process, and workers are processes of their own; name the file that has "
        f"it, {module}:{name} for {module}.py, and start in the file's directory"
    )


def check(name: str) -> None:
    """Raises ConfigError unless the name has the form MODULE:FUNCTION; Python's own modules are refused.

    This catches mistakes and is not protection: workers call what their learner names, with its arguments.
    """
    module, _, function = name.partition(":")
    if module == _SCRIPT:
        raise errors.ConfigError(f"{name!r}: {not_a_script(function or 'make')}")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise errors.ConfigError(f"{name!r}: module {module!r} is Python's own; expected one with your own function")
    if not all(word.isidentifier() for word in [*module.split("."), function]):
        raise errors.ConfigError(f"{name!r} is not complete; expected MODULE:FUNCTION, as in my_module:make")


def module_of(env_id: str) -> str:
    """Returns the module that an id names, as python:MODULE:FUNCTION does, or "" if it names no module."""
    kind, _, rest = env_id.partition(":")
    if kind == "pettingzoo":  # the program's own modules have names, too
        return rest.partition(":")[0]
    name = rest.partition("(")[0] if kind in ("spiel", "pgx") else rest  # a game's parameters may have colons
    return name.rpartition(":")[0] if kind in ("gym", "python", "spiel", "pgx") else ""


def named(values: Mapping[str, object]) -> dict[str, str]:
    """Returns which settings name modules to import, or programs to start, among values by SECTION.KEY."""
    env_id = str(values.get(ENVIRONMENT, ""))
    is_module = env_id.startswith("python:") or bool(module_of(env_id))
    others = (name for name in (BUILDER, AGENT) if ":" in str(values.get(name, "")))
    of_members = [MEMBERS] if _of_members(str(values.get(MEMBERS, ""))) else []
    of_programs = [OPPONENTS] if opponents.ENGINE in str(values.get(OPPONENTS, "")) else []
    names = (*NETWORKS, *([ENVIRONMENT] if is_module else []), *others, *of_members, *of_programs)
    return {name: str(values[name]) for name in names if values.get(name)}


def modules(values: Mapping[str, object]) -> set[str]:
    """Returns the dotted names of the modules that the settings in `named` import."""
    found = {name: value for name, value in named(values).items() if name not in (MEMBERS, OPPONENTS)}
    one = {module_of(value) if name == ENVIRONMENT else value.rpartition(":")[0] for name, value in found.items()}
    return one | _of_members(str(values.get(MEMBERS, "")))


def _of_members(text: str) -> set[str]:
    """Returns the modules of a league's scripted members; none if the text makes no sense."""
    try:
        names = opponents.parse_members(text)
    except ValueError:
        return set()
    return {name.rpartition(":")[0] for name in names if opponents.is_of_user(name)}


def moved(before: Mapping[str, object], now: Mapping[str, str]) -> dict[str, str]:
    """Returns new values of settings whose objects are in a moved module, which Python no longer finds.

    before: saved values by SECTION.KEY. now: the user's texts by SECTION.KEY. Imports nothing.
    """
    found = {}
    for name, value in named(before).items():
        if name in (MEMBERS, OPPONENTS):
            continue  # it may name several modules, or none
        (old,), (new,) = (modules({name: each}) or {""} for each in (value, now.get(name, "")))
        if old and new and old != new and value.replace(f"{old}:", f"{new}:", 1) == now[name] and not _is_here(old):
            found[name] = now[name]
    return found


def _is_here(module: str) -> bool:
    """Returns whether Python finds a module; in a package, by the names of the package's files."""
    outermost, *below = module.split(".")
    paths = [os.path.join(place, *below) for place in files(outermost)]
    return any(os.path.exists(path + ending) for path in paths for ending in ("", *machinery.all_suffixes()))


def files(module: str) -> list[str]:
    """Returns the file and folders that Python finds here for a module's outermost package, with links resolved.

    Imports nothing. The current directory comes first, as for workers. Empty if there is no such module.
    """
    outermost, path = module.partition(".")[0], [os.getcwd(), *sys.path]
    for finder in sys.meta_path:
        if (find := getattr(finder, "find_spec", None)) is None:
            continue
        spec = find(outermost, path if finder is machinery.PathFinder else None)
        if spec is not None:
            found = [spec.origin, *(spec.submodule_search_locations or ())]  # twice if the path has a folder twice
            return list(dict.fromkeys(os.path.realpath(file) for file in found if file))
    return []


def lies_in(module: str, directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory may have the module, or anything that the module imports."""
    outer = pathlib.Path(os.path.realpath(directory))
    below, found = module.split(".")[1:], files(module)
    places = [os.getcwd(), *filter(None, sys.path), *found, *(os.path.join(file, *below) for file in found)]
    return any(pathlib.Path(os.path.realpath(place)).is_relative_to(outer) for place in places)


def check_may_train() -> None:
    """Raises ConfigError for a user's imported module that would start a training."""
    if serves.get():
        raise errors.ConfigError(
            "it calls seedzero.train when it is imported, which would import it again, and so on; put that call below "
            '`if __name__ == "__main__":`, which is true only in the script that you start'
        )


def find(name: str) -> Any:
    """Imports the module of MODULE:OBJECT and returns the object, or None if the module does not have it.

    Raises ConfigError if there is no such module, or it would start a training.
    """
    module_name, _, object_name = name.partition(":")
    add_current_directory()
    before = serves.set(True)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name and module_name.startswith(error.name):
            raise errors.ConfigError(f"{name!r}: {no_module(error.name)}") from None
        raise errors.ConfigError(f"{name!r}: module {module_name!r} cannot be imported: {error}") from error
    except errors.ConfigError as error:  # of `check_may_train`
        raise errors.ConfigError(f"{name!r}: {error}") from None
    finally:
        serves.reset(before)
    return getattr(module, object_name, None)


def load(name: str) -> Callable[..., Any]:
    """Imports the module of MODULE:FUNCTION, also from the current directory, and returns the function.

    Raises ConfigError if the name is incomplete, there is no such module or function, or the module would start a
    training.
    """
    check(name)
    function: Callable[..., Any] | None = find(name)
    if not callable(function):
        raise errors.ConfigError(f"{name!r}: {missing(name, 'function')}")
    return function


def missing(name: str, kind: str) -> str:
    """Says what MODULE:OBJECT lacks in an imported module, with similar names, or all."""
    module, _, wanted = name.partition(":")
    found = {key: value for key, value in vars(sys.modules[module]).items() if key[0] != "_" and key != wanted}
    near = difflib.get_close_matches(wanted, found, n=1)
    own = [key for key, value in found.items() if getattr(value, "__module__", None) == module][:_MOST_NAMED]
    hint = f"; did you mean {module}:{near[0]}?" if near else f"; it has {', '.join(own)}" if own else ""
    return f"module {module!r} has no {kind} {wanted!r}{hint}"


def call(function: Callable[..., Any], *args: Any, seconds: float, what: str, module: str = "") -> Any:
    """Calls a user's function in a separate thread and returns its result.

    Raises BuilderError, with file and line, if the function raises an error or takes longer than `seconds`, after
    which it is abandoned. what: the setting that names the function, for messages. module: if given, an error is a
    ConfigError with its place there; seedzero's own errors are not changed.
    """
    kind, remedy = (errors.ConfigError, "fix it") if module else (errors.BuilderError, "fix it, and resume the run")
    found: futures.Future[Any] = futures.Future()

    def work() -> None:
        try:
            found.set_result(function(*args))
        except BaseException as error:  # also SystemExit, which would end only the thread
            found.set_exception(error)

    thread = threading.Thread(target=work, name="user code", daemon=True)
    thread.start()
    if not futures.wait([found], seconds).done:
        frame = sys._current_frames().get(thread.ident or 0)
        place = place_of(function, traceback.extract_stack(frame) if frame else (), module)
        raise kind(f"{what} has not returned after {seconds:g} s, at {place}; {remedy}")
    if (error := found.exception()) is not None:
        if module and isinstance(error, errors.Error):
            raise error
        raise kind(raised(what, error, function, module, remedy)) from error
    return found.result()


def raised(
    what: str, error: BaseException, function: Callable[..., Any], module: str = "", remedy: str = "fix it"
) -> str:
    """Describes an error that a user's function has raised, with file and line."""
    place = place_of(function, traceback.extract_tb(error.__traceback__), module)
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
    return f"{what} raised {type(error).__name__}: {error}, at {place}; {remedy}"


def telling(
    function: Callable[..., Any], what: str, *, at: Callable[..., Any] | None = None, module: str = ""
) -> Callable[..., Any]:
    """Wraps a function so that errors while it is called or traced become ConfigErrors with file and line.

    what, module: as in `call`. at: the user's function, where `function` only calls it.
    """

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        try:
            return function(*args)
        except errors.Error:
            raise
        except Exception as error:
            raise errors.ConfigError(raised(what, error, at or function, module)) from error

    return run


def place_of(function: Callable[..., Any], frames: Sequence[traceback.FrameSummary] = (), module: str = "") -> str:
    """Returns FILE:LINE of the innermost frame in a function's file, or of the function itself.

    module: frames in the files of its outermost package come first.
    """
    code = getattr(inspect.unwrap(function), "__code__", None) or getattr(type(function).__call__, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code else ("an unknown file", 0)
    found = files(module) if module else []
    of_module = [frame for frame in frames if any(os.path.realpath(frame.filename).startswith(each) for each in found)]
    inside = of_module or [frame for frame in frames if frame.filename == file]
    return f"{inside[-1].filename if inside else file}:{inside[-1].lineno if inside else line}"


def line_of(name: str) -> str:
    """Returns FILE:LINE of the last definition of MODULE:OBJECT in an imported module."""
    module, _, wanted = name.partition(":")
    file, line = getattr(sys.modules[module], "__file__", None) or module, 1
    with contextlib.suppress(OSError, SyntaxError):
        for node in ast.parse(pathlib.Path(file).read_text(encoding="utf-8")).body:
            targets = [getattr(node, "target", None), *getattr(node, "targets", [])]
            if wanted in (getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)):
                line = node.lineno
    return f"{file}:{line}"


def add_current_directory() -> None:
    """Lets imports find modules in the current directory, which a console command's path lacks, unlike `python -m`.

    Raises ConfigError if that directory was deleted.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:
        gone = "the current directory, where your module may be, was deleted; start again in another directory"
        raise errors.ConfigError(gone) from None
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def no_module(name: str) -> str:
    """Describes what is missing, and what to do."""
    return (
        f"there is no module {name!r} in {os.getcwd()} or among the installed packages; "
        f"{'leave out .py, ' * name.endswith('.py')}start in the module's directory, or install it"
    )
