"""Our own scenarios, the runner and its command."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegate import operators
from tidegate.cli.develop.conformance import command
from tidegate.contracts.errors import UserError
from tidegate.testing.conformance import difference, run_files, scenarios

pytestmark = pytest.mark.fast

OWN = sorted(Path(operators.__file__).parent.glob("*/scenarios/*.jsonl"))
SCENARIO = next(found for file in OWN for found in scenarios(file) if found["id"] == "two-keys-at-most")


@pytest.mark.parametrize(
    "scenario", [found for file in OWN for found in scenarios(file)], ids=lambda found: found["id"]
)
def test_scenario(scenario: dict) -> None:
    assert difference(scenario) is None


@pytest.mark.parametrize("part", ["output", "final_buffer"])
def test_a_difference_names_the_scenario_and_the_actual_output(part: str) -> None:
    wrong = json.loads(json.dumps(SCENARIO))
    wrong["expected"][part][0]["value"] = "wrong"
    assert difference(wrong).startswith(f"{SCENARIO['id']}: {part}[0] is ")


def test_a_failure_where_none_is_expected_is_a_difference() -> None:
    config = {"max_records": 2, "when_full": "shutdown"}
    assert "fails at offset 3, expected None" in difference(SCENARIO | {"config": config})


def test_a_scenario_of_an_operator_that_is_not_built_fails() -> None:
    assert difference(SCENARIO | {"operator": "teleport"}).endswith("the operator teleport is not built")


def test_the_command_ends_with_the_totals(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, [SCENARIO, SCENARIO | {"operator": "x"}])).encode()))
    result = CliRunner().invoke(command, [str(file)])
    assert result.exit_code == 1
    assert result.output.splitlines()[0] == "suppress some.jsonl.gz: 1 passed, 0 failed"
    assert result.output.splitlines()[-1] == "1 passed, 1 failed"
    assert CliRunner().invoke(command, ["--operator", "suppress", str(file)]).output.endswith("1 passed, 0 failed\n")


def test_nothing_to_run_and_files_of_something_else_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no scenario"):
        run_files(OWN, "no_such_operator")
    other = tmp_path / "other.jsonl"
    other.write_text("not JSON\n")
    with pytest.raises(UserError, match="not a file of scenarios"):
        run_files([other])
