"""The how-tos on changing and on migrating, run block by block."""

from __future__ import annotations

import json

import pytest

from tests.end_to_end.how_to.pages import run_page

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_plan_and_apply_release_the_records_that_the_page_names(tmp_path):
    shown = run_page("plan-and-apply.md", tmp_path)
    assert "3 held, 2 released, 1 held after" in shown
    assert "2 released, 1 held" in shown.partition("applied the changed file")[2]
    assert "carrier_updates: no change" in shown
    told = [json.loads(line)["key"] for line in shown.splitlines() if line.startswith('{"partition"')]
    assert told == ["UA", "AA"]


@pytest.mark.parametrize("page", ["migrate-from-kafka-streams.md", "migrate-from-flink.md"])
def test_the_files_of_the_migration_guides_are_valid(tmp_path, page):
    assert "valid (3 operators" in run_page(page, tmp_path)


@pytest.mark.timeout(1500)  # four streams, and a MERGE
def test_operators_replace_the_foreach_batch_code(tmp_path):
    shown = run_page("migrate-from-foreachbatch.md", tmp_path, own_spark=True)
    assert "before: [('JFK', '{\"visib\": 2}'), ('LGA', '{\"visib\": 8}')]" in shown
    assert "at 10:45: [('JFK', '{\"visib\": 4}')]" in shown
    assert "emitted: [('JFK', '{\"visib\": 2}')" in shown
