"""The join of two streaming DataFrames as of the event time, compared with the same join in Spark's own streaming.

600,000 rows of the stream and 60,000 of the table, 10,000 keys, rows up to 5 s out of order, 5 s grace, in 3 commits of
two Delta tables; a batch takes one commit of each. The peer is `transform_with_state.py`. Both write their results to
Delta, in one Spark session. Each is timed from the end of a first batch of few rows, which starts its Python workers,
until all rows are processed. The results of both must be the same.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import tidegate as tg
import tidegate.spark
from benchmarks.load import FIRST_TIMESTAMP, KEYS, LATENESS_MS, RECORDS_PER_MS, columns, outgoing
from benchmarks.peers import transform_with_state
from benchmarks.peers.equal_results import Side, rates_of_equals
from benchmarks.suppression import ratio, session

ROWS, COMMITS, FIRST_ROWS = 600_000, 3, 100
ROWS_PER_VERSION = 10
END, ENDS = FIRST_TIMESTAMP + 1_000_000_000, 100
NAME = "joined"
COLUMNS: Any = {"key": "key", "value": "value", "timestamp": "at", "order_by": "number"}


def measure(say: Any, rows: int = ROWS) -> dict[str, float]:
    """Return the rows per second of both sides, of both streams together, and the median ratio.

    `rows`: of the stream. Raise AssertionError if the results of the last runs differ.
    """
    versions = rows // ROWS_PER_VERSION
    with tempfile.TemporaryDirectory() as name, session(transform_with_state.SETTINGS) as spark:
        folder, numbers = Path(name), count()
        say(f"writing {rows:,} rows of the stream and {versions:,} of the table")
        write(folder / "stream", rows, rows // RECORDS_PER_MS, seed=1)
        write(folder / "table", versions, rows // RECORDS_PER_MS, seed=2)

        def new() -> Path:
            return folder / f"output_{next(numbers)}"

        sides = {
            "Tidegate": Side(partial(join_s, spark, folder), results),
            "transformWithState": Side(partial(peer_s, spark, folder), peer_results),
        }
        for side in sides.values():
            side.run(new())  # warm-up: compiles kernels, and the code of Spark
        rates = rates_of_equals(sides, new, say, rows + versions)
    return {
        "rows_per_s": median(rates["Tidegate"]),
        "transform_with_state_rows_per_s": median(rates["transformWithState"]),
        "ratio": ratio(*rates.values()),
    }


def write(folder: Path, rows: int, span_ms: int, seed: int) -> None:
    """Write the load as COMMITS commits of a Delta table, behind one of few rows; those of the last end the stream."""
    key, at = columns(rows, KEYS, span_ms, seed)
    first, others = np.split(np.arange(rows), [FIRST_ROWS])
    for chosen in (first, *np.array_split(others, COMMITS)):
        _append(folder, chosen, key[chosen], at[chosen])
    ends = np.arange(ENDS)
    _append(folder, rows + ends, KEYS + ends, np.full(ENDS, END))


def _append(folder: Path, number: Any, key: Any, at: Any) -> None:
    made = outgoing(number, key, at)
    texts = {"key": made.key.cast(pa.string()), "value": made.value.cast(pa.string())}
    write_deltalake(folder, pa.table({**texts, "at": at, "number": number}), mode="append")


def _source(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(folder))


def join_s(spark: SparkSession, folder: Path, output: Path) -> float:
    """Return the seconds of Tidegate's join."""
    table = tidegate.spark.table(_source(spark, folder / "table"), **COLUMNS, history=f"{2 * LATENESS_MS}ms")
    stream = tidegate.spark.stream(_source(spark, folder / "stream"), **COLUMNS)
    chain = stream.join(table, how="left", grace=f"{LATENESS_MS}ms")
    started = chain.start(NAME, lake=output, state=output / "state", trigger={"availableNow": True})
    return _seconds(started.query)


def peer_s(spark: SparkSession, folder: Path, output: Path) -> float:
    """Return the seconds of the peer."""
    stream, table = (_source(spark, folder / name) for name in ("stream", "table"))
    joined = transform_with_state.as_of_join(stream, table, LATENESS_MS)
    writer = joined.writeStream.format("delta").option("checkpointLocation", f"{output}_checkpoint")
    return _seconds(writer.trigger(availableNow=True).start(str(output)))


def _seconds(query: StreamingQuery) -> float:
    """Wait until the query has processed all rows; return how long it took from the end of its first batch."""
    query.awaitTermination()
    _, *batches = query.recentProgress
    return float(sum(batch.durationMs["triggerExecution"] for batch in batches)) / 1_000


def results(output: Path) -> Counter[Any]:
    """Return how often each result of Tidegate's join occurs: key, time and value."""
    return _counted(tg.read_log(output / NAME).read_all())


def peer_results(output: Path) -> Counter[Any]:
    """Return the same of the peer."""
    return _counted(DeltaTable(output).to_pyarrow_table())


def _counted(rows: pa.Table) -> Counter[Any]:
    return Counter(zip(*(rows[name].to_pylist() for name in ("key", "timestamp", "value")), strict=True))
