"""The how-to on joins, run block by block."""

from __future__ import annotations

import re

import pytest

from tests.end_to_end.how_to.pages import run_page

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_every_block_of_the_how_to_runs_with_the_described_result(tmp_path):
    shown = run_page("joins.md", tmp_path)
    assert re.search(r'"B61"\},"table":\{"visib": 10\}\} +│ matched +│ 2013-01-01 10:00', shown)
    assert re.search(r'"B62"\},"table":\{"visib": 2\}\} +│ matched +│ 2013-01-01 11:00', shown)
    assert re.search(r'"B63"\} +│ 2013-01-01 15:30', shown)
    assert "100 % need a grace of 0ms" in shown
    assert (tmp_path / "graces.svg").exists()
    assert re.search(r'B62 *\|2013-01-01 11:02:00\|\{"visib": 2\}\|2013-01-01 11:00:00\|matched', shown)
