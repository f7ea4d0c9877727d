"""Many orders of arrival of a stream and a table in one query, and the program that joins them.

`python -m tests.runtime.stream.joined FOLDER PARTITIONS` runs the join on the inputs in FOLDER. Every partition has an
order of arrival of its own, with keys of its own.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

import tidegate.spark
from tests.pipelines.test_own_tables import END, GRACE, Arrival, arrivals_of, stream, table
from tidegate.contracts.records import TABLE_PORT
from tidegate.runtime.spark.session import start_session

COMMITS = 5
NAME = "joined"
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), ("at", pa.int64()), ("number", pa.int64())])


def keys_by_partition(spark: Any, partitions: int) -> list[list[str]]:
    """Five keys for each partition of the query: those of `arrivals_of`, and the one that ends it."""
    numbered = spark.range(60 * partitions).selectExpr("CAST(id AS STRING) AS key")
    found: list[list[str]] = [[] for _ in range(partitions)]
    for row in numbered.selectExpr("key", f"pmod(hash(CAST(key AS BINARY)), {partitions}) AS at").collect():
        found[row["at"]].append(row["key"])
    assert min(map(len, found)) >= 5
    return found


def write(folder: Path, keys: Sequence[Sequence[str]], seed: int) -> None:
    """Write both inputs, in COMMITS commits; a last one ends them, so that nothing is held."""
    chance = random.Random(seed)
    pieces: list[dict[int, list[Arrival]]] = [{0: [], 1: []} for _ in range(COMMITS + 1)]
    for own in keys:
        named = {**{name.encode(): key for name, key in zip("abcd", own, strict=False)}, b"end": own[4]}
        for side in arrivals_of(chance):
            cuts = sorted(chance.choices(range(len(side) + 1), k=COMMITS - 1))
            for piece, first, last in zip(pieces, [0, *cuts], [*cuts, len(side)], strict=False):
                for each in side[first:last]:
                    piece[each.port].append(each._replace(key=named[each.key].encode()))
        for each in (stream(named[b"end"].encode(), END), table(named[b"end"].encode(), b"0", END)):
            pieces[-1][each.port].append(each)
    number = 0
    for piece in pieces:
        for port, arrivals in piece.items():
            rows = []
            for each in arrivals:
                number += 1
                value = None if each.value is None else each.value.decode()
                rows.append({"key": each.key.decode(), "value": value, "at": each.time, "number": number})
            write_deltalake(folder_of(folder, port), pa.Table.from_pylist(rows, SCHEMA), mode="append")


def folder_of(folder: Path, port: int) -> str:
    return str(folder / ("table" if port == TABLE_PORT else "stream"))


def start(spark: Any, folder: Path, partitions: int) -> Any:
    """Start the join of what is there, one commit of each side in a batch."""
    named = {"key": "key", "value": "value", "timestamp": "at", "order_by": "number"}
    sides = (
        spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(folder_of(folder, port))
        for port in range(2)
    )
    of_stream, of_table = sides
    limits = tidegate.spark.table(of_table, **named, history=f"{2 * GRACE}ms")
    chain = tidegate.spark.stream(of_stream, **named).join(limits, how="left", grace=f"{GRACE}ms")
    folders = {"lake": folder / "lake", "state": folder / "state", "partitions": partitions}
    return chain.start(NAME, trigger={"availableNow": True}, **folders)


if __name__ == "__main__":
    session = start_session("joined", "local[2]")
    start(session, Path(sys.argv[1]), int(sys.argv[2])).query.awaitTermination()
