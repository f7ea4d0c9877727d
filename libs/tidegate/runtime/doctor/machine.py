"""Checks this machine: Python, packages, Java, jars, and the limit of open files."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from tidegate.contracts.errors import TidegateError, UserError
from tidegate.runtime.doctor.findings import Finding, Findings, of_error
from tidegate.runtime.install.jars import missing
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import home, is_checkout, setup_remedy

OLDEST_PYTHON = (3, 11)
FEWEST_OPEN_FILES = 1_024
"""Smallest limit of open files: a worker keeps local states mapped, and Kafka connections and Parquet files open."""

_EXACT = re.compile(r"([\w.-]+)==([\w.]+)$")
_RUNNING = ("spark", "kafka")
"""The extras without which no operator runs: the versions that they pin are checked too."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts about this machine.

    `needed`, `installed`: the packages of which one exact version is needed, by name; None: not installed. `java`: the
    error if there is no usable Java.
    """

    python: tuple[int, int]
    needed: Mapping[str, str]
    installed: Mapping[str, str | None]
    java: TidegateError | None
    jars_missing: Sequence[str]
    open_files: int


def collect() -> Machine:
    """Collect the facts about this machine."""
    needed = exact_versions()
    return Machine(
        python=sys.version_info[:2],
        needed=needed,
        installed={name: _installed(name) for name in needed},
        java=_java_error(),
        jars_missing=missing(home() / "jars"),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def exact_versions() -> dict[str, str]:
    """Return the packages that Tidegate pins to one version; none if Tidegate is not installed as a package."""
    try:
        required = metadata.requires("tidegate") or []
    except metadata.PackageNotFoundError:
        return {}
    lines = [line.partition(";") for line in required]
    needed = [line for line, _, extra in lines if not extra or any(f'"{each}"' in extra for each in _RUNNING)]
    return {name: version for line in needed for name, version in _EXACT.findall(line.strip())}


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _java_error() -> UserError | None:
    try:
        java_command()
    except UserError as error:
        return error
    return None


def python_is_new_enough(machine: Machine) -> Findings:
    """Check that Tidegate supports this version of Python."""
    if machine.python < OLDEST_PYTHON:
        found, oldest = (".".join(map(str, version)) for version in (machine.python, OLDEST_PYTHON))
        remedy = f"install Python {oldest} or later, then reinstall Tidegate with it"
        yield Finding(about="machine", problem="Python is too old", value=found, remedy=remedy)


def java_is_new_enough(machine: Machine) -> Findings:
    """Check that there is a Java that Spark and Kafka run on."""
    if machine.java is not None:
        yield of_error("machine", machine.java)


def packages_are_those_that_were_tested(machine: Machine) -> Findings:
    """Check that packages of which only one version is known to work have that version."""
    for package, version in machine.needed.items():
        found = machine.installed.get(package)
        if found != version:
            problem = f"package {package} has a version that Tidegate was not tested with"
            value = f"{found or 'not installed'}, needed: {version}"
            yield Finding(about="machine", problem=problem, value=value, remedy=_reinstall(package, version))


def _reinstall(package: str, version: str) -> str:
    return setup_remedy() if is_checkout() else f"pip install '{package}=={version}'"


def jars_are_complete(machine: Machine) -> Findings:
    """Check that all jars of Spark and of the broker are installed, as listed."""
    if machine.jars_missing:
        value = f"{len(machine.jars_missing)} missing, among them {machine.jars_missing[0]}"
        yield Finding(about="machine", problem="jars are missing", value=value, remedy=setup_remedy())


def enough_files_may_be_open(machine: Machine) -> Findings:
    """Check that the limit of open files is high enough for many partitions."""
    if machine.open_files < FEWEST_OPEN_FILES:
        yield Finding(
            about="machine",
            problem="the limit of open files is low",
            value=str(machine.open_files),
            remedy=f"raise the limit to at least {FEWEST_OPEN_FILES}: ulimit -n, or LimitNOFILE of systemd",
        )


CHECKS = (
    python_is_new_enough,
    java_is_new_enough,
    packages_are_those_that_were_tested,
    jars_are_complete,
    enough_files_may_be_open,
)
