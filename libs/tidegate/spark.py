"""The Python API for PySpark programs: `import tidegate.spark`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.application.frames.beginning import stream, table
from tidegate.application.frames.joining import join_streams
from tidegate.application.frames.query import Query
from tidegate.contracts.config.base import read
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application, load
from tidegate.runtime.spark import views
from tidegate.runtime.spark.asof import asof_join
from tidegate.runtime.spark.history import history_as_of
from tidegate.runtime.stream.config import StreamConfig

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = [
    "Query",
    "asof_join",
    "history_as_of",
    "join_streams",
    "register_format",
    "register_views",
    "start",
    "start_session",
    "stream",
    "table",
]


def start(
    stream_df: DataFrame,
    operator: OperatorRules,
    *,
    lake: str | Path,
    key: Column | str,
    value: Column | str,
    timestamp: Column | str,
    order_by: Column | str | Sequence[Column | str],
    name: str | None = None,
    partitions: int = 4,
    keep_output: str = "forever",
    state: str | Path = "state",
    checkpoint: str | Path | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start the operator on a streaming DataFrame. Its log is the Delta table <lake>/<name>.

    `key`, `value`: strings or binary; `timestamp`: a timestamp, or whole ms; `order_by`: columns that give the order of
    rows within a batch. Rows with a null key or a null timestamp become `rejected` rows. Emissions stay in the log.

    `name`: default, the operator's kind. `partitions`: fixed in the log. `keep_output`: such as `30d`. `state`: a
    folder on each machine's local disk. `checkpoint`: Spark's folder; default <lake>/_checkpoints/<name>. `trigger`: as
    for `DataStreamWriter.trigger`, such as `{"availableNow": True}`; default: the next batch starts when the last one
    ends.

    Raises ConfigurationError, UserError; StateError if log, checkpoint and partitions do not belong together.
    """
    from tidegate.runtime.stream.columns import StreamColumns
    from tidegate.runtime.stream.query import check_stream, start_query

    if operator.streams > 1:
        remedy = "write tidegate.spark.join_streams(left, right, ...).start(NAME, lake=...)"
        raise UserError("the rules are those of a join of two streams", value=operator.kind, remedy=remedy)
    called = name or operator.kind
    raw = {
        "rules": operator,
        "name": called,
        "lake": lake,
        "state": state,
        "checkpoint": checkpoint or f"{lake}/_checkpoints/{called}",
        "partitions": partitions,
        "keep_output": keep_output,
    }
    columns = StreamColumns(key=key, value=value, timestamp=timestamp, order_by=order_by)
    config = read(StreamConfig, raw)
    check_stream(stream_df)
    columns.check(stream_df)
    return start_query(stream_df, config, columns, trigger)


def start_session(name: str, master: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session with Delta that has the jars of `tidegate setup` and runs each task once.

    Operators run in any session with Delta, too. `master`: such as `local[2]`. `conf`: further settings of Spark.

    Raises UserError if Java or the jars are missing, EngineError if Spark does not start.
    """
    from tidegate.runtime.spark import session

    return session.start_session(name, master, conf)


def query(spark: Any, application: Application, text: str, version: int | None = None) -> Any:
    """Return the result of the Spark SQL query, an Arrow table, with the views of every operator registered.

    Columns of equal names get a number: `key`, `key_2`. Warn of deprecated views in the query. Raise UserError, which
    names the views, if Spark cannot run the query; also for a statement that changes something, such as INSERT or
    DROP, which then does not run.
    """
    return views.query(spark, application.lake, application.operators, text, version)


def register_views(spark: Any, file: str | Path | Application, version: int | None = None) -> list[str]:
    """Register the views of each operator of the file that has a log, and return their names.

    With a version, views show the logs as of it; an operator whose log has no such version gets no views.
    """
    application = file if isinstance(file, Application) else load(Path(file))
    operators = application.operators.items()
    return [
        view for name, each in operators for view in views.register(spark, application.lake / name, name, each, version)
    ]


def register_format(spark: Any) -> None:
    """Let the session read operator logs: `spark.read.format("tidegate").load("LAKE/OPERATOR")`; no file is needed.

    Options: `view`, which is `emissions` (default), `late`, `rejected`, `state`, or of a table `history`; `step`, of a
    pipeline; `batch`, as of which it is; `asOf`, of a history: what was valid at that time, in ms or ISO 8601.

    The columns `key` and `value` have the operator's formats.
    """
    from tidegate.runtime.spark.data_source import register

    register(spark)
