"""The format `tidegate` of Spark: a Python data source over an operator log.

Spark passes options as text and calls the reader in processes without a session: all rows come from `log_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import milliseconds_of
from tidegate.runtime.task import log_rows
from tidegate.runtime.task.log_rows import LogRows
from tidegate.state.lake.place import OPTIONS as STORE_OPTIONS
from tidegate.state.lake.place import place_named

FORMAT = "tidegate"
OPTIONS = ("path", "view", "step", "batch", "asOf")
LAKE_OPTIONS = frozenset(name for names in STORE_OPTIONS.values() for name in names)
"""Options that say how an object store is reached, as `lake_options` in configurations."""


def register(spark: Any) -> None:
    """Register the format in the session."""
    spark.dataSource.register(LogDataSource)


class LogDataSource(DataSource):  # type: ignore[misc]
    """A view of an operator log, as `load` and the options name it."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns. Raise UserError if the options name nothing that there is."""
        return from_arrow_schema(rows_of(self.options).schema, prefer_timestamp_ntz=True)

    def reader(self, schema: Any) -> LogReader:
        """Return the reader of the rows, which stays at the log's present version."""
        return LogReader(rows_of(self.options))


class LogReader(DataSourceReader):  # type: ignore[misc]
    """Reads each partition of the log in a task of its own.

    It takes no filters: Spark 4.2 keeps the plan of a reader that has taken one for later queries of the same
    DataFrame, which would miss rows.
    """

    def __init__(self, rows: LogRows) -> None:
        self._rows = rows

    def partitions(self) -> list[InputPartition]:
        """Return the partitions of the log."""
        return [InputPartition(partition) for partition in self._rows.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition, in Arrow."""
        yield from self._rows.read(partition.value)


def rows_of(options: Any) -> LogRows:
    """Return the rows that the options name. Raise UserError for an option or a value that there is not."""
    known = {*map(str.lower, OPTIONS), *LAKE_OPTIONS}
    given = {str(option).lower(): text for option, text in options.items()}
    if unknown := [option for option in given if option not in known]:
        raise UserError(
            "the format has no such option",
            value=unknown[0],
            remedy=f"options: {', '.join([*OPTIONS, *sorted(LAKE_OPTIONS)])}",
        )
    if not given.get("path"):
        raise UserError("no log is named", value=FORMAT, remedy='write .load("LAKE/OPERATOR")')
    return log_rows.found(
        place_named(given["path"], {name: text for name, text in given.items() if name in LAKE_OPTIONS}),
        view=given.get("view", "emissions"),
        step=given.get("step"),
        batch=None if "batch" not in given else _whole_number(given["batch"]),
        as_of=None if "asof" not in given else _milliseconds(given["asof"]),
    )


def _whole_number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UserError("not the number of a batch", value=text, remedy="write a whole number, as in the column batch")
    return int(text)


def _milliseconds(text: str) -> int:
    """Return the time in ms: a whole number, or an ISO 8601 time, which is in UTC unless it says otherwise."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        remedy = "write ms since the epoch, or 2013-01-01T12:00:00, which is in UTC, or with an offset"
        raise UserError("not a time", value=text, remedy=remedy) from None
    return milliseconds_of(time)
