"""The log's entries and checkpoints, which Tidegate writes itself, as Spark reads them."""

from __future__ import annotations

import pytest

from tests.state.logs import aged_log, commit_rows, compact_as, rows
from tests.state.test_log_readers import COLUMNS, by_tidegate, plain
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = [pytest.mark.spark, pytest.mark.spark_reads]


@pytest.fixture
def log(tmp_path, new_lake, monkeypatch) -> OperatorLog:
    return aged_log(new_lake(tmp_path / "lake"), monkeypatch)


def by_spark(spark, log: OperatorLog, version: int) -> list[tuple]:
    frame = spark.read.format("delta").option("versionAsOf", version).load(log.place.for_spark)
    return plain(frame.select(*COLUMNS).collect())


def test_spark_reads_any_version_of_the_window(spark, log):
    for version in (10, 13, 18, 19, log.version):
        assert by_spark(spark, log, version) == by_tidegate(log.place, version)


def test_spark_reads_the_log_s_history_and_its_checkpoints(spark, log):
    history = spark.sql(f"DESCRIBE HISTORY delta.`{log.place.for_spark}`").collect()
    assert [row["version"] for row in history] == list(range(log.version, 9, -1))
    assert {row["operation"] for row in history} == {"WRITE"}


def test_a_delta_stream_sees_each_emission_once_across_compactions_checkpoints_and_clean_up(spark, tmp_path, log):
    sink, checkpoint = str(tmp_path / "sink"), str(tmp_path / "checkpoint")
    for start in (25, 35, 45):
        stream = spark.readStream.format("delta").load(log.place.for_spark).where("kind = 'emission'")
        query = stream.writeStream.format("delta").option("checkpointLocation", checkpoint).trigger(availableNow=True)
        query.start(sink).awaitTermination()
        for batch in range(start, start + 9):
            commit_rows(log, batch, {("emission", batch % 2): rows(f"e{batch}", "x")})
        compact_as(log, start + 9)
    query.start(sink).awaitTermination()
    seen = spark.read.format("delta").load(sink).select("partition", "batch", "seq").collect()
    emitted = log.read("emission", columns=["partition", "batch", "seq"]).to_pylist()
    assert plain(seen) == plain(row.values() for row in emitted)
    assert len(seen) == len(set(seen)) == 22 + 2 * 27


def test_a_foreign_optimize_by_spark_is_tolerated_while_the_driver_runs(spark, log):
    before = plain(row.values() for row in log.read("emission").select(["batch", "seq", "key"]).to_pylist())
    spark.sql(f"OPTIMIZE delta.`{log.place.for_spark}`")
    commit_rows(log, 30, {("late", 0): rows("l")})
    after = plain(row.values() for row in log.read("emission").select(["batch", "seq", "key"]).to_pylist())
    assert after == before
    fresh = LogVersion.at(log.lake, None)
    assert len(fresh.read("state")) == fresh.size.state_rows, "a file of another program is looked into when it is read"
    assert fresh.size == log.size
