"""Three executors with a disk each, the lake in an S3 server, and one of them killed again and again.

`make cluster` runs this for ten minutes with five million records; CLUSTER_SECONDS and CLUSTER_RECORDS say otherwise.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clusters.cluster import Standalone, executors, standalone, states
from tests.kill.conftest import say  # noqa: F401 -- a fixture
from tests.kill.harness import PARTITIONS, SUPPRESSION, TABLE, configure, flow, newest, published
from tests.kill.service import Service, Start
from tests.lake.s3_server import S3Server
from tests.patience import wait_for
from tidegate.devkit.embedded_broker import free_ports
from tidegate.state.lake.place import Place

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(5_400)]

SECONDS = float(os.environ.get("CLUSTER_SECONDS", "60"))
RECORDS = int(os.environ.get("CLUSTER_RECORDS", "300000"))
KILL_EVERY_S = 20.0
FLUSH_EVERY_S = 0.2
MACHINES = 3
MANY = 1_000
CHUNK = 100
"""The records of so many partitions come together, so that a batch of them is done in time on a busy machine."""

Say = Callable[[str], None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with standalone(tmp_path / "machines", port=free_ports(1)[0], workers=MACHINES) as running:
        yield running


@contextmanager
def on(cluster: Standalone, file: Path) -> Iterator[Service]:
    """The service is ready on all three executors; nothing of it is left at the end."""
    file.write_text(f"{file.read_text()}workers_per_operator: {MACHINES}\n")
    service = Service(Start(file=file)).go()
    try:
        service.wait_ready()
        yield service
    finally:
        service.kill()


def settings(cluster: Standalone) -> dict[str, object]:
    return {"master": cluster.url, "conf": {"spark.executor.memory": "768m"}}


class Watch:
    """When output has arrived in each partition, at a consumer that reads what is committed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._arrivals: dict[int, list[float]] = {partition: [] for partition in range(PARTITIONS)}
        options = {"bootstrap.servers": bootstrap, "group.id": "watch", "isolation.level": "read_committed"}
        self._consumer = Consumer(options | {"enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self._ended = Event()
        self._thread = Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            messages = self._consumer.consume(10_000, timeout=0.05)
            now = time.monotonic()
            for partition in {message.partition() for message in messages if message.error() is None}:
                self._arrivals[partition].append(now)

    def end(self) -> None:
        """Nothing is watched any more."""
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def stall_s(self, moment: float) -> float:
        """The longest time, of all partitions, in which after the moment nothing arrived."""
        return max(self._stall_s(arrivals, moment) for arrivals in self._arrivals.values())

    @staticmethod
    def _stall_s(arrivals: list[float], moment: float) -> float:
        around = [at for at in arrivals if at > moment]
        pairs = zip([moment, *around], around, strict=False)
        return max((later - earlier for earlier, later in pairs if earlier < moment + KILL_EVERY_S / 2), default=0.0)


def feed(bootstrap: str, topic: str) -> None:
    """The records are produced, evenly over the time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
    step, began = max(1, int(RECORDS * FLUSH_EVERY_S / SECONDS)), time.monotonic()
    for number, (partition, key, value, timestamp) in enumerate(flow(RECORDS), 1):
        producer.produce(topic, value, key, partition, timestamp=timestamp)
        if number % step == 0:
            producer.flush()
            time.sleep(max(0.0, began + number / RECORDS * SECONDS - time.monotonic()))
    producer.flush()


def kill_again_and_again(cluster: Standalone, feeding: Thread, tell: Say) -> list[float]:
    """Every 20 s, as long as records come, an executor is killed; gives the moments."""
    moments: list[float] = []
    rng = random.Random(5)
    while feeding.is_alive():
        feeding.join(KILL_EVERY_S)
        living = [pid for worker in cluster.workers.values() for pid in executors(worker)]
        if feeding.is_alive() and living:
            os.kill(rng.choice(living), signal.SIGKILL)
            moments.append(time.monotonic())
            tell(f"killed one of {len(living)} executors")
    return moments


def digests(bootstrap: str, topic: str) -> list[tuple[int, str]]:
    """Of each partition how many emissions are published, and the digest of all of them in order."""
    counts: Counter[int] = Counter()
    found = [hashlib.blake2b() for _ in range(PARTITIONS)]
    for partition, emission in published(bootstrap, topic):
        counts[partition] += 1
        found[partition].update(repr(emission).encode())
    return [(counts[partition], digest.hexdigest()) for partition, digest in enumerate(found)]


MOVED_OR_RECOVERED = re.compile(r"partition (\d+): (moves from|local state: rebuil)")


def rebuilds(lines: str) -> tuple[int, list[int]]:
    """How often partitions were rebuilt, and those that were although they had not moved before."""
    moved: set[int] = set()
    number, wrong = 0, []
    for partition, what in MOVED_OR_RECOVERED.findall(lines):
        if what == "moves from":
            moved.add(int(partition))
            continue
        number += 1
        if int(partition) not in moved:
            wrong.append(int(partition))
        moved.discard(int(partition))
    return number, wrong


def test_executors_are_killed_while_records_come_and_only_partitions_that_move_are_rebuilt(
    cluster: Standalone,
    s3: S3Server,
    broker,
    topic,
    tmp_path: Path,
    say: Say,  # noqa: F811
) -> None:
    source, output, calm = (topic(partitions=PARTITIONS) for _ in range(3))
    lake, bootstrap = s3.place(f"executors-{os.getpid()}"), broker.bootstrap
    file = configure(tmp_path / "cluster.yaml", bootstrap, source, output, SUPPRESSION, lake, spark=settings(cluster))
    with on(cluster, file) as service:
        watch, feeding = Watch(bootstrap, output), Thread(target=feed, args=(bootstrap, source))
        feeding.start()
        moments = kill_again_and_again(cluster, feeding, say)
        service.wait_until(lambda: reached(lake) >= RECORDS, "it did not reach the end", pause_s=1.0)
        watch.end()
        stalls = [watch.stall_s(moment) for moment in moments]
        service.drain()
        lines = service.lines
    undisturbed = configure(tmp_path / "calm.yaml", bootstrap, source, calm)
    Service(Start(file=undisturbed, until_caught_up=True)).go().wait_end()
    assert digests(bootstrap, output) == digests(bootstrap, calm)
    number, wrong = rebuilds(lines)
    say(
        f"{RECORDS} records, {len(moments)} executors killed, {number} rebuilds of {lines.count('moves from')} moves; "
        f"stalls: median {statistics.median(stalls):.1f} s, longest {max(stalls):.1f} s"
    )
    assert moments
    assert lines.count("moves from") >= len(moments) / 2
    assert wrong == [], f"rebuilt without a move:\n{lines}"


def test_a_thousand_partitions_have_one_copy_of_their_state_each_also_after_a_loss(
    cluster: Standalone,
    s3: S3Server,
    broker,
    topic,
    tmp_path: Path,
    say: Say,  # noqa: F811
) -> None:
    source, lake = topic(partitions=MANY), s3.place(f"thousand-{os.getpid()}")
    file = configure(tmp_path / "cluster.yaml", broker.bootstrap, source, None, TABLE, lake, spark=settings(cluster))
    with on(cluster, file) as service:
        fed = feed_each(service, broker.bootstrap, source, lake, 0)
        found = copies(cluster)
        say(f"states by machine: {sorted(map(len, found.values()))}")
        assert all(len(there) > MANY / 5 for there in found.values())
        assert Counter(p for there in found.values() for p in there) == Counter(range(MANY))
        worker = next(iter(cluster.workers.values()))
        gone = executors(worker)[0]
        os.kill(gone, signal.SIGKILL)
        wait_for(lambda: any(pid != gone for pid in executors(worker)), "no executor takes its place")

        def is_one_copy() -> bool:
            nonlocal fed
            fed = feed_each(service, broker.bootstrap, source, lake, fed)
            return Counter(p for there in copies(cluster).values() for p in there) == Counter(range(MANY))

        wait_for(is_one_copy, "copies are left where partitions are not at home")
        assert not list((tmp_path / "cluster" / "state").rglob("header")), "the driver's machine has states"


def feed_each(service: Service, bootstrap: str, topic: str, lake: Place, fed: int) -> int:
    """A record more for each partition is processed; `fed`, and gives: how many were before, and are now."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for start in range(0, MANY, CHUNK):
        for partition in range(start, start + CHUNK):
            producer.produce(topic, b"{}", b"key", partition, timestamp=1_700_000_000_000 + fed)
        producer.flush()
        fed += CHUNK
        service.wait_until(lambda wanted=fed: reached(lake) >= wanted, "not processed", pause_s=1.0)
    return fed


def reached(lake: Place) -> int:
    """How many records the newest commit has behind it."""
    return sum(newest(lake).next_offsets.values())


def copies(cluster: Standalone) -> Mapping[Path, set[int]]:
    """The partitions whose states are on each machine."""
    return {machine: set(states(machine)) for machine in cluster.workers}
