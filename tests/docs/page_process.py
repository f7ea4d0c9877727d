"""The process in which the programs of pages run one after another, so that Spark starts once for all of them."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, contextmanager, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

from tidegate.runtime.spark.session import start_session

WIDE = {"COLUMNS": "200"}
"""Tables are printed as wide as they are."""


def run_program(text: str, folder: Path, *, own_process: bool) -> str:
    """Return what the program prints, run in the folder with this process's environment.

    Raise AssertionError, which shows what it printed, if it fails.
    """
    if own_process:
        with _process() as process:
            return process.submit(_run, text, folder, os.environ | WIDE).result()
    return _shared_process().submit(_run, text, folder, os.environ | WIDE).result()


@cache
def _shared_process() -> ProcessPoolExecutor:
    return _process(_start_spark)


def _process(begin: Callable[[], object] | None = None) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=begin)


def _start_spark() -> None:
    start_session("pages", "local[2]")


def _run(text: str, folder: Path, environment: dict[str, str]) -> str:
    """Run the program in the folder. Java, which it may start, keeps the folder as its working folder."""
    with _environment(environment), _modules_of(folder), chdir(folder), redirect_stdout(StringIO()) as shown:
        try:
            exec(compile(text, str(folder / "page.py"), "exec"), {"__name__": "__main__"})
        except Exception as error:  # exceptions of some libraries cannot travel between processes
            raise AssertionError(f"{shown.getvalue()}\n{type(error).__name__}: {error}") from error
    return shown.getvalue()


@contextmanager
def _environment(environment: dict[str, str]) -> Iterator[None]:
    """Set the environment, and bring the former one back."""
    former = dict(os.environ)
    _replace_environment(environment)
    try:
        yield
    finally:
        _replace_environment(former)


def _replace_environment(environment: dict[str, str]) -> None:
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


@contextmanager
def _modules_of(folder: Path) -> Iterator[None]:
    """Let the folder's modules be imported, and forget them: the next folder has others of the same names."""
    path, modules = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
