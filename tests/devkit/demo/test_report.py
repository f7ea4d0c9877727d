"""What the demo shows, and which results it checks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tidegate.devkit.demo import checks, report
from tidegate.devkit.demo.blizzard import levels
from tidegate.devkit.demo.run import _QUESTIONS, _prepare
from tidegate.runtime.configuration.application import application_of, settings_of

pytestmark = pytest.mark.fast

SHIPPED = checks.original()


def changed(operator: str, **settings: Any) -> Any:
    """The shipped operator with other settings."""
    operators = {operator: settings_of(SHIPPED.operators[operator]) | settings}
    raw = {"application": "a", "lake": "lake", "keep_output": "forever", "kafka": {"bootstrap.servers": "kafka:9092"}}
    return application_of(raw | {"operators": operators}).operators[operator]


def test_every_checked_operator_is_shipped_and_every_shipped_one_is_known() -> None:
    assert set(checks.CHECKS) < set(SHIPPED.operators)
    assert all(checks.is_known(each, each) for each in SHIPPED.operators.values())


@pytest.mark.parametrize(
    ("operator", "settings"),
    [
        ("carrier_updates", {"until": {"time_limit": "1h"}}),
        ("carrier_updates", {"buffer": {"max_keys": 5, "when_full": "emit"}, "output": "other"}),
        ("departures_per_hour", {"window": {"tumbling": "2h", "grace": "1h"}}),
    ],
)
def test_other_durations_and_limits_are_checked(operator: str, settings: dict[str, Any]) -> None:
    assert checks.is_known(changed(operator, **settings), SHIPPED.operators[operator])


@pytest.mark.parametrize(
    ("operator", "settings"),
    [
        ("carrier_updates", {"timer": "last_update"}),
        ("departures_per_hour", {"window": {"session": "1h", "grace": "1h"}}),
        ("departures_per_hour", {"aggregate": {"sum": {"field": "delay_min"}}}),
        ("departures_per_hour", {"emit": "updates"}),
    ],
)
def test_results_unknown_to_the_independent_code_are_not_checked(operator: str, settings: dict[str, Any]) -> None:
    assert not checks.is_known(changed(operator, **settings), SHIPPED.operators[operator])
    assert not checks.is_known(None, SHIPPED.operators[operator])


def test_a_changed_program_is_kept_and_the_lake_of_its_last_run_is_removed(tmp_path: Path) -> None:
    program = _prepare(tmp_path / "demo")
    assert program.read_text() == checks.PROGRAM.read_text()
    program.write_text("changed")
    (program.parent / "lake").mkdir()
    assert _prepare(tmp_path / "demo").read_text() == "changed"
    assert not (program.parent / "lake").exists()


def test_a_level_is_the_share_of_the_largest_value_and_only_zero_is_a_dot() -> None:
    assert levels([0, 1, 4, 8, 100], 100) == "·▁▁▁█"
    assert levels([0, 50, 100], 100) == "·▄█"


@pytest.mark.parametrize(("_operator", "asked"), _QUESTIONS)
def test_no_line_of_sql_is_wider_than_a_terminal(_operator: str, asked: tuple[str, str]) -> None:
    _, query = asked
    assert max(map(len, query.splitlines())) <= 80


def test_the_demo_ends_with_five_lines_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    console = Console(file=io.StringIO(), width=80)
    report.show_next(console, tmp_path / ".tidegate" / "demo" / "app.py")
    lines = console.file.getvalue().strip().splitlines()
    assert len(lines) <= 5
    assert all("demo/app.py" in line for line in lines)
