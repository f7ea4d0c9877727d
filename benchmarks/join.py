"""The join with grace, compared with Kafka Streams' join and with the same join with grace 0.

4 partitions, 4 million stream records, 200,000 table records, 10,000 keys, 5 s grace, 10 min retention; both exactly
once. The services of table and join run side by side, as in `tidegate run FILE`. Each system is timed from ready until
all output is readable by a `read_committed` consumer. The latency is that of a batch of 1,000 records, from plan to
published, with a grace of one second, so that each batch joins as many records as it buffers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

from confluent_kafka import Producer

from benchmarks.drivers import claimed, records_in
from benchmarks.latency import produce
from benchmarks.load import PARTITIONS, RECORDS, RECORDS_PER_MS, load
from benchmarks.peers.kafka_streams import run_kafka_streams
from benchmarks.suppression import RUNS, session
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import Application, application_of
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.workers.pool import workers_of

STREAM, TABLE, PEER = "load", "facts", "KafkaStreamsJoin"
TABLE_RECORDS, GRACE, SHORT_GRACE = 200_000, "5s", "1s"
BATCH, BATCHES, WARM_BATCHES = 1_000, 30, 15
_numbers = count()


def measure(say: Any) -> dict[str, float]:
    """Return records per second of the join and of Kafka Streams, alternating, and ratios of the join to grace 0."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        say(f"loading {RECORDS:,} records and {TABLE_RECORDS:,} of the table")
        load(broker.bootstrap, STREAM)
        load(broker.bootstrap, TABLE, records=TABLE_RECORDS, span_ms=RECORDS // RECORDS_PER_MS)
        with session() as spark:
            run_services(spark, broker.bootstrap, Path(folder), GRACE)  # warm-up: compiles kernels and grows states
        runs = [_run(broker.bootstrap, Path(folder), say) for _ in range(RUNS)]
        latency = _latency(broker.bootstrap, Path(folder), say)
    ours, without, theirs = (list(column) for column in zip(*runs, strict=True))
    return {
        "join_records_per_s": median(ours),
        "kafka_streams_records_per_s": median(theirs),
        "ratio": median(our / their for our, their in zip(ours, theirs, strict=True)),
        "grace_0_records_per_s": median(without),
        "throughput_to_grace_0": median(our / other for our, other in zip(ours, without, strict=True)),
        **latency,
    }


def _run(bootstrap: str, folder: Path, say: Any) -> tuple[float, float, float]:
    """Return records per second with grace, with grace 0, and of Kafka Streams."""
    rates = []
    for grace in (GRACE, "0"):
        with session() as spark:
            rates.append(RECORDS / run_services(spark, bootstrap, folder, grace))
    peer = RECORDS / run_kafka_streams(PEER, bootstrap, STREAM, new_topic(bootstrap, "output"), TABLE)
    say(f"with grace {rates[0]:,.0f}/s, with grace 0 {rates[1]:,.0f}/s, Kafka Streams {peer:,.0f}/s")
    return rates[0], rates[1], peer


def new_topic(bootstrap: str, name: str) -> str:
    """Create a topic with that prefix and return its name."""
    name = f"{name}_{next(_numbers)}"
    create_topic({"bootstrap.servers": bootstrap}, name, PARTITIONS)
    return name


def application(bootstrap: str, folder: Path, grace: str, stream: str, table: str, output: str) -> Application:
    """Return an application of a table and a join, with logs and states of its own."""
    operators = {
        "facts": {"kind": "table_history", "input": table, "history_retention": "10m"},
        "joined": {
            "kind": "stream_table_join",
            "input": stream,
            "output": output,
            "table": "facts",
            "join": "left",
            "grace": grace,
        },
    }
    return application_of(
        {
            "application": f"bench_{next(_numbers)}",
            "lake": str(folder / output / "lake"),
            "state": str(folder / output / "state"),
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": bootstrap},
            "trigger": "0",
            "operators": operators,
        }
    )


def run_services(spark: Any, bootstrap: str, folder: Path, grace: str) -> float:
    """Return the seconds from both services being ready until the whole stream is joined and published."""
    described = application(bootstrap, folder, grace, STREAM, TABLE, new_topic(bootstrap, "output"))
    published: list[float] = []

    def note(_meta: BatchMeta, _seconds: dict[str, float]) -> None:
        published.append(time.monotonic())

    with workers_of(spark) as workers, ThreadPoolExecutor(2) as threads:
        wiring = Wiring(spark=spark, workers=workers, application=described, name="facts")
        table, join = OperatorDriver(wiring), OperatorDriver(replace(wiring, name="joined", listener=note))
        table.start()
        join.start()
        began = time.monotonic()
        for ended in [threads.submit(driver.run, Event(), until_caught_up=True) for driver in (table, join)]:
            ended.result()
    assert records_in(join) == RECORDS
    return published[-1] - began


def _latency(bootstrap: str, folder: Path, say: Any) -> dict[str, float]:
    """Return the median milliseconds of a batch with grace and with grace 0, and their ratio; batches alternate."""
    with (
        session() as spark,
        _started(spark, bootstrap, folder, SHORT_GRACE) as held,
        _started(spark, bootstrap, folder, "0") as at_once,
    ):
        took: dict[int, list[float]] = {0: [], 1: []}
        for number in range(BATCHES + WARM_BATCHES):
            for which, (driver, topic, producer) in enumerate((held, at_once)):
                produce(producer, topic, number * BATCH, BATCH)
                producer.flush()
                began = time.perf_counter()
                claimed(driver).round()
                took[which].append(1_000 * (time.perf_counter() - began))
    with_grace, without = (median(took[which][WARM_BATCHES:]) for which in (0, 1))
    say(f"a batch of {BATCH:,} records takes {with_grace:.0f} ms with grace, {without:.0f} ms with grace 0")
    return {
        "batch_of_1000_p50_ms": with_grace,
        "grace_0_batch_of_1000_p50_ms": without,
        "latency_to_grace_0": with_grace / without,
    }


@contextmanager
def _started(spark: Any, bootstrap: str, folder: Path, grace: str) -> Iterator[tuple[OperatorDriver, str, Producer]]:
    """Yield a started join on a topic of its own, whose table is complete."""
    stream, output = new_topic(bootstrap, "stream"), new_topic(bootstrap, "output")
    described = application(bootstrap, folder, grace, stream, TABLE, output)
    with workers_of(spark) as workers:
        wiring = Wiring(spark=spark, workers=workers, application=described, name="facts")
        OperatorDriver(wiring).run(Event(), until_caught_up=True)
        driver = OperatorDriver(replace(wiring, name="joined"))
        driver.start()
        yield driver, stream, Producer({"bootstrap.servers": bootstrap})
