"""A running query of an operator on a streaming DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.application.display import Rows
from tidegate.application.options import Duration, duration_ms
from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.spark import views
from tidegate.runtime.threads import in_background

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    from tidegate.application.frames.result_types import Results
    from tidegate.runtime.stream.config import StreamConfig


class Query:
    """An operator on a streaming DataFrame, running. As a context manager it stops at the end of the block.

    `query`: Spark's query. `configuration`: the operator's rules, its folders and its partitions.
    """

    def __init__(self, spark: Any, query: StreamingQuery, configuration: StreamConfig, results: Results) -> None:
        self._spark, self.query, self.configuration, self._results = spark, query, configuration, results

    @property
    def is_running(self) -> bool:
        """Return whether the query runs."""
        return bool(self.query.isActive)

    def stop(self) -> None:
        """Wait until the running batch is committed, then stop the query."""
        self.query.stop()

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *of: object) -> None:
        self.stop()

    def await_caught_up(self, timeout: Duration = "5m") -> None:
        """Wait until every row that is in the source now has been processed, or until the query has ended.

        Raise EngineError after the timeout, and Spark's error if the query fails.
        """
        done = in_background(self.query.processAllAvailable, "tidegate await_caught_up")
        try:
            done.result(duration_ms(timeout) / 1_000)
        except TimeoutError:
            remedy = "wait longer, or see what the query does: query.lastProgress"
            raise EngineError(f"{self.configuration.name} has not caught up", value=timeout, remedy=remedy) from None

    def emissions(self) -> DataFrame:
        """Return the results as a streaming DataFrame: those that are there, then new ones, each once.

        Keys and values are as in the log, and in its views: structs are JSON text.
        """
        return self._following("emissions")

    def results(self) -> DataFrame:
        """Return the results like `emissions`, with typed keys and values: structs, or the number that is counted.

        Keys have the type that they have in the DataFrame. Values that the steps pass on have the types of the
        DataFrame, such as decimals, timestamps and arrays, and so do fields that no expression computes; those of a
        join are structs of `stream` and `table`, or of `left` and `right`. Fields that steps compute have the types of
        their expressions. A value that is text or binary stays that.
        """
        return self._results.typed(self.emissions())

    def late(self) -> DataFrame:
        """Return the late records as a streaming DataFrame, like `emissions`.

        Structs are JSON text: at each step that refuses records, their values have other fields.
        """
        return self._following("late")

    def rejected(self) -> DataFrame:
        """Return the rejected records as a streaming DataFrame, like `late`; some are not of their types."""
        return self._following("rejected")

    def _following(self, view: str) -> DataFrame:
        chosen = self.configuration
        return views.following(self._spark, chosen.log, chosen.name, chosen.rules, view)

    def sql(self, query: str) -> Rows:
        """Return the result of a Spark SQL query over the views of the operator, such as `NAME_emissions`.

        Columns of equal names get a number: `key`, `key_2`. Raise UserError, which names the views, if Spark cannot run
        the query, and for statements that change something, such as INSERT or DROP, which do not run.
        """
        if not isinstance(query, str):
            raise UserError("a query is text", value=query, remedy="write a SELECT statement")
        chosen = self.configuration
        return Rows(views.query(self._spark, chosen.lake, {chosen.name: chosen.rules}, query))

    def __repr__(self) -> str:
        return f"<{self.configuration.name}: {'running' if self.is_running else 'stopped'}>"
