"""Starts Spark for drivers, and Spark sessions with Delta."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidegate.contracts.errors import EngineError, UserError
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import jars, setup_remedy
from tidegate.runtime.spark.s3a import jars_for
from tidegate.state.lake.place import Place

# rule: one-stage-attempt
_SETTINGS = {
    "spark.python.daemon.module": "tidegate.runtime.spark.python_daemon",  # ends idle workers without stack traces
    "spark.python.unix.domain.socket.enabled": "true",  # halves the cost of a small job
    "spark.scheduler.mode": "FAIR",  # operators of one application share the cores
    "spark.speculation": "false",  # a partition must never run twice at once
    "spark.task.maxFailures": "1",  # only the driver retries, with a new attempt
    "spark.stage.maxConsecutiveAttempts": "1",  # PySpark hides the stage attempt from a task, so there must be only one
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SQL = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # operator logs have few files: more tasks only cost time
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
}
_EVERY_TASK_ONCE = {"spark.speculation", "spark.task.maxFailures", "spark.stage.maxConsecutiveAttempts"}
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options for a quick start. Records never pass through a service's JVM, so optimising its code on all cores would
only delay the start."""
_ON_THREADS = re.compile(r"local(\[(?P<cores>\*|\d+)(?P<failures>,\d+)?\])?")
_QUIET = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True)
class Spark:
    """A Spark context without SQL: all that drivers need. It starts in a third of the time of a session with Delta."""

    sparkContext: SparkContext

    def stop(self) -> None:
        """Stop Spark."""
        self.sparkContext.stop()


def is_on_this_machine(master: str) -> bool:
    """Return True if the master runs its executors on this machine: local[...] or local-cluster[...]."""
    return master.startswith("local")


def is_on_threads(master: str) -> bool:
    """Return True if the master runs tasks on threads of its own process: local or local[...]."""
    return _ON_THREADS.fullmatch(master) is not None


def require_installed() -> None:
    """Raise UserError if Java or the jars that Spark needs are missing."""
    java_command()
    _jars()


def running_spark() -> Spark | None:
    """Return the Spark context that is active in this process, including a session's; None if there is none."""
    context = SparkContext._active_spark_context
    return None if context is None else Spark(context)


def share_python_path() -> None:
    """Give the current PYTHONPATH to the Python workers of a running Spark; a later Spark reads it by itself."""
    running = running_spark()
    if running is not None and "PYTHONPATH" in os.environ:
        running.sparkContext.environment["PYTHONPATH"] = os.environ["PYTHONPATH"]


def start_spark(name: str, master: str, conf: Mapping[str, str] | None = None, lake: Place | None = None) -> Spark:
    """Start Spark for drivers, with Python workers that use this interpreter, and with the jars for reading the lake.

    Raises UserError if Java or the jars are missing, EngineError if Spark does not start.
    """
    given = {"spark.app.name": name, "spark.master": master, **_settings(master, _QUICK_START, lake), **(conf or {})}
    with _start_errors():
        return Spark(SparkContext.getOrCreate(_submitted(given) if is_submitted() else _with_spare_slots(given)))


def is_submitted() -> bool:
    """Return whether spark-submit has started this process and chosen the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted(settings: Mapping[str, str]) -> SparkConf:
    """Return spark-submit's settings. Add `settings` that it lacks; those in _EVERY_TASK_ONCE replace its own."""
    SparkContext._ensure_initialized()  # only then does the configuration have what spark-submit was given
    conf = SparkConf()
    for name, value in settings.items():
        if name in _EVERY_TASK_ONCE or not conf.contains(name):
            conf.set(name, value)
    return conf


def _with_spare_slots(settings: Mapping[str, str]) -> SparkConf:
    """Return the settings with twice as many slots as cores, if Spark is to run its tasks on threads.

    Workers that stay take as many slots as there are cores; ordinary jobs take the others.
    """
    conf = SparkConf().setAll(list(settings.items()))
    if (found := _ON_THREADS.fullmatch(settings["spark.master"])) is None:
        return conf
    cores = _processors(conf) if found["cores"] == "*" else int(found["cores"] or 1)
    conf.set("spark.master", f"local[{2 * cores}{found['failures'] or ''}]")
    return conf.setIfMissing("spark.default.parallelism", str(cores))


def _processors(conf: SparkConf) -> int:
    """Return how many processors Java sees: a container may have fewer than the machine. Start Java if needed."""
    SparkContext._ensure_initialized(conf=conf)
    return int(SparkContext._jvm.java.lang.Runtime.getRuntime().availableProcessors())


def leaves_room(context: SparkContext) -> bool:
    """Return whether workers that stay, one per core, leave slots of this Spark to ordinary jobs.

    On threads they must; a Spark that Tidegate has not started has as many slots as cores. On a cluster the slots are
    for the cluster's operator to provide, and `check_room` is for those who need one.
    """
    return not is_on_threads(context.master) or _slots(context) > context.defaultParallelism


def check_room(context: SparkContext) -> None:
    """Raise UserError if workers take all slots of a cluster, so that an ordinary job beside them would not begin."""
    if not is_on_threads(context.master) and _slots(context) <= context.defaultParallelism:
        raise UserError(
            "the application's workers take all slots of the cluster",
            value=f"spark.default.parallelism: {context.defaultParallelism}",
            remedy="use tidegate sql, or set spark.default.parallelism lower than the application's cores",
        )


def _slots(context: SparkContext) -> int:
    """Return how many tasks Spark can run at once, on the executors that there are now."""
    spark = context._jsc.sc()
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def start_session(
    name: str, master: str, conf: Mapping[str, str] | None = None, lake: Place | None = None
) -> SparkSession:
    """Start a session with Delta, with Python workers that use this interpreter, and with the jars for the lake.

    Raises UserError if Java or the jars are missing, EngineError if Spark does not start.
    """
    settings = {"spark.app.name": name, "spark.master": master, **_settings(master, lake=lake), **(conf or {})}
    with _start_errors():
        return SparkSession.builder.config(conf=_with_spare_slots(settings)).getOrCreate()


@contextmanager
def open_session(name: str, master: str, lake: Place | None = None) -> Iterator[SparkSession]:
    """Yield a session with Delta and stop it at the end; a session that is running already is used and not stopped.

    Raises UserError if Java or the jars are missing, EngineError if Spark does not start.
    """
    running = running_spark()
    spark = start_session(name, master, lake=lake)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


def _settings(master: str, java_options: str = "", lake: Place | None = None) -> dict[str, str]:
    """Return the settings common to all Spark contexts. Raise UserError if Java or the jars are missing.

    They include those of SQL, because a program may start a session with Delta after its drivers.
    """
    require_installed()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = f"-Dlog4j2.configurationFile={_QUIET} {java_options}".rstrip()
    driver = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": options}
    return {**_SETTINGS, **_SQL, **driver, "spark.jars": _jars(lake)}


@contextmanager
def _start_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        remedy = "see the log above; check Java and the Spark master"
        raise EngineError("Spark does not start", value=error, remedy=remedy) from error


def _jars(lake: Place | None = None) -> str:
    found = sorted(Path(jars("spark")).glob("*.jar"))
    if not found:
        raise UserError("Spark's Delta jars are not there", value=jars("spark"), remedy=setup_remedy())
    return ",".join(str(jar) for jar in [*found, *jars_for(lake)])
