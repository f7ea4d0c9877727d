"""Running the queries that users write: checked to be queries before they run, with short messages of what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException, PySparkException
from pyspark.logger import PySparkLogger

from tidegate.contracts.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LONGEST = 200
"""Characters of a statement, or of Spark's message, that an error shows."""


def quoted(name: str) -> str:
    """Return the name of a column as a part of Spark SQL, even if it contains dots or backticks."""
    return "`" + name.replace("`", "``") + "`"


def rows_of(spark: SparkSession, text: str, remedy: str) -> pa.Table:
    """Return the result of the Spark SQL query. Columns of equal names get a number: `key`, `key_2`.

    SHOW, DESCRIBE and EXPLAIN count as queries. Raise UserError if the text is not a query, which then does not run, or
    if Spark cannot run it; `remedy`: for that.
    """
    try:
        with unlogged("SQLQueryContextLogger"):
            _check_is_query(spark, text)
            found = spark.sql(text).toArrow()
    except PySparkException as error:
        problem = f"Spark cannot run the query: {shortened(str(error))}"
        raise UserError(problem, value=shortened(text) or "(empty)", remedy=remedy) from None
    return found.rename_columns(distinct(found.column_names))


def _check_is_query(spark: Any, text: str) -> None:
    """Raise UserError if the statement is neither a query nor a look: others change tables, files or settings.

    Not all of those are commands to Spark's parser: `EXECUTE IMMEDIATE` and `INSERT OVERWRITE DIRECTORY` are not. So
    its rule for queries alone decides. Raise Spark's ParseException if the text is no statement at all.
    """
    parser = spark._jsparkSession.sessionState().sqlParser()
    if parser.parsePlan(text).getClass().getSimpleName().startswith(_LOOKS):
        return
    try:
        parser.parseQuery(text)
    except ParseException:
        cause = "the statement is not a query, and only queries run here"
        raise UserError(cause, value=shortened(text), remedy="write a SELECT, SHOW, DESCRIBE or EXPLAIN") from None


_LOOKS = ("Show", "Describe", "Explain")
"""What the names of Spark's plans begin with that only show names, columns and plans."""


@contextmanager
def unlogged(name: str) -> Iterator[None]:
    """Keep PySpark's logger of that name from logging an error with the JVM's stack trace; the caller reports it."""
    logger = PySparkLogger.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def shortened(text: str) -> str:
    """Return the first line of the text that is not empty, shortened to LONGEST characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def distinct(names: list[str]) -> list[str]:
    """Return the names with numbers at those that came before, so that no two are equal."""
    found: list[str] = []
    for name in names:
        candidates = (name if number == 1 else f"{name}_{number}" for number in range(1, len(names) + 1))
        taken = set(found) | (set(names) - {name})
        found.append(next(each for each in candidates if each not in taken))
    return found
