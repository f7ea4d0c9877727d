"""The how-to on windows, run block by block."""

from __future__ import annotations

import json
import re

import pytest

from tests.end_to_end.how_to.pages import run_page

pytestmark = [pytest.mark.spark, pytest.mark.broker]

BEFORE = ["2013-01-01 10:00:00+00:00 │ 3     │ False", "2013-01-01 12:00:00+00:00 │ 1     │ False"]


def test_every_block_of_the_how_to_runs_with_the_described_result(tmp_path):
    shown = run_page("windows.md", tmp_path)
    assert re.search(r"JFK-UA +1357034400000 +1357038000000 +3 +1357037400000", shown), "the open windows"
    told = [json.loads(line) for line in shown.splitlines() if line.startswith('{"partition"')]
    assert [(each["timestamp"], each["value"]) for each in told] == [
        (1357037400000, "3"),
        (1357042200000, "1"),
        (1357045200000, "1"),
    ]
    assert [header(each, "tidegate-cause") for each in told] == ["window_close", "flush", "flush"]
    assert header(told[0], "tidegate-window-start") == "1357034400000"
    assert "│ JFK-UA │ 2013-01-01 10:00:00+00:00 │ 3     │" in shown, "the filtered results"
    assert re.search(r'"UA6"\} │ 7500000 +│ 2013-01-01 11:00', shown), "the late record"
    assert "2013-01-01 11:00:00+00:00 │ 3     │ True" in shown
    assert all(row in shown for row in BEFORE), "the earlier version"
    assert "from Python: 1357045200000 1357048800000 b'1'" in shown
    assert "2h (now)" in shown
    assert "100 % need a grace of 3h" in shown


def header(result, name):
    """What the result's header says."""
    return next(each["value"] for each in result["headers"] if each["key"] == name)
