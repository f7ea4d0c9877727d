"""The join on batch DataFrames equals a search by hand, and the operator with enough grace."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from tests.end_to_end.readers.tables import KEYS, PARTITIONS, TABLE, TableLog, random_writes
from tidegate.contracts.errors import UserError
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinRules
from tidegate.operators.table_history import TableHistoryRules
from tidegate.spark import asof_join, register_views

pytestmark = pytest.mark.spark

STREAM = "k binary, v string, `at.ms` long"
HISTORY = "key binary, value binary, valid_from timestamp, valid_to timestamp"


def times(*moments):
    return [None if ms is None else datetime.fromtimestamp(ms / 1_000, UTC) for ms in moments]


@pytest.fixture(scope="module")
def written(tmp_path_factory, new_lake):
    """A history, and records of all times of it; some of keys that it lacks."""
    table = TableLog(new_lake(tmp_path_factory.mktemp("lake")), TableHistoryRules(history_retention="1d"))
    for batch in range(3):
        table.write(random_writes(batch, 60, first=100 * batch, span=150))
    chance = random.Random(7)
    partitions = [chance.randrange(PARTITIONS) for _ in range(200)]
    keys = [chance.choice([*KEYS[partition::PARTITIONS], b"unknown%d" % partition]) for partition in partitions]
    return table, list(zip(partitions, keys, (chance.randrange(450) for _ in keys), strict=True))


def by_operator(table, records, how):
    """(key, value, timestamp, table value, valid_from, cause) of what the operator gives: all table rows first."""
    found = Counter()
    for partition, state in enumerate(table.states):
        operator = StreamTableJoin(StreamTableJoinRules(table=TABLE, join=how, grace="1h", joiner=f"{__name__}:beside"))
        join = operator.open(MemoryStorage(operator.layout))
        join.read_table(state)
        own = [(at, key, ms) for at, (of, key, ms) in enumerate(records) if of == partition]
        join.step(Records.from_rows([Row(key, b"%d" % at, ms, at) for at, key, ms in own]), 0)
        for row in join.flush().emissions.to_pylist():
            value, _, met = row["value"].partition(b"|")
            version = None if row["valid_from"] is None else met
            found[row["key"], value, row["timestamp"], version, row["valid_from"], row["cause"]] += 1
    return found


def beside(stream, table):
    """Both values, a bar between them."""
    import pyarrow as pa

    sides = zip(stream["value"].to_pylist(), table["value"].to_pylist(), strict=True)
    return pa.array([value + b"|" + (met or b"") for value, met in sides])


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.spark_reads
def test_an_as_of_join_of_a_dataframe_equals_the_operator(spark, written, how):
    table, records = written
    register_views(spark, table.application)
    stream = spark.createDataFrame([(key, str(at), ms) for at, (_, key, ms) in enumerate(records)], STREAM)
    joined = asof_join(stream, spark.table(f"{TABLE}_history"), key="k", timestamp="at.ms", how=how)
    rows = joined.withColumn("valid_from", F.unix_millis("valid_from")).collect()
    by_spark = Counter(
        (bytes(key), value.encode(), ms, None if met is None else bytes(met), valid_from, status)
        for key, value, ms, met, valid_from, status in rows
    )
    assert by_spark == by_operator(table, records, how)
    assert by_spark.total() > 50


def test_a_version_is_joined_from_its_first_moment_to_the_last_one_before_its_end(spark):
    #   A: [10, 20)   nothing: [20, 30)   B: from 30
    history = [(b"a", b"A", *times(10, 20)), (b"a", b"B", *times(30, None)), (None, b"N", *times(0, None))]
    moments = [9, 10, 19, 20, 29, 30, 10**6, None]
    stream = spark.createDataFrame(
        [("a", *times(ms)) for ms in moments] + [(None, *times(15))], "k string, at timestamp"
    )
    joined = asof_join(stream, spark.createDataFrame(history, HISTORY), key="k", timestamp="at", how="left")
    met = {(row.k, row.at): (row.table_value, row.status) for row in joined.collect()}
    values = [None, b"A", b"A", None, None, b"B", b"B", None, None]
    assert [met[row.k, row.at][0] for row in stream.collect()] == values
    assert {status for value, status in met.values() if value is None} == {"unmatched"}
    assert joined.columns == ["k", "at", "table_value", "valid_from", "status"]


def test_joined_rows_of_a_key_with_many_versions_are_not_duplicated(spark):
    count = 20_000
    history = spark.range(count).selectExpr(
        "'a' AS key",
        "id AS value",
        "timestamp_millis(id * 10) AS valid_from",
        "timestamp_millis(id * 10 + 10) AS valid_to",
    )
    stream = spark.range(count).selectExpr("'a' AS k", "id * 10 + 9 AS at", "id AS expected")
    joined = asof_join(stream, history, key="k", timestamp="at")
    assert joined.where("table_value = expected").count() == count


def test_an_impossible_join_is_refused_with_a_remedy(spark):
    history = spark.createDataFrame([], HISTORY)
    stream = spark.createDataFrame([], "k binary, at long, status string")
    with pytest.raises(UserError, match="no such column"):
        asof_join(stream, history, key="key", timestamp="at")
    with pytest.raises(UserError, match="columns of the result"):
        asof_join(stream, history, key="k", timestamp="at")
    with pytest.raises(UserError, match="history lacks columns"):
        asof_join(stream.drop("status"), history.drop("valid_to"), key="k", timestamp="at")
    with pytest.raises(UserError, match="keys are of windows"):
        asof_join(stream.drop("status"), history.selectExpr("*", "0L AS window_start"), key="k", timestamp="at")
    with pytest.raises(UserError, match="no such join"):
        asof_join(stream.drop("status"), history, key="k", timestamp="at", how="right")
