"""Run the tests of a rule without the rule: in a copy of the source, in a process of its own."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

from tests.rules.removals import Removal
from tests.rules.tags import Place

ROOT = Path(__file__).resolve().parents[2]
_COPIED = ("libs", "services", "tests", "benchmarks", "pyproject.toml")
_COMPILED = ("libs/tidegate/kernels", "libs/tidegate/operators")
_OURS = ("tidegate", "services", "tests")
_PRELOADED = (
    "confluent_kafka",
    "deltalake",
    "duckdb",
    "hypothesis",
    "kafka.protocol",
    "numba",
    "pyarrow.dataset",
    "pyspark.sql",
)
_FORKING = multiprocessing.get_context("fork")
_TIMEOUT_S = 120
_NOT_A_VERDICT = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError")
"""Errors that say that the removal is wrong, not that the test noticed the missing rule."""


class Verdict(Enum):
    """The result of running the tests without a rule."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    FAILS_ANYWAY = "FAILS ANYWAY"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a run of tests; `failed` has the message of each test that failed in its own code, by node id."""

    passed: frozenset[str]
    failed: Mapping[str, str]
    seconds: float
    output: str

    @property
    def verdict(self) -> Verdict:
        """Return the verdict of a run without the rule."""
        if not self.failed:
            return Verdict.SURVIVED if self.passed else Verdict.BROKEN
        judged = [message for message in self.failed.values() if not message.startswith(_NOT_A_VERDICT)]
        return Verdict.CAUGHT if judged else Verdict.BROKEN


def copy(source: Path, target: Path) -> None:
    """Copy what the tests need, with the files' modification times, so that compiled kernels stay valid."""
    for name in _COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns(".hypothesis"))
        else:
            shutil.copy2(source / name, target / name)


def without(source: Path, removal: Removal, place: Place, tests: Sequence[str]) -> Outcome:
    """Run the tests in a copy of the source without the rule that the statement at that place keeps."""
    with TemporaryDirectory(prefix="rules-") as folder:
        root = Path(folder)
        copy(source, root)
        file = root / place.file
        file.write_text(removal.applied_to(file.read_text(), place.line))
        return run(root, tests, compiled=not place.file.startswith(_COMPILED))


def run(root: Path, tests: Sequence[str], *, compiled: bool = True, first_failure: bool = True) -> Outcome:
    """Run the tests in that copy; kernels as plain Python unless `compiled`, where compiled ones would be outdated."""
    report, output = root / "report.xml", root / "output.txt"
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", f"timeout={_TIMEOUT_S}", f"--junitxml={report}"]
    arguments = [*options, *(["-x"] if first_failure else []), *tests]
    begun = time.monotonic()
    process = _FORKING.Process(target=_tests_in, args=(root, arguments, output, compiled))
    process.start()
    process.join()
    passed, failed = _read(report) if report.exists() else (frozenset(), {})
    tail = output.read_text()[-2_000:]
    return Outcome(passed=passed, failed=failed, seconds=time.monotonic() - begun, output=tail)


def preload() -> None:
    """Import what every run of tests imports, because that takes longer than most of them."""
    for module in _PRELOADED:
        importlib.import_module(module)


def _tests_in(root: Path, arguments: Sequence[str], output: Path, compiled: bool) -> None:
    """Run the tests in this process, with Tidegate's modules imported from the copy alone."""
    file = os.open(output, os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    for module in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
        del sys.modules[module]
    os.chdir(root)
    sys.path[:0] = [str(root / "libs"), str(root)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    os.environ.setdefault("TIDEGATE_HOME", str(ROOT / ".tidegate"))
    if not compiled:
        os.environ["TIDEGATE_NUMBA"] = "off"
    sys.exit(pytest.main(list(arguments)))


def _read(report: Path) -> tuple[frozenset[str], dict[str, str]]:
    """Return the node ids, without parameters, of the tests that passed, and the messages of those that failed."""
    passed, failed, others = set[str](), dict[str, str](), set[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '').partition('[')[0]}"
        if (failure := case.find("failure")) is not None:
            failed[name] = failure.get("message", "")
        elif len(case):
            others.add(name)
        else:
            passed.add(name)
    return frozenset(passed - failed.keys() - others), failed
