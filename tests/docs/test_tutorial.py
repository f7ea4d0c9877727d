"""The tutorial's blocks, run by a shell in an empty folder as a reader would, in order."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import tidegate as tg
from tests.docs.pages import DOCS, Block, blocks
from tidegate.application.loading import load_application
from tidegate.devkit.embedded_broker import Broker, free_ports

PAGE = DOCS / "tutorial" / "index.md"
SET_UP = ("make setup\n", "source .venv/bin/activate\n")
"""What the tests themselves have been set up with."""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.timeout(1800)  # every command is a process of its own, and some start Spark
def test_a_reader_of_the_tutorial_gets_a_running_join(tmp_path):
    code, shown, noted = run(tmp_path, script())
    assert code == 0, shown + noted
    told = [json.loads(line) for line in shown.splitlines() if line.startswith('{"partition"')]
    values = [json.loads(each["value"]) for each in told]
    joined = [(value["stream"]["order"], value["table"]["price"]) for value in values]
    assert joined == [(1, 3.0), (2, 3.5), (1, 3.0), (2, 3.5), (3, 3.5), (4, 3.5)]
    assert re.search(r'"order": 1\} +2026-01-01 10:30', shown), "order 1 is due at 10:30"
    assert re.search(r'"order": 2\},"table":\{"price": 3.50\}\} +matched +2026-01-01 10:00', shown)


@pytest.mark.fast
def test_the_file_of_the_page_is_its_program(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", path())
    files = {block.language: block.text for block in blocks(PAGE) if block.language != "sh"}
    (tmp_path / "shop.py").write_text(files["python"])
    assert load_application(tmp_path / "shop.py:app") == tg.Application.from_yaml(files["yaml"])


def script() -> str:
    """The page as a program; Python is what the reader writes to the file."""
    return "".join(part(block) for block in blocks(PAGE) if block.text not in SET_UP)


def part(block: Block) -> str:
    """The block as a part of the program."""
    if block.language == "sh":
        return block.text
    file = {"python": "shop.py", "yaml": "shop.yaml"}[block.language]
    return f"cat > {file} <<'END'\n{block.text}END\n"


def run(folder: Path, program: str) -> tuple[int, str, str]:
    """The program's exit code and what it says, run up to its first error; nothing that it has started is left."""
    [port] = free_ports(1)
    environment = {"PATH": f"{command(folder, port)}:{os.environ['PATH']}", "PYTHONPATH": path(), "COLUMNS": "160"}
    ran = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", program.replace("9092", str(port))],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, noted = ran.communicate()
        return ran.returncode, said, noted
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ran.pid, signal.SIGTERM)
        if (broker := Broker.running(folder / "shop" / "broker")) is not None:
            broker.stop()


def command(folder: Path, port: int) -> Path:
    """A folder with the `tidegate` command, as an activated environment has it; its usual broker is at that port."""
    commands = folder / "bin"
    commands.mkdir()
    called = f'{sys.executable} -m tidegate.cli.main "$@"'
    case = f"case $1 in topics|produce|consume) exec {called} --bootstrap 127.0.0.1:{port};; *) exec {called};; esac"
    (commands / "tidegate").write_text(f"#!/bin/sh\n{case}\n")
    (commands / "tidegate").chmod(0o755)
    return commands


def path() -> str:
    """Where Python finds what the tests find."""
    return os.pathsep.join(path for path in sys.path if path)
