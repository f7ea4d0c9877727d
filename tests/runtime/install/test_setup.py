"""The set-up: its messages if something is missing, and that it skips what is already done."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tidegate.cli.develop import setup
from tidegate.contracts.errors import EngineError, UserError
from tidegate.kernels.compiled import cache
from tidegate.runtime.install import jars
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import project_root

pytestmark = pytest.mark.fast

SETUP = project_root() / "infra" / "setup.sh"


def fake_java(folder: Path, version: str) -> None:
    command = folder / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    command.chmod(0o755)


def touch_all(folder: Path) -> None:
    """Empty files in place of all listed jars."""
    for kind, names in jars.listed().items():
        (folder / kind).mkdir(parents=True)
        for name in names:
            (folder / kind / name).touch()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("version", "told"), [("11.0.2", "Java 11"), ("1.8.0_292", "Java 8"), ("16", "Java 16")])
def test_a_java_that_is_too_old_is_refused_by_its_version(path: Path, version: str, told: str) -> None:
    fake_java(path, version)
    with pytest.raises(UserError, match=f"{told} is too old") as refused:
        java_command()
    assert "17 or later" in refused.value.remedy


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_a_java_that_is_new_enough_is_accepted(path: Path, version: str) -> None:
    fake_java(path, version)
    assert java_command() == str(path / "java")


def test_a_missing_java_is_reported(path: Path) -> None:
    with pytest.raises(UserError, match="Java was not found"):
        java_command()


def test_java_home_takes_precedence_over_path(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(path, "11")
    (path / "newer" / "bin").mkdir(parents=True)
    fake_java(path / "newer" / "bin", "21")
    monkeypatch.setenv("JAVA_HOME", str(path / "newer"))
    assert java_command() == str(path / "newer" / "bin" / "java")


def test_a_java_home_without_java_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(path / "nothing"))
    with pytest.raises(UserError, match="Java does not run"):
        java_command()


def test_the_set_up_refuses_an_old_java_before_any_download(tmp_path: Path) -> None:
    fake_java(tmp_path, "11.0.2")
    refused = _set_up({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert refused.returncode == 2
    assert refused.stderr.startswith("set-up stopped: Java 11 is too old")
    assert "remedy: install Java 17 or later" in refused.stderr
    assert refused.stdout == ""


def test_the_set_up_reports_a_missing_java(tmp_path: Path) -> None:
    refused = _set_up({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})
    assert refused.returncode == 2
    assert refused.stderr.startswith("set-up stopped: Java was not found")


def test_the_listed_jars_are_accepted_and_others_are_refused(tmp_path: Path) -> None:
    touch_all(tmp_path)
    assert jars.missing(tmp_path) == []
    (tmp_path / "broker" / "kafka_2.13-3.9.0.jar").touch()
    assert len(jars.missing(tmp_path)) == len(jars.listed()["broker"])
    (tmp_path / "spark" / "delta-storage-4.4.0.jar").unlink()
    assert "spark/delta-storage-4.4.0.jar" in jars.missing(tmp_path)


def test_existing_jars_are_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    touch_all(tmp_path / "jars")
    notes: list[str] = []
    monkeypatch.setattr(jars, "retrieve", lambda folder, note: pytest.fail("fetched again"))
    jars.install(notes.append)
    assert notes == []


def test_jars_of_pyspark_are_not_listed() -> None:
    provided = {name.name.rsplit("-", 1)[0] for name in jars.ivy_jar().parent.glob("*.jar")}
    assert not {name.rsplit("-", 1)[0] for name in jars.listed()["spark"]} & provided


@pytest.mark.process
def test_a_failing_download_is_one_message_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="public"/><resolvers>'
        '<ibiblio name="public" m2compatible="true" usepoms="false" root="https://127.0.0.1:1/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv(jars.SETTINGS_VARIABLE, str(settings))
    folder = tmp_path / "jars"
    with pytest.raises(EngineError, match="could not be fetched") as failed:
        jars.retrieve(folder)
    assert "56 missing" in failed.value.value
    assert "run it again" in failed.value.remedy
    assert not folder.exists()


def test_kernels_are_compiled_once_until_their_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(setup, "compile_in_processes", lambda: calls.append("compiled"))
    monkeypatch.setattr(setup, "delete_stale_files", lambda folder: None)
    for _ in range(2):
        setup.compile_kernels(tmp_path / "stamp")
    assert calls == ["compiled"]
    monkeypatch.setattr(cache, "_digests_in_use", {"of another source"})
    setup.compile_kernels(tmp_path / "stamp")
    assert calls == ["compiled", "compiled"]


def _set_up(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SETUP)], env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_the_jars_for_s3_are_fetched_only_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "retrieve", lambda folder, jar_list, note: fetched.append(folder))
    jars.install(lambda _: None)
    jars.install(lambda _: None, s3=True)
    assert fetched == [tmp_path / "jars", tmp_path / "jars", tmp_path / "s3"]
