"""The suppression service compared with Kafka Streams: same buffer, topic, broker and machine, both exactly once.

4 partitions, 4 million records, 10,000 keys, 5 s time limit, bound of 100,000 keys. Both are timed from ready until all
output is readable by a `read_committed` consumer; start-up and shut-down are not counted for either.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

from benchmarks.drivers import records_in
from benchmarks.load import PARTITIONS, RECORDS, load
from benchmarks.peers.kafka_streams import run_kafka_streams
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import application_of
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.spark.session import start_session
from tidegate.runtime.workers.pool import workers_of

RUNS = 3
INPUT, PEER, KEYS_HELD = "load", "KafkaStreamsSuppress", 100_000
_numbers = count()


OPERATOR = {
    "kind": "suppression",
    "until": {"time_limit": "5s"},
    "buffer": {"max_keys": KEYS_HELD, "when_full": "emit"},
}


def measure(say: Any) -> dict[str, float]:
    """Return records per second of the service and of Kafka Streams, alternating, and the median ratio of the runs."""
    return measure_against(PEER, OPERATOR, say, str(KEYS_HELD))


def measure_against(peer: str, operator: dict[str, Any], say: Any, *more: str) -> dict[str, float]:
    """Measure the same for any operator and the peer program that does the same work, with `more` as its arguments."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        say(f"loading {RECORDS:,} records")
        load(broker.bootstrap, INPUT)
        with session() as spark:
            run_service(spark, broker.bootstrap, Path(folder), operator)  # warm-up: compiles kernels and grows states
        ours, theirs = [], []
        for run in range(RUNS):
            with session() as spark:
                ours.append(RECORDS / run_service(spark, broker.bootstrap, Path(folder), operator))
            theirs.append(RECORDS / run_kafka_streams(peer, broker.bootstrap, INPUT, _output(broker.bootstrap), *more))
            say(f"run {run + 1}: service {ours[-1]:,.0f}/s, Kafka Streams {theirs[-1]:,.0f}/s")
    return {
        "service_records_per_s": median(ours),
        "kafka_streams_records_per_s": median(theirs),
        "ratio": median(our / their for our, their in zip(ours, theirs, strict=True)),
    }


@contextmanager
def session() -> Iterator[Any]:
    """Yield a Spark session that ends before the peer runs, so that the peer has all memory and cores."""
    spark = start_session("bench", "local[2]")
    try:
        yield spark
    finally:
        spark.stop()


def _output(bootstrap: str) -> str:
    name = f"output-{next(_numbers)}"
    create_topic({"bootstrap.servers": bootstrap}, name, PARTITIONS)
    return name


def run_service(
    spark: Any,
    bootstrap: str,
    folder: Path,
    operator: dict[str, Any] = OPERATOR,
    watch: Callable[[], None] = lambda: None,
) -> float:
    """Return the seconds from ready to everything published; `watch` is called when ready and after each batch."""
    output = _output(bootstrap)
    application = application_of(
        {
            "application": f"bench_{next(_numbers)}",
            "lake": str(folder / output / "lake"),
            "state": str(folder / output / "state"),
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": bootstrap},
            "trigger": "0",
            "operators": {"updates": {**operator, "input": INPUT, "output": output}},
        }
    )
    published: list[float] = []

    def note(_meta: BatchMeta, _seconds: dict[str, float]) -> None:
        published.append(time.monotonic())
        watch()

    with workers_of(spark) as workers:
        driver = OperatorDriver(
            Wiring(spark=spark, workers=workers, application=application, name="updates", listener=note)
        )
        driver.start()
        watch()
        started = time.monotonic()
        driver.run(Event(), until_caught_up=True)
    assert records_in(driver) == RECORDS
    return published[-1] - started
