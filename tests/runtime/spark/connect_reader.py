"""What a session of Spark Connect does: it reads a log, and is refused a query of its own.

`python -m tests.runtime.spark.connect_reader FOLDER LOG VIEW` reads the view; the query would have its lake in FOLDER.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

import tidegate.spark
from tidegate.contracts.errors import UserError


def main(folder: str, log: str, view: str) -> None:
    """Print, as JSON, keys and values in order of their keys, and why the query is refused.

    The server runs on this machine, behind Connect's protocol.
    """
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    assert isinstance(spark, ConnectSession)
    tidegate.spark.register_format(spark)
    rows = spark.read.format("tidegate").option("view", view).load(log).selectExpr("key", "value").sort("key").collect()
    print(json.dumps({"rows": [[row["key"], row["value"]] for row in rows], "refused": refusal(spark, folder)}))
    spark.stop()


def refusal(spark: ConnectSession, folder: str) -> str | None:
    """Return why an operator on a DataFrame of the session does not start; None if it does."""
    ticks = spark.readStream.format("rate").load()
    chain = tidegate.spark.stream(ticks, key="value", timestamp="timestamp", order_by="value")
    try:
        chain.deduplicate(within="forever").start("once", lake=folder)
    except UserError as error:
        return error.problem
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
