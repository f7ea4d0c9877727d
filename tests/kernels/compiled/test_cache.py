"""The cache of compiled kernels: what a kernel is compiled from decides which cached one it may use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fast, pytest.mark.process]

HELPER = "from tidegate.kernels.compiled import compiled\n\n@compiled\ndef half(n):\n    return n // {divisor}\n"
CONSTANT = "ADDED = {added}\n"
KERNEL = """
from tidegate.kernels.compiled import compiled
from toy import helper
from toy.constant import ADDED

@compiled
def answer(n):
    return helper.half(n) + ADDED
"""

SIGNATURES = """
import sys, time
import numpy as np
from numba.core.caching import IndexDataCacheFile
from tidegate.kernels.compiled import compiled

save_index = IndexDataCacheFile._save_index
IndexDataCacheFile._save_index = lambda *arguments: (time.sleep(0.5), save_index(*arguments))

@compiled
def half(numbers):
    return numbers // np.array([2], numbers.dtype)

print("ready", flush=True)
sys.stdin.readline()
for name in sys.argv[1:]:
    print(half(np.ones(1, name)).dtype)
print(sum(half.stats.cache_misses.values()))
"""
"""Compiles a kernel for the types that are named, tells the types of its answers and how often it compiled.

It takes its time between reading and writing the list of what is compiled."""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "toy").mkdir()
    write(tmp_path, "__init__", "")
    write(tmp_path, "helper", HELPER.format(divisor=2))
    write(tmp_path, "constant", CONSTANT.format(added=1))
    write(tmp_path, "kernel", KERNEL)
    return tmp_path


def write(root: Path, module: str, source: str) -> None:
    (root / "toy" / f"{module}.py").write_text(source)


def answer(root: Path) -> int:
    """Return the kernel's answer to 100, computed by a process of its own."""
    environment = os.environ | {"TIDEGATE_NUMBA": "on", "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    code = "from toy.kernel import answer; print(answer(100))"
    return int(subprocess.run([sys.executable, "-B", "-c", code], env=environment, stdout=-1, check=True).stdout)


def cached(root: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in root.rglob("*.nbc")}


def test_a_kernel_is_compiled_again_if_a_kernel_that_it_calls_has_changed(toy: Path) -> None:
    assert answer(toy) == 51
    write(toy, "helper", HELPER.format(divisor=4))
    assert answer(toy) == 26


def test_a_kernel_is_compiled_again_if_a_constant_of_a_different_module_has_changed(toy: Path) -> None:
    assert answer(toy) == 51
    write(toy, "constant", CONSTANT.format(added=7))
    assert answer(toy) == 57


def test_a_kernel_is_compiled_once_for_unchanged_sources(toy: Path) -> None:
    answer(toy)
    files = cached(toy)
    assert answer(toy) == 51 and cached(toy) == files and files


def test_cached_files_of_former_sources_are_deleted_and_current_ones_kept(toy: Path) -> None:
    answer(toy)
    former = set(cached(toy))
    write(toy, "helper", HELPER.format(divisor=4))
    answer(toy)
    present = set(cached(toy)) - former
    environment = os.environ | {"TIDEGATE_NUMBA": "on", "PYTHONPATH": os.pathsep.join([str(toy), *sys.path])}
    code = (
        "import sys, pathlib, toy.kernel; from tidegate.kernels.compiled.cache import delete_stale_files;"
        "delete_stale_files(pathlib.Path(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-B", "-c", code, str(toy)], env=environment, check=True)
    assert present and set(cached(toy)) == present


def test_processes_that_compile_at_the_same_time_leave_the_code_of_every_signature(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(SIGNATURES)
    environment = os.environ | {"TIDEGATE_NUMBA": "on", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    types = ["int32", "int64", "float64"]
    compiling = [
        subprocess.Popen([sys.executable, "-B", "-m", "toy", each], env=environment, stdin=-1, stdout=-1)
        for each in types
    ]
    for process in compiling:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for process in compiling:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    assert [process.wait() for process in compiling] == [0, 0, 0]
    found = subprocess.run([sys.executable, "-B", "-m", "toy", *types], env=environment, input=b"go\n", stdout=-1)
    assert found.stdout.split() == [b"ready", *(each.encode() for each in types), b"0"]
