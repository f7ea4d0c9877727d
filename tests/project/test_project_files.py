"""The files that a host of the repository reads: licence, workflow, forms; and what make gives pytest."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RUN_BY_MAKE = re.findall(r"-m pytest (.*)", (ROOT / "Makefile").read_text().replace("\\\n", ""))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))

pytestmark = pytest.mark.fast


def test_the_licence_is_apache_2_in_the_file_and_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert all((ROOT / name).is_file() for name in project["license-files"])
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text()


def test_the_workflow_follows_its_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    checked = subprocess.run([*command, *(ROOT / ".github/workflows").glob("*.yml")], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_workflow_runs_what_continuous_integration_runs() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]["steps"]
    assert ".ci/run" in [step.get("run") for step in steps]


def test_the_workflow_runs_every_version_of_python_that_is_supported() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [line.rpartition(" ")[2] for line in project["classifiers"] if line.count("::") == 2]
    assert job["strategy"]["matrix"]["python"] == listed
    assert project["requires-python"] == f">={listed[0]}"


@pytest.mark.parametrize("command", RUN_BY_MAKE)
def test_each_path_that_make_gives_pytest_has_tests_of_the_marker_that_make_asks_for(command: str) -> None:
    wanted = re.search(r"-m (\w+)", command)
    for name in re.findall(r"tests/\S+", command):
        files = sorted((ROOT / name).rglob("test_*.py")) or [ROOT / name]
        texts = [file.read_text() for file in files]
        assert texts and (wanted is None or any(f"mark.{wanted[1]}" in text for text in texts)), name


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_the_fields_of_an_issue_form_have_unique_ids(form: Path) -> None:
    fields = [field["id"] for field in yaml.safe_load(form.read_text())["body"]]
    assert fields and len(fields) == len(set(fields))
