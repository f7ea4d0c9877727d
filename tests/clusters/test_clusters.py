"""One operator on two executors: the same output as on threads, through the loss of one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clusters.cluster import executors, lost, spark_home, standalone, states
from tests.kill.harness import OPERATOR, PARTITIONS, Feed, committed, configure, records
from tests.kill.service import Service, Start
from tests.lakes import lake_at
from tests.patience import wait_for
from tidegate.devkit.embedded_broker import free_ports
from tidegate.state.delta_log.log_version import LogVersion

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 60_000


class Run:
    """The service on a cluster."""

    def __init__(self, broker, topic, folder: Path, master: str, **changed: object) -> None:
        self._bootstrap = broker.bootstrap
        self._source, self._output = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)
        self._log = folder / "cluster" / "lake" / OPERATOR
        spark = {"master": master, "conf": {"spark.executor.memory": "1g"}}
        file = configure(folder / "cluster.yaml", self._bootstrap, self._source, self._output, spark=spark, **changed)
        self._left = records(RECORDS)
        self.service = Service(Start(file=file)).go()

    def begin(self) -> Run:
        """It runs, and has committed a third of the records; gives itself."""
        self.service.wait_ready()
        self.feed(RECORDS // 3)
        self._wait_for_a_commit(lambda: all(self._reached().values()))
        return self

    def feed(self, count: int) -> None:
        """So many more records are in the topic."""
        feed = Feed(self._bootstrap, self._source)
        feed.start(self._left[:count], seconds=0)
        feed.finish()
        self._left = self._left[count:]

    def lose(self, executor: int, *others: int, zombies_s: float) -> None:
        """The executor and the others have died in the middle of a batch; the driver has noticed."""
        with lost(executor, *others, zombies_s=zombies_s):
            self.feed(RECORDS // 3)
            time.sleep(3.0)  # every core has a task of a batch by now, and those of this executor wait
        self.service.wait_for("moves from")  # also when a worker that stood still has ended its batch after all

    def finish(self) -> list:
        """What is published when all has been read, after a drain."""
        self.feed(len(self._left))
        ends = _ends(self._bootstrap, self._source)
        self._wait_for_a_commit(lambda: self._reached() == ends)
        self.service.drain()
        return committed(self._bootstrap, self._output)

    def newest(self):
        """The metadata of the newest commit."""
        return LogVersion.at(lake_at(self._log), None).newest()

    def _reached(self) -> dict[int, int]:
        return self.newest().next_offsets

    def _wait_for_a_commit(self, true: Callable[[], bool]) -> None:
        wait_for(true, f"not reached:\n{self.service.lines}")


@pytest.fixture
def on(broker, topic, tmp_path):
    """`on(master, state=...)`: a run on a cluster, of which nothing is left at the end."""
    runs = []

    def start(master: str, **changed: object) -> Run:
        runs.append(Run(broker, topic, tmp_path, master, **changed))
        return runs[-1].begin()

    yield start
    for run in runs:
        run.service.kill()


@pytest.fixture(scope="module")
def on_threads(broker, topic, tmp_path_factory):
    """The output of `local[2]`, per partition."""
    source, output = topic(partitions=PARTITIONS), topic(partitions=PARTITIONS)
    feed = Feed(broker.bootstrap, source)
    feed.start(records(RECORDS), seconds=0)
    feed.finish()
    file = configure(tmp_path_factory.mktemp("threads") / "threads.yaml", broker.bootstrap, source, output)
    Service(Start(file=file, until_caught_up=True)).go().wait_end()
    seen = committed(broker.bootstrap, output)
    assert sum(map(len, seen)) > RECORDS / 20
    return seen


def test_local_cluster_loses_an_executor_and_gives_the_output_of_threads(on, tmp_path, on_threads, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", str(spark_home(tmp_path / "spark")))
    run = on("local-cluster[2,1,2048]")
    run.lose(executors(run.service.process)[0], zombies_s=0)
    assert run.finish() == on_threads


def test_a_standalone_cluster_loses_a_machine_and_its_partitions_move_to_the_disk_of_another(on, tmp_path, on_threads):
    with standalone(tmp_path / "machines", port=free_ports(1)[0]) as cluster:
        run = on(cluster.url)
        (gone, worker), (left, _) = cluster.workers.items()
        had = states(gone)
        assert had
        run.lose(executors(worker)[0], worker, zombies_s=2.0)
        assert run.finish() == on_threads
    newest, there = run.newest(), states(left)
    assert had.keys() <= there.keys() == {partition for partition, known in newest.partitions.items() if known.begun}
    for partition, header in there.items():
        assert (header.batch, header.attempt) == newest.partitions[partition].last
        assert header.durable


def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(PARTITIONS)}
    consumer.close()
    return ends
