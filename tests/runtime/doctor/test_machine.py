"""What the doctor finds wrong with the machine."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from tidegate.runtime.doctor import machine
from tidegate.runtime.doctor.machine import CHECKS, Machine

pytestmark = pytest.mark.fast

SOUND = Machine(
    python=(3, 12),
    needed={"pyspark": "4.2.0"},
    installed={"pyspark": "4.2.0"},
    java=None,
    jars_missing=(),
    open_files=4_096,
)


def found(wrong: Machine) -> list[tuple[str, str, str]]:
    return [(each.problem, each.value, each.remedy) for check in CHECKS for each in check(wrong)]


def test_a_complete_machine_has_no_finding() -> None:
    assert found(SOUND) == []


def test_an_old_python_is_reported_with_the_one_that_is_needed() -> None:
    [(problem, value, remedy)] = found(replace(SOUND, python=(3, 10)))
    assert (problem, value) == ("Python is too old", "3.10")
    assert "Python 3.11 or later" in remedy


def test_a_package_of_a_different_version_is_reported_with_the_right_one() -> None:
    [(problem, value, remedy)] = found(replace(SOUND, installed={"pyspark": "4.1.0"}))
    assert "pyspark" in problem
    assert value == "4.1.0, needed: 4.2.0"
    assert remedy == "run `make setup`"
    assert found(replace(SOUND, installed={"pyspark": None}))[0][1].startswith("not installed")


def test_missing_jars_are_reported_by_number_and_an_example() -> None:
    [(_, value, remedy)] = found(replace(SOUND, jars_missing=("spark/delta-spark.jar", "broker/kafka.jar")))
    assert value == "2 missing, among them spark/delta-spark.jar"
    assert "make setup" in remedy


def test_a_low_limit_of_open_files_is_reported_with_how_to_raise_it() -> None:
    [(_, value, remedy)] = found(replace(SOUND, open_files=256))
    assert value == "256"
    assert "ulimit -n" in remedy


def a_java(folder: Path, told: str) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(0o755)


def test_an_old_java_is_detected_by_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [(problem, value, remedy)] = found(replace(SOUND, java=machine.collect().java))
    assert "Java 11 is too old" in problem
    assert value == str(tmp_path / "bin" / "java")
    assert "Java 17 or later" in remedy


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    [(problem, _, remedy)] = found(replace(SOUND, java=machine.collect().java))
    assert "Java does not run" in problem
    assert "JAVA_HOME" in remedy


def test_jars_are_searched_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    assert any(jar.startswith("spark/delta-spark") for jar in machine.collect().jars_missing)


def test_checked_versions_equal_those_that_the_package_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["pyspark==4.2.0", "click>=8.1", "deltalake==1.6.6", 'duckdb==1.5.5; extra == "dev"']
    monkeypatch.setattr(metadata, "requires", lambda package: required)
    assert machine.exact_versions() == {"pyspark": "4.2.0", "deltalake": "1.6.6"}
    seen = machine.collect()
    assert seen.installed["pyspark"] == metadata.version("pyspark")
