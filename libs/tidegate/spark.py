"""The Python API for PySpark programs: `import tidegate.spark`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from tidegate.contracts.config import OperatorRules, read
from tidegate.operators.registry import kind_of
from tidegate.operators.views import deprecations, register_log, register_outputs
from tidegate.runtime.configuration.application import Application, load
from tidegate.runtime.spark.asof import asof_join
from tidegate.runtime.spark.history import history_as_of
from tidegate.runtime.spark.s3a import let_read
from tidegate.runtime.stream.config import StreamConfig
from tidegate.state.earlier_batches import has_version
from tidegate.state.lake.opening import open_lake

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["asof_join", "history_as_of", "register_views", "start"]


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
    from tidegate.runtime.stream.query import start_query

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
    return start_query(stream_df, read(StreamConfig, raw), columns, trigger)


def query(spark: Any, application: Application, text: str, version: int | None = None) -> Any:
    """Return the result of the Spark SQL query, an Arrow table, with the views of every operator registered.

    Columns of equal names get a number: `key`, `key_2`. Warn of deprecated views in the query. Raise UserError, which
    names the views, if Spark cannot run the query; also for a statement that changes something, such as INSERT or
    DROP, which then does not run.
    """
    from tidegate.runtime.spark.queries import rows_of

    for line in deprecations(text, application.operators):
        warn(line, FutureWarning, stacklevel=2)
    views = register_views(spark, application, version)
    named = ", ".join(views) or "none: no operator of the file has a log of that version"
    return rows_of(spark, text, f"the views are: {named}")


def register_views(spark: Any, file: str | Path | Application, version: int | None = None) -> list[str]:
    """Register the views of each operator of the file that has a log, and return their names.

    With a version, views show the logs as of it; an operator whose log has no such version gets no views.
    """
    application = file if isinstance(file, Application) else load(Path(file))
    views: list[str] = []
    for name, config in application.operators.items():
        log = open_lake(application.lake / name)
        if has_version(log, version):
            let_read(spark, log.place)
            register_log(spark, name, log.place.for_spark, version)
            views += [f"{name}_log", *register_outputs(spark, name, config)]
            views += kind_of(config.kind).register_views(spark, name, config)
    return views
