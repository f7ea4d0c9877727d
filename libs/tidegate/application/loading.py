"""Loading the application of a program: `app.py:app`, as commands do."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from traceback import extract_tb
from typing import Any

from tidegate.application.application import Application
from tidegate.application.options import PROGRAM
from tidegate.application.program import let_workers_import, loading
from tidegate.contracts.errors import TidegateError, UserError


def is_program(target: Path) -> bool:
    """Return whether the target is a program with or without the name of an application, not a YAML file."""
    return target.suffix == ".py" or _split(target)[0].suffix == ".py"


def load_application(target: Path) -> Application:
    """Return the application that the target `FILE.py:NAME` names.

    Raise UserError if the file cannot be read or fails, or has no application of that name.
    """
    file, name = (target, "") if target.suffix == ".py" else _split(target)
    if not file.is_file():
        raise UserError("there is no such program", value=file, remedy="name a program, such as app.py:app")
    defined = _run(file)
    found = defined.get(name)
    if isinstance(found, Application):
        return found
    problem = "the target names no application" if not name else f"the program has no application {name}"
    names = [other for other, value in defined.items() if isinstance(value, Application)]
    remedy = f"write {file}:{names[0]}" if names else "define app = tg.Application(...) at the top level of the program"
    raise UserError(problem, value=target if found is None else f"{name} = {found!r}", remedy=remedy)


def _split(target: Path) -> tuple[Path, str]:
    file, _, name = str(target).rpartition(":")
    return Path(file), name


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
            remedy = f"run `python {file}` to see the whole error"
            problem = f"the program failed: {type(error).__name__}: {error}"
            raise UserError(problem, value=f"{file}:{_line(path, error)}", remedy=remedy) from error


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
