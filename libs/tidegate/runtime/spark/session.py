"""The Spark session of a service. May import: pyspark, contracts, runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.home import jars
from tidegate.runtime.java import java_command

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # operator logs have few files: more tasks only cost time
    "spark.python.unix.domain.socket.enabled": "true",  # halves the cost of a small job
    "spark.scheduler.mode": "FAIR",  # operators of one application share the cores
    "spark.speculation": "false",  # a partition must never run twice at once
    "spark.task.maxFailures": "1",  # only the driver retries, with a new attempt
    "spark.stage.maxConsecutiveAttempts": "1",  # PySpark does not tell a task its stage attempt, so there is no second
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_QUIET = Path(__file__).with_name("log4j2.properties")


def start_session(name: str, master: str, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A running session with Delta, whose Python workers use this interpreter.

    Raises UserError when Java or the jars are missing, EngineError when Spark does not start.
    """
    java_command()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(master)
    if master.startswith("local"):  # local-cluster[...] too: all of it is on this machine
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        **_SETTINGS,
        "spark.driver.memory": "2g",
        "spark.jars": _jars(),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_QUIET}",
        **(conf or {}),
    }
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        remedy = "see the lines above; check Java and the master"
        raise EngineError("Spark does not start", value=error, remedy=remedy) from error


def _jars() -> str:
    found = sorted(Path(jars("spark")).glob("*.jar"))
    if not found:
        raise UserError("Spark's Delta jars are not there", value=jars("spark"), remedy="run `make setup`")
    return ",".join(str(jar) for jar in found)
