"""Views of the console, which DuckDB evaluates, have the rows that they have in Spark SQL: of every kind and format."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.console.logs import PIPELINE, SUPPRESSION, TABLE, WINDOWS, Written, application, record
from tests.console.test_pages import HOSTILE
from tests.pipelines.test_avro_values import FLIGHT, avro, flight
from tests.pipelines.test_protobuf_values import CALM, REPORT, WINDY, protobuf
from tidegate.console.pages.known_logs import KnownLogs
from tidegate.console.sql.views import OperatorViews, define, views_of
from tidegate.contracts.records import Row
from tidegate.runtime.configuration.application import Application
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.opening import open_lake

pytestmark = pytest.mark.spark

JOIN: dict[str, Any] = {"kind": "stream_table_join", "table": "table", "join": "left", "grace": "5s"}
STREAMS = {"kind": "stream_stream_join", "input": "in", "right": "right", "output": "pairs", "join": "outer"}
NUMBERS = {"output": "numbers", "key_format": "int32", "value_format": "int32"}
LIMITED = {"name": "limited", "kind": "suppression", "until": {"time_limit": "10s"}}

PLAIN, TYPED = [b"k%d" % at for at in range(4)], [struct.pack(">i", at) for at in (7, -7)]
NEW, LAST_S = {"plain": b"new", "typed": struct.pack(">i", 8)}, 100
"""A key that only the last batch has, and the second of its record."""

DAMAGED = [b"\0\0\0\0\7\5", b"junk\xff"]
"""Values in no format of a registry."""


def operators(schemas: Path) -> dict[str, dict[str, Any]]:
    """Operators of every kind, and pipelines over values of every typed format."""
    read = {"avro": avro(schemas), "protobuf": protobuf(schemas)}
    of_a_format = {
        name: {"kind": "pipeline", "input": {"topic": "in", "key": "int32", "value": value}, "steps": [LIMITED]}
        for name, value in read.items()
    }
    return {
        "limited": SUPPRESSION,
        "table": TABLE,
        "counts": WINDOWS,
        "numbers": SUPPRESSION | NUMBERS,
        "joined": JOIN | {"input": "in", "output": "joined"},
        "streams": STREAMS | {"before": "5s", "after": "5s", "grace": "1s"},
        "once": {"kind": "deduplicate", "input": "in", "output": "once", "within": "10s", "grace": "5s"},
        "chain": PIPELINE,
        "enriched": PIPELINE | {"steps": [{"filter": "delay > 0"}, {"name": "priced"} | JOIN, LIMITED]},
        **of_a_format,
    }


def records_of(name: str) -> list[Row]:
    """What an operator reads: values of its format and others, keys that come again, and keys of no format.

    Those of pipelines over JSON are UTF-8: their views have strings, and Arrow refuses others that come from Spark.
    """
    match name:
        case "avro":
            return _at_seconds([*TYPED, b"none"], [flight(), flight(weather=None), flight(delay=None), *DAMAGED])
        case "protobuf":
            return _at_seconds([*TYPED, b"none"], [WINDY, CALM, *DAMAGED])
        case "chain" | "enriched":
            delays = [b'{"delay": %d}' % at for at in range(6)]
            return _at_seconds(PLAIN, [*(each for each in HOSTILE if each.isascii()), *delays])
    return _at_seconds([*PLAIN, *TYPED], [*HOSTILE, *TYPED])


def _at_seconds(keys: Sequence[bytes], values: Sequence[bytes]) -> list[Row]:
    return [record(keys[at % len(keys)], value, 2 * at, at) for at, value in enumerate(values)]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """An application whose operators have held, emitted, released and refused records.

    The second batch has a record of a new key that is far ahead, and one that is late.
    """
    folder = tmp_path_factory.mktemp("views")
    (folder / "17.avsc").write_text(json.dumps(FLIGHT))
    (folder / "5.proto").write_text(REPORT)
    found = application(folder, **operators(folder))
    for name in found.operators:
        log, rows = Written(found, name), records_of(name)
        if name == "streams":
            rows = [row._replace(port=row.offset % 2) for row in rows]
        log.batch(rows)
        key = NEW["typed" if name in ("avro", "protobuf", "numbers") else "plain"]
        value = b'{"delay": 9}' if name in ("chain", "enriched") else rows[0].value
        log.batch([record(key, value, LAST_S, 100), rows[-1]._replace(offset=101)])
    return found


@pytest.fixture(scope="module")
def views(given: Application) -> list[OperatorViews]:
    return views_of(KnownLogs(given).as_of(None, None), given.operators)


@pytest.fixture(scope="module")
def in_spark(given: Application) -> Iterator[Any]:
    """The session of Spark, with all views."""
    from tidegate.runtime.spark.session import open_session
    from tidegate.spark import register_views

    with open_session("views", "local[1]", given.lake) as running:
        spark = running.newSession()  # other tests of the process keep their settings and views
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.shuffle.partitions", "1")  # with 200, a view takes seconds
        register_views(spark, given)
        yield spark


FULL = {
    "limited": ("emissions", "buffer"),
    "table": ("history",),
    "counts": ("emissions", "late", "windows"),
    "numbers": ("emissions", "buffer"),
    "joined": ("emissions", "buffer"),
    "streams": ("emissions", "late", "buffer"),
    "once": ("emissions", "late", "remembered"),
    "chain": ("emissions", "rejected", "steps", "limited_log", "limited_buffer"),
    "enriched": ("emissions", "rejected", "priced_buffer", "steps", "limited_log"),
    "avro": ("emissions", "steps", "limited_emissions", "limited_buffer"),
    "protobuf": ("emissions", "steps", "limited_emissions", "limited_buffer"),
}
"""Views of each operator that have rows, so that a comparison shows something."""


@pytest.mark.parametrize("name", FULL)
def test_every_view_has_the_rows_that_it_has_in_spark(views: list[OperatorViews], in_spark: Any, name: str) -> None:
    from tidegate.runtime.spark.queries import rows_of

    [of_operator] = [each for each in views if each.log == f"{name}_log"]
    full = set()
    with duckdb.connect() as connection:
        define(connection, [of_operator], lambda each: LogVersion.at(open_lake(each.place), each.version).dataset())
        for view in of_operator.views:
            ours = connection.execute(f"SELECT * FROM {view}").to_arrow_table()
            theirs = rows_of(in_spark, f"SELECT * FROM {view}", "")
            assert ours.column_names == theirs.column_names, view
            assert _sorted(ours) == _sorted(theirs), view
            full |= {view} if len(ours) else set()
    assert full >= {f"{name}_{each}" for each in FULL[name]}, "a comparison of no rows shows nothing"


def _sorted(rows: pa.Table) -> list[str]:
    """The rows as text that does not depend on their order, nor on whether a time says that it is in UTC."""
    return sorted(repr([_in_utc(value) for value in row.values()]) for row in rows.to_pylist())


def _in_utc(value: object) -> object:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
