"""The suppression service compared with Kafka Streams: same buffer, topic, broker and machine, both exactly once.

4 partitions, 4 million records, 10,000 keys, 5 s time limit, bound of 100,000 keys. Both are timed from ready until all
output is readable by a `read_committed` consumer; start-up and shut-down are not counted for either.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

from benchmarks.drivers import records_in
from benchmarks.load import PARTITIONS, RECORDS, Values, json_values, load
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
    with loaded(say) as (bootstrap, folder):
        service_s(bootstrap, folder, operator)  # warm-up: compiles kernels and grows states
        rates = alternating(
            {
                "service": lambda: service_s(bootstrap, folder, operator),
                "Kafka Streams": lambda: run_kafka_streams(peer, bootstrap, INPUT, new_output(bootstrap), *more),
            },
            say,
        )
    return {
        "service_records_per_s": median(rates["service"]),
        "kafka_streams_records_per_s": median(rates["Kafka Streams"]),
        "ratio": ratio(rates["service"], rates["Kafka Streams"]),
    }


@contextmanager
def loaded(say: Any, records: int = RECORDS, values: Values = json_values) -> Iterator[tuple[str, Path]]:
    """Yield the address of a broker with the load, and a folder."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        say(f"loading {records:,} records")
        load(broker.bootstrap, INPUT, records=records, values=values)
        yield broker.bootstrap, Path(folder)


def alternating(
    sides: Mapping[str, Callable[[], float]], say: Any, records: int = RECORDS, runs: int = RUNS
) -> dict[str, list[float]]:
    """Return the records per second of each side, a function that returns its seconds, in runs that alternate."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(runs):
        for name, side in sides.items():
            rates[name].append(records / side())
        say(f"run {run + 1}: " + ", ".join(f"{name} {found[-1]:,.0f}/s" for name, found in rates.items()))
    return rates


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median ratio of the runs."""
    return median(our / their for our, their in zip(ours, theirs, strict=True))


def service_s(bootstrap: str, folder: Path, operator: dict[str, Any], **options: Any) -> float:
    """Return the seconds of a service in a Spark session of its own."""
    with session() as spark:
        return run_service(spark, bootstrap, folder, operator, **options)


@contextmanager
def session(settings: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Yield a Spark session that ends before the peer runs, so that the peer has all memory and cores."""
    spark = start_session("bench", "local[2]", settings)
    try:
        yield spark
    finally:
        spark.stop()


def new_output(bootstrap: str) -> str:
    """Create an output topic and return its name."""
    name = f"output-{next(_numbers)}"
    create_topic({"bootstrap.servers": bootstrap}, name, PARTITIONS)
    return name


def run_service(
    spark: Any,
    bootstrap: str,
    folder: Path,
    operator: dict[str, Any] = OPERATOR,
    watch: Callable[[], None] = lambda: None,
    *,
    output: str | None = None,
    records: int = RECORDS,
) -> float:
    """Return the seconds from ready to everything published; `watch` is called when ready and after each batch.

    `output`: the topic to write to; None: a new one.
    """
    output = output or new_output(bootstrap)
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
    assert records_in(driver) == records
    return published[-1] - started
