"""The how-to on late and rejected records, run block by block."""

from __future__ import annotations

import re

import pytest

from tests.end_to_end.how_to.pages import run_page

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_every_block_of_the_how_to_runs_with_the_described_result(tmp_path):
    shown = run_page("refused-records.md", tmp_path)
    assert '{"key":"__streams.errors.message","value":"late: older than max_lateness"}' in shown
    assert '{"key":"__streams.errors.message","value":"rejected: null key"}' in shown
    assert re.search(r"late +│ older than max_lateness +│ 1 +│ 1800000 ", shown)
    assert re.search(r"rejected +│ null key +│ 1 +│ null", shown)
    assert re.search(r"AA +│ 2013-01-01 10:30:00\S* +│ 1800000 +│ 2013-01-01 10:50:00\S* +│ 2 ", shown)
    assert "late, older than max_lateness: 1\n1 record would be sent to departures" in shown
    assert "1 record sent to departures" in shown
    assert re.search(r'AA +│ \{"flight": 33\} +│ 2013-01-01 10:30:00', shown)
    assert "late, older than max_lateness: 1, 1 of them sent back before" in shown
