"""The blocks of a page, run as a reader would: in order, in one folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.docs.page_process import run_program
from tests.docs.pages import blocks_of
from tests.patience import wait_for
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.kafka.topics import admin_client, topic_names

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
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


def run_page(page: str, folder: Path, broker: Broker, *, own_spark: bool = False) -> str:
    """What the blocks of the page print, run in the folder, each with success. The broker is empty before and after.

    Pages share a Spark, whose working folder is not theirs; a page that gives Spark relative paths has one of its own.
    """
    text = (PAGES / page).read_text()
    program = "\n".join([CALL, *_steps(text, broker.bootstrap)]).replace(BROKER, broker.bootstrap)
    empty(broker)
    try:
        return run_program(program, folder, own_process=own_spark)
    finally:
        empty(broker)


def empty(broker: Broker) -> None:
    """Delete all topics of the broker, and the groups with their offsets."""
    options = {"bootstrap.servers": broker.bootstrap}
    with admin_client(options, broker.bootstrap) as admin:
        if groups := [group["group_id"] for group in admin.list_groups()]:
            admin.delete_groups(groups)
        if topics := topic_names(options):
            admin.delete_topics(topics)
    wait_for(lambda: not topic_names(options), "the topics are deleted")


def _steps(text: str, bootstrap: str) -> Iterator[str]:
    """The program's parts: YAML is the configuration that the page's commands name, `# app.py` another form of it.

    Other Python is as it is. Each command of a shell block is a call.
    """
    named = re.search(r"tidegate \w+ (\w+\.yaml)", text)
    for _, _, language, block in blocks_of(text):
        if language == "yaml":
            yield f"open({(named[1] if named else 'flights.yaml')!r}, 'w').write({block!r})"
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
