"""Loading the application of a program: `app.py:app`, as commands do."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from traceback import extract_tb
from typing import Any

from tidegate.application.options import PROGRAM
from tidegate.contracts.errors import TidegateError, UserError

is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)
"""Whether a command loads a program: `run()` at its end then does nothing, so that the command can do its work."""


def is_program(target: Path) -> bool:
    """Return whether the target is a program with or without the name of an application, not a YAML file."""
    return target.suffix == ".py" or _split(target)[0].suffix == ".py"


def load_application(target: Path) -> Any:
    """Return the object that the target names, `FILE.py:NAME`, an application.

    Raise UserError if the file cannot be read or fails, or has no application of that name.
    """
    from tidegate.application.application import Application

    file, name = (target, "") if target.suffix == ".py" else _split(target)
    if not file.is_file():
        raise UserError("there is no such program", value=file, remedy="name one, such as app.py:app")
    defined = _run(file)
    found = defined.get(name)
    if isinstance(found, Application):
        return found
    problem = "the target names no application" if not name else f"the program has no application {name}"
    names = [other for other, value in defined.items() if isinstance(value, Application)]
    remedy = f"write {file}:{names[0]}" if names else "define app = tg.Application(...) at the top level of the program"
    raise UserError(problem, value=target if found is None else f"{name} = {found!r}", remedy=remedy)


def let_workers_import(folder: Path) -> None:
    """Let this process and Spark's Python workers, which start later, import the modules of the folder."""
    place = str(folder)
    if place not in sys.path:
        sys.path.insert(0, place)
    before = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    if place not in before:
        os.environ["PYTHONPATH"] = os.pathsep.join([place, *before])


def _split(target: Path) -> tuple[Path, str]:
    file, _, name = str(target).rpartition(":")
    return Path(file), name


def _run(file: Path) -> dict[str, Any]:
    """Run the program as a module and return what it defines. Its own errors are the user's, with their line."""
    let_workers_import(file.resolve().parent)
    with _loading():
        try:
            return runpy.run_path(str(file), run_name=PROGRAM)
        except TidegateError:
            raise
        except (Exception, SystemExit) as error:
            lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
            line = getattr(error, "lineno", None) or (lines[-1] if lines else None)
            remedy = f"see the whole error with: python {file}"
            problem = f"the program fails: {type(error).__name__}: {error}"
            raise UserError(problem, value=f"{file}:{line or 1}", remedy=remedy) from error


@contextmanager
def _loading() -> Iterator[None]:
    token = is_loading.set(True)
    try:
        yield
    finally:
        is_loading.reset(token)
