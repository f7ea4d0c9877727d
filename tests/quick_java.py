"""Java that starts quickly: the options with which tests start Spark and the broker, and what those options load.

`python -m tests.quick_java` archives the classes that Spark and the broker load, once for each set of jars and Java
(JVM class-data sharing). A JVM without an archive starts all the same, only slower.
"""

from __future__ import annotations

import os
import shlex
import shutil
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from pyspark import SparkContext

from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install import paths
from tidegate.runtime.spark.session import start_session

QUICK = "-XX:TieredStopAtLevel=1"
"""Tests run each path of Java's code a few times: to optimise it would cost more than the tests themselves."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark runs the plans of its queries as they are: to make a Java class of each and compile it would cost more, too."""

SILENT = "-Xlog:disable"
"""An archive that does not fit is passed over without a line among the output of commands."""


def use() -> None:
    """Let this process, and those that it starts, start Spark and brokers quickly."""
    _use(*(f"-XX:SharedArchiveFile={archive}" for archive in (_spark_archive(), _broker_archive())))


def _use(spark: str, broker: str) -> None:
    driver = f"{QUICK} -XX:+UseSerialGC {SILENT} {spark}"
    executor = f"{QUICK} -XX:+UseSerialGC"
    options = {"spark.driver.defaultJavaOptions": driver, "spark.executor.defaultJavaOptions": executor}
    words = [word for name, value in (options | INTERPRETED).items() for word in ("--conf", f"{name}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*words, "pyspark-shell"])
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = executor
    os.environ["KAFKA_OPTS"] = f"{QUICK} {SILENT} {broker}"


def _spark_archive() -> Path:
    return _archive("spark", Path(pyspark.__file__).with_name("jars"))


def _broker_archive() -> Path:
    return _archive("broker", paths.jars("broker"))


def _archive(name: str, jars: Path) -> Path:
    """Return where the archive is for the jars and this Java: both are named by their files' sizes and times."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or ""
    files = [Path(java).resolve(), *sorted(jars.glob("*.jar"))]
    seen = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    return paths.home() / "java" / f"{name}-{sha256(repr(seen).encode()).hexdigest()[:16]}.jsa"


def archive() -> None:
    """Make the archives that are missing."""
    for file, make in ((_broker_archive(), _archive_broker), (_spark_archive(), _archive_spark)):
        if not file.exists():
            print(f"Archiving the classes of {file.stem.partition('-')[0]} (half a minute at most, once)", flush=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished = file.with_suffix(".unfinished")
            make(f"-XX:ArchiveClassesAtExit={unfinished}")
            unfinished.replace(file)


def _archive_broker(option: str) -> None:
    with TemporaryDirectory() as folder:
        Broker.start(Path(folder), paths.jars("broker")).stop()  # formats the folder, in a JVM that archives nothing
        _use("", option)
        Broker.start(Path(folder), paths.jars("broker")).stop()


def _archive_spark(option: str) -> None:
    _use(option, "")
    session = start_session("archive", "local[2]")
    with TemporaryDirectory() as folder:
        session.range(9).write.format("delta").save(f"{folder}/table")
        session.read.format("delta").load(f"{folder}/table").groupBy("id").count().toArrow()
        session.sparkContext.parallelize(range(2)).map(str).collect()
    java = SparkContext._gateway.proc
    session.stop()
    java.stdin.close()  # the JVM ends, and writes what it has loaded
    java.wait()


if __name__ == "__main__":
    archive()
