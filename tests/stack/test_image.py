"""The image of the stack has everything that its Dockerfile, its set-up and its containers name; without an engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stack.test_compose import ROOT, SERVICES
from tidegate.runtime.install import paths

DOCKERFILE = (ROOT / "infra/docker/Dockerfile").read_text().replace("\\\n", " ")
SCRIPTS = ROOT / "infra/docker/bin"
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "tidegate:stack"}
"""The containers that run from the image."""

IN_THE_IMAGE = Path("/opt/tidegate")

pytestmark = pytest.mark.fast


def copied() -> set[str]:
    """What the Dockerfile copies from the checkout."""
    return {source for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE) for source in line.split()[:-1]}


def commands() -> list[list[str]]:
    """What the containers run, health checks included."""
    found = [service["command"] for service in OURS.values()]
    return found + [service["healthcheck"]["test"][1:] for service in OURS.values() if "healthcheck" in service]


def modules() -> list[str]:
    """The modules that containers run; of a package, the one that `python -m` takes."""
    named = {command[2] for command in commands() if command[:2] == ["python", "-m"]}
    return sorted(f"{name}.__main__" if (ROOT / name.replace(".", "/")).is_dir() else name for name in named)


def mounts(service: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is mounted, and where."""
    for volume in service.get("volumes", ()):
        source, target = volume.split(":")[:2]
        yield source, target


def test_what_may_enter_the_image_is_what_it_copies() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == copied()
    assert all((ROOT / source).exists() for source in copied())


def test_every_step_that_the_image_asks_of_the_set_up_exists() -> None:
    (asked,) = re.findall(r"^RUN infra/setup\.sh (.+)$", DOCKERFILE, re.MULTILINE)
    steps = set(re.findall(r"^(\w+)\(\)", (ROOT / "infra/setup.sh").read_text(), re.MULTILINE))
    assert {*asked.split()} <= steps


def test_every_script_that_a_container_runs_is_in_the_image() -> None:
    scripts = {command[0] for command in commands() if command[0].startswith("stack-")}
    assert scripts == {path.name for path in SCRIPTS.iterdir()}
    assert all(os.access(path, os.X_OK) for path in SCRIPTS.iterdir())


def test_every_part_of_spark_that_a_container_runs_is_known_to_the_script() -> None:
    asked = {command[1] for command in commands() if command[0] == "stack-spark"}
    assert asked == set(re.findall(r"^(\w+)\)$", (SCRIPTS / "stack-spark").read_text(), re.MULTILINE))


def test_modules_of_containers_are_found_from_any_folder(tmp_path: Path) -> None:
    (found,) = re.findall(r"PYTHONPATH=(\S+)", DOCKERFILE)
    code = "import sys, importlib.util as of; print(*(of.find_spec(name) is not None for name in sys.argv[1:]))"
    environment = {"PYTHONPATH": found.replace(str(IN_THE_IMAGE), str(ROOT))}
    done = subprocess.run(
        [sys.executable, "-c", code, *modules()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["True"] * len(modules()), done.stderr
    assert {name.split(".")[0] for name in modules()} <= copied()


def test_the_broker_s_jars_are_where_the_set_up_puts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_HOME", raising=False)
    (named,) = re.findall(r"^CLASSES='(.+)/\*'$", (SCRIPTS / "stack-kafka").read_text(), re.MULTILINE)
    assert Path(named) == IN_THE_IMAGE / paths.jars("broker").relative_to(ROOT)


@pytest.mark.parametrize("name", OURS)
def test_every_volume_is_mounted_at_a_folder_that_the_user_of_the_image_may_write(name: str) -> None:
    """A new volume takes over the owner of the folder that it is mounted at; without one it would be root's."""
    (made,) = re.findall(r"install -d -o tidegate -g tidegate ([^\n&]+)", DOCKERFILE)
    assert {target for source, target in mounts(OURS[name]) if not source.startswith(".")} <= {*made.split()}


@pytest.mark.parametrize("name", SERVICES)
def test_every_file_that_a_container_reads_from_the_checkout_exists(name: str) -> None:
    assert all((ROOT / source).exists() for source, _ in mounts(SERVICES[name]) if source.startswith("."))


def test_the_page_names_existing_containers() -> None:
    page = (ROOT / "docs/how-to/stack.md").read_text()
    named = set(re.findall(r"docker-compose (?:run --rm|exec|restart) ([a-z-]+)", page))
    listed = {
        name
        for row in re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \|", page, re.MULTILINE)
        for name in re.findall(r"[a-z-]+", row)
    }
    assert named and named <= {*SERVICES}
    assert listed == {*SERVICES} - {"demo"}
