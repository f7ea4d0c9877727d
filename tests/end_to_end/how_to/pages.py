"""The blocks of a how-to, run as a reader would: in order, in one folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.end_to_end.page_process import run_program
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install.paths import jars

PAGES = Path(__file__).resolve().parents[3] / "docs" / "how-to"
BROKER = "127.0.0.1:9092"

CALL = """
from click.testing import CliRunner
from tidegate.cli.main import main

def call(arguments, text):
    result = CliRunner().invoke(main, arguments, input=text, catch_exceptions=False)
    print(result.stdout)
    assert result.exit_code == 0, (arguments, result.output)
"""
COMMAND = re.compile(r"^tidegate ((?:[^\"<\n]|\"[^\"]*\")*)(?:<<'END'\n(.*?)^END$)?", re.DOTALL | re.MULTILINE)


def run_page(page: str, folder: Path, *, own_spark: bool = False) -> str:
    """What the blocks of the page print, run in the folder with a broker of their own; each of them has succeeded.

    Pages share a Spark, whose working folder is not theirs; a page that gives Spark relative paths has one of its own.
    """
    text = (PAGES / page).read_text()
    with Broker.start(folder / "kafka", jars("broker")) as broker:
        program = "\n".join([CALL, *_steps(text, broker.bootstrap)]).replace(BROKER, broker.bootstrap)
        return run_program(program, folder, own_process=own_spark)


def _steps(text: str, bootstrap: str) -> Iterator[str]:
    """The program's parts: YAML is the configuration, `# app.py` another form of it; other Python is as it is.

    Each command of a shell block is a call.
    """
    for language, block in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL):
        if language == "yaml":
            yield f"open('flights.yaml', 'w').write({block!r})"
        elif block.startswith("# app.py\n"):
            yield f"open('app.py', 'w').write({block!r})"
            yield 'call(["validate", "app.py:app"], "")'
        elif language == "python":
            yield block
        else:
            yield from _calls(block, bootstrap)


def _calls(block: str, bootstrap: str) -> Iterator[str]:
    for line, text in COMMAND.findall(block):
        arguments = shlex.split(line)
        if arguments[0] in ("topics", "produce", "consume"):
            arguments += ["--bootstrap", bootstrap]
        yield f"call({arguments!r}, {text!r})"
