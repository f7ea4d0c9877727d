"""The page of each operator: its worked example runs, with the described result."""

from __future__ import annotations

import pytest

from tests.docs.running_pages import run_page

pytestmark = [pytest.mark.spark, pytest.mark.broker]

SHOWS = {
    "suppression": ["valid (1 operators", '"delay_min": 0', "time"],
    "table_history": ["valid (1 operators", '"visib": 2'],
    "stream_table_join": ["valid (2 operators", "late", '"flight":"B61"'],
    "windowed_aggregation": ["valid (1 operators", '{"count":2,"max":9}', "True"],
    "pipeline": ["valid (1 operators", "bob", "window_close", "eve", '"n":2,"spent":12', "its new key is null"],
    "stream_stream_join": ["valid (1 operators", "unmatched", "matched", "bob", "left"],
    "deduplicate": ["valid (1 operators", '"from": "JFK"', "first"],
}


@pytest.mark.parametrize("kind", SHOWS)
def test_the_worked_example_of_an_operator_is_valid_and_runs(broker, kind, tmp_path):
    shown = run_page(f"../operators/{kind}.md", tmp_path, broker)
    assert [word for word in SHOWS[kind] if word not in shown.replace(": ", ":") and word not in shown] == []
