"""Loading the application of a program: `app.py:app`, as commands do."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from typing import Any

import tidegate
from tidegate.application.application import Application
from tidegate.application.options import PROGRAM
from tidegate.application.program import let_workers_import, loading
from tidegate.contracts.errors import TidegateError, UserError

_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):[A-Za-z_]\w*")

_CALLED = re.compile(r"([\w.]+)\(\) (?:takes|missing|got)")
"""The beginning of Python's own message about the arguments of a call."""


def is_program(target: Path) -> bool:
    """Return whether the target is a program with or without the name of an application, not a YAML file."""
    return _split(target)[0].suffix == ".py"


def load_application(target: Path) -> Application:
    """Return the application that the target names: `FILE.py:NAME`, or `MODULE:NAME` in the working directory.

    Raise UserError if the file cannot be read or fails, or has no application of that name.
    """
    file, name = _split(target)
    if not file.is_file():
        raise UserError("there is no such program", value=file, remedy="name a program, such as app.py:app")
    if _names_module(target):
        let_workers_import(Path.cwd())
    defined = _run(file)
    found = defined.get(name)
    if isinstance(found, Application):
        return found
    problem = "the target names no application" if not name else f"the program has no application {name}"
    names = [other for other, value in defined.items() if isinstance(value, Application)]
    remedy = f"write {file}:{names[0]}" if names else "define app = tg.Application(...) at the top level of the program"
    raise UserError(problem, value=target if found is None else f"{name} = {found!r}", remedy=remedy)


def _split(target: Path) -> tuple[Path, str]:
    """Return the file of the program, and the name of the application in it, which may be left out."""
    if target.suffix == ".py":
        return target, ""
    place, _, name = str(target).rpartition(":")
    return _file_of(place) if _names_module(target) else Path(place), name


def _file_of(module: str) -> Path:
    folder = Path(*module.split("."))
    package = folder / "__init__.py"
    return package if package.is_file() else folder.with_name(f"{folder.name}.py")


def _names_module(target: Path) -> bool:
    """Return whether the target is `MODULE:NAME`, not the name of a file or of something in a file."""
    module = _MODULE.fullmatch(str(target))
    return (
        module is not None and not module[1].endswith(".py") and not Path(module[1]).is_file() and not target.exists()
    )


def _run(file: Path) -> dict[str, Any]:
    """Run the program as a module and return what it defines. Raise its errors as UserError, with the line."""
    let_workers_import(file.resolve().parent)
    path = str(file.absolute())  # so that the program's places stay valid if it changes the working directory
    with loading(), _apart_from_the_command(path):
        try:
            return runpy.run_path(path, run_name=PROGRAM)
        except TidegateError:
            raise
        except (Exception, SystemExit) as error:
            remedy = _signature(error) or f"run `python {file}` to see the whole error"
            problem = f"the program failed: {type(error).__name__}: {error}"
            raise UserError(problem, value=f"{file}:{_line(path, error)}", remedy=remedy) from error


def _signature(error: BaseException) -> str | None:
    """Return how a function of `tidegate` is called, if it was called with arguments that it does not take."""
    called = _CALLED.match(str(error)) if isinstance(error, TypeError) else None
    if called is None:
        return None
    name, _, method = called[1].partition(".")
    public = [getattr(tidegate, each) for each in tidegate.__all__]
    named = {each.__name__: each for one in public for each in getattr(one, "__mro__", [one])}
    function = getattr(named.get(name), method, None) if method else named.get(name)
    if not callable(function):
        return None
    known = signature(function)
    parameters = [each.replace(annotation=each.empty) for each in known.parameters.values() if each.name != "self"]
    shown = known.replace(parameters=parameters, return_annotation=known.empty)
    return f"write {called[1].removesuffix('.__init__')}{shown}"


@contextmanager
def _apart_from_the_command(path: str) -> Iterator[None]:
    """Hide the command's arguments from the program, and send what it prints to stderr, not into the results."""
    arguments, sys.argv = sys.argv, [path]
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv = arguments


def _line(path: str, error: BaseException) -> int:
    """Return the line of the program at which the error came up."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 1
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == path]
    return (lines[-1] if lines else None) or 1
