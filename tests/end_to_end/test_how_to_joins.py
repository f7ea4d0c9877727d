"""The blocks of the how-to on joins are run as a reader would, in order, in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to" / "joins.md"
BROKER = "127.0.0.1:9092"

CALL = """
from click.testing import CliRunner
from tidegate.cli.main import main

def call(arguments, text):
    result = CliRunner().invoke(main, arguments, input=text, catch_exceptions=False)
    print(result.stdout)
    assert result.exit_code == 0, (arguments, result.output)
"""
"""Commands are called in one process, which starts Java once."""

COMMAND = re.compile(r"^tidegate ((?:[^\"<\n]|\"[^\"]*\")*)(?:<<'END'\n(.*?)^END$)?", re.DOTALL | re.MULTILINE)


def steps(bootstrap: str) -> Iterator[str]:
    """The program's parts: each command of a shell block is a call; Python is as it is."""
    for language, block in re.findall(r"```(\w+)\n(.*?)```", HOW_TO.read_text(), re.DOTALL):
        if language == "yaml":
            yield f"open('flights.yaml', 'w').write({block!r})"
        elif language == "python":
            yield block
        else:
            for line, text in COMMAND.findall(block):
                arguments = shlex.split(line)
                if arguments[0] in ("topics", "produce"):
                    arguments += ["--bootstrap", bootstrap]
                yield f"call({arguments!r}, {text!r})"


def test_every_block_of_the_how_to_runs_and_shows_what_it_says(broker, tmp_path):
    program = tmp_path / "how_to.py"
    program.write_text("\n".join([CALL, *steps(broker.bootstrap)]).replace(BROKER, broker.bootstrap))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLUMNS": "200"}
    ran = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r'"B61"\},"table":\{"visib": 10\}\} +│ matched +│ 2013-01-01 10:00', ran.stdout)
    assert re.search(r'"B62"\},"table":\{"visib": 2\}\} +│ matched +│ 2013-01-01 11:00', ran.stdout)
    assert re.search(r'"B63"\} +│ 2013-01-01 15:30', ran.stdout)
    assert "100 % need 0ms" in ran.stdout
    assert (tmp_path / "graces.svg").exists()
    assert re.search(r'B62 *\|2013-01-01 11:02:00\|\{"visib": 2\}\|2013-01-01 11:00:00\|matched', ran.stdout)
