"""`tidegate setup`: download the jars and compile the kernels."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import click

from tidegate.cli.shared import json_option, note, show
from tidegate.contracts.errors import StateError
from tidegate.kernels.compiled import CHECKED
from tidegate.kernels.compiled.cache import delete_stale_files, digest_in_use
from tidegate.operators.registry import kinds, test_part
from tidegate.runtime.install import jars
from tidegate.runtime.install.java import java_command
from tidegate.runtime.task.warm_up import warm_codec
from tidegate.testing.conformance import run_files
from tidegate.testing.exercise import exercise_common, exercise_kind

_PACKAGE = Path(__file__).parents[2]
_STAMP = "tidegate-kernels-checked" if CHECKED else "tidegate-kernels"
"""The file of an environment that says which kernels are compiled; each build has its own."""


@click.command("setup")
@click.option("--s3", is_flag=True, help="Download also the jars with which Spark reads lakes on S3.")
@json_option
def command(s3: bool) -> None:
    """Download the jars of Spark and of the embedded broker, and compile the kernels. Skip what is already done.

    \b
    Example:
      pip install 'tidegate[demo]' && tidegate setup
    """
    java_command()
    with ThreadPoolExecutor(1) as beside:  # downloads wait for a network, and compilers for the cores
        compiled = beside.submit(compile_kernels, Path(sys.prefix) / _STAMP)
        jars.install(note, s3=s3)
        compiled.result()
    show({"ready": True}, "Ready: try `tidegate demo`.")


def compile_kernels(stamp: Path) -> None:
    """Compile all kernels into numba's cache, unless the stamp file says that they are compiled.

    Keep cached files of the current sources, and delete those of other sources.
    """
    present = _present_kernels()
    if stamp.is_file() and stamp.read_text() == present:
        return
    note("Compiling the kernels (a few minutes, once)")
    started = time.monotonic()
    compile_in_processes()
    delete_stale_files(_PACKAGE)
    with contextlib.suppress(OSError):  # a read-only environment has no cache beside the sources either
        stamp.write_text(present)
    note(f"Compiled the kernels in {time.monotonic() - started:.0f} s")


def compile_in_processes() -> None:
    """Compile the kernels of as many kinds at a time as there are cores into numba's cache.

    The largest kinds come first, so that the last process has little left to do.
    """
    warm_codec()
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        named = {pool.submit(call_kernels, [kind]): kind for kind in sorted(kinds(), key=_size, reverse=True)}
        for done in as_completed(named):
            done.result()
            note(f"  {named[done]}")


def _size(kind: str) -> int:
    """Return the number of bytes of the kind's sources."""
    return sum(file.stat().st_size for file in (_PACKAGE / "operators" / kind).rglob("*.py"))


def call_kernels(of_kinds: Iterable[str]) -> None:
    """Call every kernel that a service with operators of these kinds may run.

    Raise StateError if a recorded scenario has another result here.
    """
    warm_codec()
    for kind in of_kinds:
        _check_scenarios(kind)
        exercise_kind(kind)
    exercise_common()


def _check_scenarios(kind: str) -> None:
    files = sorted((_PACKAGE / "operators" / kind).glob("scenarios/*.jsonl"))
    results = run_files(files) if files else []
    if failed := [f"{result.operator} {result.file}" for result in results if result.failed]:
        raise StateError("scenarios fail on this machine", value=", ".join(failed), remedy="install Tidegate again")


def _present_kernels() -> str:
    """Return the versions of the compiler's packages, and a digest of the sources of all kernels."""
    for kind in kinds():
        test_part(kind, "adapters")  # imports all kernels of the kind
    return f"numba {version('numba')}, numpy {version('numpy')}, sources {digest_in_use()}"
