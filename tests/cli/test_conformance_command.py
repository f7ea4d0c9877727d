"""`tidegate conformance`: its output for passing and for failing scenarios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.cli.main import main

pytestmark = pytest.mark.fast

RULES = Path("libs/tidegate/operators/suppression/scenarios/rules.jsonl")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A scenario that holds, and the same with another value expected."""
    right: dict[str, Any] = json.loads((Path(__file__).parents[2] / RULES).read_text().splitlines()[0])
    output = [emission | {"value": "wrong"} for emission in right["expected"]["output"]]
    wrong = right | {"id": "planted", "expected": right["expected"] | {"output": output}}
    path = tmp_path / "two.jsonl"
    path.write_text("".join(json.dumps(scenario) + "\n" for scenario in (right, wrong)))
    return path


def conformance(*arguments: object) -> Result:
    """The command, with its output."""
    return CliRunner().invoke(main, ["conformance", *map(str, arguments)], catch_exceptions=False)


def test_the_last_line_has_the_counts_and_a_difference_gives_exit_code_1(file: Path) -> None:
    ran = conformance(file)
    assert ran.exit_code == 1
    assert ran.stdout.splitlines()[-1] == "1 passed, 1 failed"
    assert "planted" in ran.stdout


def test_with_json_counts_and_differences_are_listed(file: Path) -> None:
    told = json.loads(conformance(file, "--json").stdout)
    assert (told["passed"], told["failed"]) == (1, 1)
    [result] = told["results"]
    assert result["operator"] == "suppress" and "planted" in result["differences"][0]


def test_passing_scenarios_give_exit_code_0() -> None:
    ran = conformance(Path(__file__).parents[2] / RULES)
    assert (ran.exit_code, ran.stdout.splitlines()[-1].endswith(" passed, 0 failed")) == (0, True)
