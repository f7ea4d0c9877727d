"""`tidegate setup`: download the jars and compile the kernels."""

from __future__ import annotations

import contextlib
import sys
import time
from importlib.metadata import version
from pathlib import Path

import click

from tidegate.cli.shared import json_option, note, show
from tidegate.contracts.errors import StateError
from tidegate.kernels.compiled.cache import delete_stale_files, digest_in_use
from tidegate.operators.registry import kinds, test_part
from tidegate.runtime.install import jars
from tidegate.runtime.install.java import java_command
from tidegate.runtime.task.warm_up import warm_codec
from tidegate.testing.conformance import run_files
from tidegate.testing.exercise import exercise_all

_PACKAGE = Path(__file__).parents[2]


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
    jars.install(note, s3=s3)
    compile_kernels(Path(sys.prefix) / "tidegate-kernels")
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
    call_kernels()
    delete_stale_files(_PACKAGE)
    with contextlib.suppress(OSError):  # a read-only environment has no cache beside the sources either
        stamp.write_text(present)
    note(f"Compiled the kernels in {time.monotonic() - started:.0f} s")


def call_kernels() -> None:
    """Call every kernel that a service may run. Raise StateError if a recorded scenario has another result here."""
    warm_codec()
    results = run_files(sorted(_PACKAGE.glob("operators/*/scenarios/*.jsonl")))
    if failed := [f"{result.operator} {result.file}" for result in results if result.failed]:
        raise StateError("scenarios fail on this machine", value=", ".join(failed), remedy="install Tidegate again")
    exercise_all()


def _present_kernels() -> str:
    """Return the versions of the compiler's packages, and a digest of the sources of all kernels."""
    for kind in kinds():
        test_part(kind, "adapters")  # imports all kernels of the kind
    return f"numba {version('numba')}, numpy {version('numpy')}, sources {digest_in_use()}"
