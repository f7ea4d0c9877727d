"""The delay until output can be read: a buffer that holds nothing, without pauses (`max_keys: 0`, `trigger: 0`).

All figures end when a `read_committed` consumer outside Spark has the record. The time of a batch is the median of 5
runs. The delay at a fixed rate is compared with that of Kafka Streams, which holds nothing either and has its own
settings (exactly once, it commits every 100 ms): medians of 3 runs of each, in turns, with one broker.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.drivers import claimed
from benchmarks.peers.kafka_streams import kafka_streams_running
from benchmarks.suppression import PEER, session
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.batch_loop.claimed_operator import Listener
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.configuration.application import application_of
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.workers.pool import workers_of

PARTITIONS, KEYS, RUNS, PAIRS = 4, 500, 5, 3
BATCH, BATCHES = 1_000, 30
WARM_BATCHES = 200
"""Until Java has compiled the broker's code, which takes most of a core meanwhile."""
RATE, STEP_S, SECONDS, WARM_SECONDS = 5_000, 0.01, 20.0, 10.0
PASS_THROUGH = {"kind": "suppression", "buffer": {"max_keys": 0, "when_full": "emit"}}
_numbers = count()


def measure(say: Any) -> dict[str, float]:
    """Return milliseconds from plan to read for batches of 1,000 records, and from produced to read at RATE."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        with session() as spark, started(spark, broker.bootstrap, Path(folder)) as (driver, topics):
            batches = _batch_times(driver, broker.bootstrap, topics, say)
        ours, theirs = [], []
        for run in range(PAIRS):
            ours.append(_service(broker.bootstrap, Path(folder)))
            theirs.append(_peer(broker.bootstrap))
            say(f"run {run + 1}: at {RATE:,} records/s {_told(ours[-1])}; Kafka Streams {_told(theirs[-1])}")
    return {
        "batch_of_1000_p50_ms": median(batches),
        "produced_to_read_p50_ms": median(age.p50 for age in ours),
        "produced_to_read_p99_ms": median(age.p99 for age in ours),
        "kafka_streams_p50_ms": median(age.p50 for age in theirs),
        "kafka_streams_p99_ms": median(age.p99 for age in theirs),
        "p50_ratio": median(our.p50 / their.p50 for our, their in zip(ours, theirs, strict=True)),
        "p99_ratio": median(our.p99 / their.p99 for our, their in zip(ours, theirs, strict=True)),
    }


class Ages(NamedTuple):
    """How old records were when they were read, in milliseconds."""

    p50: float
    p99: float


def _told(ages: Ages) -> str:
    return f"{ages.p50:.0f} ms (p50), {ages.p99:.0f} ms (p99)"


class Reader:
    """A consumer thread that notes when each output record arrived and how old it was then.

    It waits at the broker for output, and takes what has come. To ask the broker every few milliseconds instead would
    cost a batch up to 10 ms, and to wait for more records would add that wait to their age.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        options = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer(options | {"enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.arrivals: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait_for(self, records: int) -> float:
        """Wait until that many records have arrived and return when the last of them did, by the monotonic clock."""
        while len(self.arrivals) < records:
            time.sleep(0.0005)
        return self.arrivals[records - 1][0]

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            first = self._consumer.poll(0.05)
            for message in [first, *self._consumer.consume(1_000, 0)] if first else []:
                now = time.time()
                self.arrivals.append((time.monotonic(), now * 1_000 - message.timestamp()[1]))


class Batches:
    """The batches of an operator, one at a time; the time of each ends when a reader has the last of its output."""

    def __init__(self, driver: OperatorDriver, bootstrap: str, source: str, output: str) -> None:
        self._driver, self._source, self._sent = driver, source, 0
        self._reader, self._producer = Reader(bootstrap, output), Producer({"bootstrap.servers": bootstrap})

    def next_ms(self) -> float:
        """Produce the records of a batch, run it, and return the milliseconds from plan to read."""
        produce(self._producer, self._source, self._sent, BATCH)
        self._producer.flush()
        self._sent += BATCH
        began = time.monotonic()
        claimed(self._driver).round()
        return (self._reader.wait_for(self._sent) - began) * 1_000

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()


def _batch_times(driver: OperatorDriver, bootstrap: str, topics: tuple[str, str], say: Any) -> list[float]:
    """Return the median milliseconds from plan to read of each run."""
    with closing(Batches(driver, bootstrap, *topics)) as batches:
        for _ in range(WARM_BATCHES):
            batches.next_ms()
        medians = []
        for run in range(RUNS):
            medians.append(median(batches.next_ms() for _ in range(BATCHES)))
            say(f"run {run + 1}: a batch of {BATCH:,} records takes {medians[-1]:.0f} ms from plan to read")
    return medians


def _service(bootstrap: str, folder: Path) -> Ages:
    """Return the ages of the service's output."""
    with session() as spark, started(spark, bootstrap, folder) as (driver, topics):
        stop = threading.Event()
        service = threading.Thread(target=driver.run, args=(stop,))
        service.start()
        try:
            return _ages_elsewhere(bootstrap, *topics)
        finally:
            stop.set()
            service.join()


def _peer(bootstrap: str) -> Ages:
    """Return the ages of Kafka Streams' output."""
    topics = new_topics(bootstrap, f"latency_{next(_numbers)}")
    with kafka_streams_running(PEER, bootstrap, *topics, "0"):
        return _ages_elsewhere(bootstrap, *topics)


def _ages_elsewhere(bootstrap: str, source: str, output: str) -> Ages:
    """Measure in a process of its own: the service's driver is in this one, that of Kafka Streams is not."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_ages, bootstrap, source, output).result()


def _ages(bootstrap: str, source: str, output: str) -> Ages:
    """Produce at RATE, and return how old the records were when they were read, after the first WARM_SECONDS."""
    reader = Reader(bootstrap, output)
    try:
        first = _feed(bootstrap, source, WARM_SECONDS, 0)
        sent = _feed(bootstrap, source, SECONDS, first)
        reader.wait_for(sent)
    finally:
        reader.close()
    percent = quantiles((age for _, age in reader.arrivals[first:sent]), n=100)
    return Ages(percent[49], percent[98])


def _feed(bootstrap: str, topic: str, seconds: float, sent: int) -> int:
    """Produce records at RATE for that long, stamped with their creation time. Return the number of the next one."""
    producer, step, started = (
        Producer({"bootstrap.servers": bootstrap, "linger.ms": 1}),
        int(RATE * STEP_S),
        time.time(),
    )
    for number in range(int(seconds / STEP_S)):
        produce(producer, topic, sent + number * step, step)
        producer.poll(0)
        time.sleep(max(0.0, started + (number + 1) * STEP_S - time.time()))
    producer.flush()
    return sent + int(seconds / STEP_S) * step


def produce(producer: Producer, topic: str, first: int, records: int) -> None:
    """Hand the records to the producer, with the present time as timestamp."""
    now = int(time.time() * 1_000)
    for number in range(first, first + records):
        key = number % KEYS
        producer.produce(topic, b'{"n":%d}' % number, b"k%04d" % key, key % PARTITIONS, timestamp=now)


@contextmanager
def started(
    spark: Any,
    bootstrap: str,
    folder: Path,
    operator: Mapping[str, Any] = PASS_THROUGH,
    listener: Listener = lambda meta, seconds: None,
) -> Iterator[tuple[OperatorDriver, tuple[str, str]]]:
    """Yield a started driver of the operator and its two new topics."""
    name = f"latency_{next(_numbers)}"
    topics = new_topics(bootstrap, name)
    application = application_of(
        {
            "application": name,
            "lake": str(folder / name / "lake"),
            "state": str(folder / name / "state"),
            "keep_output": "forever",
            "kafka": {"bootstrap.servers": bootstrap},
            "trigger": "0",
            "operators": {"updates": {**operator, "input": topics[0], "output": topics[1]}},
        }
    )
    with workers_of(spark) as workers:
        driver = OperatorDriver(
            Wiring(spark=spark, workers=workers, application=application, name="updates", listener=listener)
        )
        driver.start()
        yield driver, topics


def new_topics(bootstrap: str, name: str) -> tuple[str, str]:
    """Create an input and an output topic, and return their names."""
    topics = (f"{name}_in", f"{name}_out")
    for topic in topics:
        create_topic({"bootstrap.servers": bootstrap}, topic, PARTITIONS)
    return topics
