"""The join of two streaming DataFrames, against its reference and in Spark SQL."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
import tidegate.spark
from tests.patience import PATIENCE_S
from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.operators.stream_stream_join import StreamStreamJoinRules

pytestmark = pytest.mark.spark

PATIENCE = f"{PATIENCE_S}s"
SCHEMA = "key string, at long, number long"
SIDES = {"key": "key", "timestamp": "at", "order_by": "number"}
END = 10_000


def stream_of(spark: Any, folder: Path, pieces: list[list[tuple[str, int, int]]]) -> Any:
    """A stream of the rows, one piece in a batch."""
    for piece in pieces:
        spark.createDataFrame(piece, SCHEMA).coalesce(1).write.format("delta").mode("append").save(str(folder))
    return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(folder))


def made(seed: int, pieces: int) -> list[list[tuple[str, int, int]]]:
    """Rows that are out of order by less than 50, in pieces; the last one is later than all windows of the others."""
    chance, found = random.Random(seed), []
    for piece in range(pieces):
        times = [max(0, 40 * piece + chance.randrange(40) - chance.randrange(10)) for _ in range(30)]
        found.append([(chance.choice("abcdef"), time, number) for number, time in enumerate(times)])
    return [*found, [(key, END, 0) for key in "abcdef"]]


def start(spark: Any, folder: Path, how: Any, pieces: int = 4) -> Any:
    """Start a join of two streams of random rows that ends with them."""
    left, right = (stream_of(spark, folder / str(seed), made(seed, pieces)) for seed in (1, 2))
    sides = (tidegate.spark.stream(each, **SIDES) for each in (left, right))
    joined = tidegate.spark.join_streams(*sides, how=how, before="5ms", after="9ms", grace="100ms")
    folders = {"lake": folder / "lake", "state": folder / "state"}
    return joined.start("pairs", trigger={"availableNow": True}, partitions=2, **folders)


def expected(spark: Any, folder: Path, how: str) -> Counter[Any]:
    """The pairs by Spark SQL over all rows but the last ones; numbers are null where there is no partner."""
    left, right = (spark.read.format("delta").load(str(folder / str(seed))).where(f"at < {END}") for seed in (1, 2))
    rows = spark.sql(
        f"""SELECT l.key AS left_key, r.key AS right_key, l.at AS left_at, l.number AS left_number, r.at AS right_at,
                   r.number AS right_number
            FROM {{l}} AS l {"FULL" if how == "outer" else how} JOIN {{r}} AS r
            ON l.key = r.key AND r.at BETWEEN l.at - 5 AND l.at + 9""",
        l=left,
        r=right,
    )
    return Counter(tuple(row)[:6] for row in rows.collect())


def emitted(query: Any) -> Counter[Any]:
    """The pairs that the query has emitted, in the form of `expected`."""
    parts = ", ".join(
        f"get_json_object(value, '$.{side}.{name}') AS {side}_{name}"
        for name in ("key", "at", "number")
        for side in ("left", "right")
    )
    rows = query.sql(f"SELECT {parts} FROM pairs_emissions WHERE timestamp < {END}")
    numbers = ("left_at", "left_number", "right_at", "right_number")
    return Counter(
        (row["left_key"], row["right_key"], *(None if row[name] is None else int(row[name]) for name in numbers))
        for row in rows
    )


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
def test_rows_out_of_order_within_the_grace_are_joined_as_spark_sql_joins_all_rows(
    spark: Any, tmp_path: Path, how: str
) -> None:
    query = start(spark, tmp_path, how)
    query.query.awaitTermination()
    assert emitted(query) == expected(spark, tmp_path, how)
    assert [row["key"] for row in query.sql("SELECT key FROM pairs_late")] == []


def test_what_is_held_and_what_is_late_has_its_side(spark: Any, tmp_path: Path) -> None:
    left = stream_of(spark, tmp_path / "left", [[("a", 50, 1), ("a", 7, 2)]])
    right = stream_of(spark, tmp_path / "right", [[("a", 49, 1)]])
    sides = (tidegate.spark.stream(each, **SIDES) for each in (left, right))
    joined = tidegate.spark.join_streams(*sides, how="outer", before="0ms", after="9ms", grace=0)
    with joined.start("pairs", lake=tmp_path / "lake", state=tmp_path / "state", partitions=1) as query:
        query.await_caught_up(PATIENCE)
        held = query.sql("SELECT side, timestamp, waits FROM pairs_buffer ORDER BY timestamp")
        late = query.sql("SELECT side, timestamp, bound FROM pairs_log WHERE kind = 'late'")
    assert [tuple(row.values()) for row in held] == [("left", 50, True)]
    assert [tuple(row.values()) for row in late] == [("left", 7, 41)]


def test_streams_with_steps_and_those_of_topics_are_refused(spark: Any, tmp_path: Path) -> None:
    rows = stream_of(spark, tmp_path / "in", [[("a", 5, 1)]])
    plain = tidegate.spark.stream(rows, **SIDES)
    app = tg.Application("app", kafka="127.0.0.1:9092", lake=tmp_path / "lake", keep_output="1d")
    times: dict[str, Any] = {"how": "inner", "before": 0, "after": "1s", "grace": 0}
    with pytest.raises(UserError, match="has steps already"):
        tidegate.spark.join_streams(plain, plain.filter("number > 0"), **times)
    with pytest.raises(UserError, match="not given a stream on a DataFrame"):
        tidegate.spark.join_streams(app.stream("in", name="joined"), plain, **times)


def test_the_rules_of_a_join_of_two_streams_are_refused_for_one(spark: Any, tmp_path: Path) -> None:
    rows = stream_of(spark, tmp_path / "in", [[("a", 5, 1)]])
    rules = StreamStreamJoinRules.model_validate({"join": "inner", "before": 0, "after": "1s", "grace": 0})
    columns: Any = {"key": "key", "value": "key", "timestamp": "at", "order_by": "number"}
    with pytest.raises(UserError, match="join of two streams"):
        tidegate.spark.start(rows, rules, lake=tmp_path / "lake", **columns)


def test_problems_of_both_streams_come_at_once(spark: Any, tmp_path: Path) -> None:
    rows = stream_of(spark, tmp_path / "in", [[("a", 5, 1)]])
    left = tidegate.spark.stream(rows, key="key", timestamp="when", order_by="number")
    right = tidegate.spark.stream(rows, key="key", timestamp="at", order_by="arrival", max_ahead="1h")
    joined = tidegate.spark.join_streams(left, right, how="inner", before=0, after="1s", grace="soon")
    with pytest.raises(ConfigurationError) as error:
        joined.start("pairs", lake=tmp_path / "lake")
    wheres = [problem.where.split(" ", 1)[1] for problem in error.value.problems]
    assert wheres == [".stream(), timestamp", ".join_streams()", ".stream(), order_0", ".join_streams(), grace"]
