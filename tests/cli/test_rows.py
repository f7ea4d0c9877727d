"""Rows are a table where they fit the terminal, and otherwise a line for each value; nothing is cut off."""

from __future__ import annotations

import re

import pytest

from tidegate.cli.reports.rows import on_one_line, print_rows

pytestmark = pytest.mark.fast

NAMES = ["partition", "key", "value"]
ROWS = [[0, b"JFK", b'{"delay": 12}'], [1, None, b"x" * 90]]


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was printed, without colours, and without blanks at the ends of lines."""
    return [re.sub(r"\x1b\[\d*m", "", line).rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a terminal with 60 columns."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")


def test_a_table_that_is_too_wide_for_a_terminal_is_a_line_for_each_value(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows(NAMES, ROWS)
    assert lines(capsys) == [
        "row 1",
        "  partition  0",
        "  key        JFK",
        '  value      {"delay": 12}',
        "row 2",
        "  partition  1",
        "  key        null",
        f"  value      {'x' * 90}",
    ]


def test_a_table_that_fits_the_terminal_is_a_table(terminal: None, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(NAMES, ROWS[:1])
    assert lines(capsys) == ["partition  key  value", '0          JFK  {"delay": 12}']


def test_what_is_no_terminal_gets_the_table_however_wide_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(NAMES, ROWS)
    assert lines(capsys)[-1] == f"1          null  {'x' * 90}"


def test_rows_of_no_columns_and_columns_without_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], [])
    print_rows(NAMES, [])
    assert lines(capsys)[-1] == "partition  key  value"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x1b[2Jgone", r"\x1b[2Jgone"),
        (b"two\nlines\r", r"two\nlines\r"),
        ("\u202eright to left", r"\u202eright to left"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("Gr\u00fc\u00dfe \u4f60\u597d [bold]", "Gr\u00fc\u00dfe \u4f60\u597d [bold]"),
        (None, "null"),
    ],
)
def test_a_terminal_obeys_no_key_or_value(value: object, shown: str) -> None:
    assert on_one_line(value) == shown
