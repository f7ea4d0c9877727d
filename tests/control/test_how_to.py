"""The blocks of the how-to run unchanged, on SQLite and PostgreSQL."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import text

from tests.control.test_db_commands import file  # noqa: F401
from tests.control.test_ledger import World
from tidegate.cli.main import main
from tidegate.contracts.batch_metadata import Counts
from tidegate.control.address import Address

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "control-database.md"
ASKED = re.compile(r"SELECT .*? FROM (\w+)", re.DOTALL)


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    return found


def test_every_command_and_every_question_of_the_how_to_works(
    file: Path,  # noqa: F811
    address: Address,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(address, tmp_path)
    world.commit(counts={0: Counts(records_in=2, applied=1, late=1)}, recovered={0: "rebuild: no state"})
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks("sh")).splitlines():
        ran = CliRunner().invoke(main, shlex.split(line)[1:])
        assert ran.exit_code == 0, (line, ran.output)
    answers = {}
    with world.database.begin() as connection:
        for question in filter(str.strip, "".join(blocks("sql")).split(";")):
            answers[question.strip()] = len(connection.execute(text(question)).all())
    assert sorted(answers.values()) == [0, 0, 0, 1, 1, 1]
