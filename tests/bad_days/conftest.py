"""A driver that runs beside the test, and a broker and disks that the test may take away."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.end_to_end.conftest import PARTITIONS, world  # noqa: F401 -- fixtures
from tests.patience import PATIENCE_S, wait_for
from tidegate.operators.suppression import SuppressionConfig
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.spark.jobs import SparkJobs
from tidegate.runtime.telemetry.driver_status import DriverStatusFile


@pytest.fixture(scope="session", autouse=True)
def warm(spark):
    """Spark's Python workers have compiled what a batch needs: no test waits for that."""
    SparkJobs(spark).warm_up(SuppressionConfig(kind="suppression", input="in", until={"time_limit": "1h"}))


class Running:
    """A driver in a thread, as the service runs it."""

    def __init__(self, here):
        self._file = DriverStatusFile(here.application.state / here.application.application / here.name)
        self.driver = OperatorDriver(Wiring(spark=here.spark, application=here.application, name=here.name))
        self.error = None
        self._stop = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            self.driver.run(self._stop)
        except Exception as error:
            self.error = error

    def wait(self, state, why=""):
        """The driver has told that condition."""
        wait_for(lambda: self._is(state, why), f"{state} {why}")

    def _is(self, state, why):
        told = self._file.read()
        assert self.error is None or state in ("fenced", "refused", "stopped"), self.error
        return told is not None and told.state == state and why in told.why

    def end(self):
        """The driver was asked to end, and has."""
        self._stop.set()
        return self.ended()

    def ended(self):
        """The driver has ended; gives its error, if it has one."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def running():
    """`running(world)`: a driver that runs until the end of the test at the latest."""
    started = []

    def start(here):
        started.append(Running(here))
        return started[-1]

    yield start
    for driver in started:
        driver.end()


def produce(bootstrap, topic, *made):
    """The records (partition, key, value, timestamp) stand in the topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for partition, key, value, timestamp in made:
        producer.produce(topic, value, key, partition, timestamp=timestamp)
    assert producer.flush(PATIENCE_S) == 0


def numbered(*numbers):
    """One record for each number, in its partition."""
    return [(n % PARTITIONS, b"%d" % n, b"v%d" % n, 1_000 + n) for n in numbers]


def published(bootstrap, topic):
    """The keys that a read_committed consumer sees, sorted; one that is published twice is there twice."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outside",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    keys, left = [], PARTITIONS
    while left:
        message = consumer.poll(10)
        assert message is not None, f"no end of {topic}"
        left -= message.error() is not None
        keys += [] if message.error() else [int(message.key())]
    consumer.close()
    return sorted(keys)


@contextmanager
def small_disk(folder, size):
    """A disk of that size stands at the folder, where the test may mount one."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder):
    """The disk is full; gives the file that makes it so."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4_096))
        except OSError:
            return filler
