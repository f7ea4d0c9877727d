"""The SQL views of a join: emissions with status and version, and waiting records."""

from __future__ import annotations

import pytest

from tests.end_to_end.test_joins import JOIN, TABLE, joined  # noqa: F401 -- a fixture
from tidegate.spark import register_views

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.spark_reads]


def test_emissions_have_status_and_valid_from_and_the_buffer_shows_when_each_record_is_due(spark, joined):  # noqa: F811
    here = joined(grace="1s", key_format="string", value_format="json")
    here.put((0, b'"A"', 1_000))
    here.send((0, b"1", 500), (0, b"2", 1_500), (0, b"3", 3_000), (0, b"4", 1_600))
    views = register_views(spark, here.application)
    assert {f"{JOIN}_buffer", f"{JOIN}_emissions", f"{TABLE}_history", f"{TABLE}_as_of(timestamp)"} <= set(views)
    emitted = f"SELECT key, value, status, unix_millis(valid_from) FROM {JOIN}_emissions ORDER BY seq"
    assert [tuple(row) for row in spark.sql(emitted).collect()] == [
        ("k0", '{"stream":1,"table":null}', "unmatched", None),
        ("k0", '{"stream":2,"table":"A"}', "matched", 1_000),
        ("k0", '{"stream":4,"table":"A"}', "late", 1_000),
    ]
    waiting = f"SELECT key, value, offset, unix_millis(event_time), unix_millis(due), arrived > 0 FROM {JOIN}_buffer"
    assert [tuple(row) for row in spark.sql(waiting).collect()] == [("k0", "3", 2, 3_000, 4_000, True)]
