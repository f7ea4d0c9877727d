"""Operators on Delta tables that are written in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.lakes import lake_at
from tests.patience import wait_for
from tidegate import SuppressionRules
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.spark import start
from tidegate.state import earlier_batches
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

PARTITIONS = 3
NAME = "updates"

SCHEMA = pa.schema([("id", pa.string()), ("payload", pa.binary()), ("at", pa.int64()), ("number", pa.int64())])


@dataclass(frozen=True)
class Place:
    """A folder with an input table, and an operator on it; every commit of the input is a Spark batch of its own."""

    spark: Any
    folder: Path
    rules: SuppressionRules = field(default_factory=lambda: SuppressionRules(until={"time_limit": "10ms"}))

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """The rows are in the input, in one commit and one file."""
        write_deltalake(str(self.folder / "input"), pa.Table.from_pylist(list(rows), SCHEMA), mode="append")

    def start(self, **changes: Any) -> Any:
        """A query that takes what is there, one commit a batch, and ends."""
        rows = self.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(self.folder / "input"))
        named = {
            "lake": self.folder / "lake",
            "state": self.folder / "state",
            "name": NAME,
            "key": "id",
            "value": "payload",
            "timestamp": "at",
            "order_by": "number",
            "partitions": PARTITIONS,
            "trigger": {"availableNow": True},
            **changes,
        }
        return start(rows, self.rules, **named)

    def run(self, **changes: Any) -> None:
        """Everything that is in the input is in the log. Raises what has ended the query."""
        self.start(**changes).awaitTermination()

    def await_batch(self, spark_batch: int) -> None:
        """Return once Spark's batch is committed."""
        wait_for(lambda: self.metas()[-1].query_batch >= spark_batch, f"the commit of Spark batch {spark_batch}")

    @property
    def checkpoint(self) -> Path:
        """The folder that Spark notes its progress in."""
        return self.folder / "lake" / "_checkpoints" / NAME

    def log(self) -> OperatorLog:
        """The log as it is now."""
        return LogVersion.at(lake_at(self.folder / "lake" / NAME), None)

    def metas(self) -> list[BatchMeta]:
        """Every batch's metadata, oldest first."""
        return earlier_batches.metas(self.log())

    def rows(self, kind: str, partition: int | None = None) -> list[dict[str, Any]]:
        """The log's rows of a kind, without the batch that wrote them."""
        found = self.log().read(kind, partition)
        return found.drop_columns(["batch", "seq"]).to_pylist()

    def outputs(self) -> dict[str, list[dict[str, Any]]]:
        """All that a reader of the log may see of what the operator did, whatever the batches were."""
        return {kind: self.rows(kind) for kind in ("emission", "late", "rejected")}

    def held(self) -> dict[bytes, int]:
        """The keys that are held, and the offsets of their newest records."""
        rows = self.log().read("state")
        newest = {row["key"]: row for row in rows.to_pylist()}
        return {key: row["offset"] for key, row in newest.items() if row["op"] == "put"}


@pytest.fixture
def place(spark, tmp_path):
    """`place("here", max_lateness="5ms")`: a place in a folder of its own, with other rules."""

    def make(name: str = "here", **rules: Any) -> Place:
        chosen = SuppressionRules.model_validate({"until": {"time_limit": "10ms"}, **rules})
        return Place(spark, tmp_path / name, chosen)

    return make


def records_in(metas: Sequence[BatchMeta]) -> int:
    """The records that the batches have counted."""
    return sum(change.counts.records_in for meta in metas for change in meta.changed.values())


def partitions_of(spark: Any, keys: Sequence[bytes | None]) -> dict[bytes | None, int]:
    """Spark's own answer to where keys belong: pmod(hash(key), PARTITIONS)."""
    rows = spark.createDataFrame([(key,) for key in keys], "key binary")
    found = rows.selectExpr("key", f"pmod(hash(key), {PARTITIONS}) AS partition").collect()
    return {None if row.key is None else bytes(row.key): row.partition for row in found}
