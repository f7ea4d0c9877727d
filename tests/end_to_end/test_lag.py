"""The operator's progress as Kafka's own tools show it."""

from __future__ import annotations

import subprocess
from threading import Event, Thread

import pytest

from tests.kill.harness import PARTITIONS, records
from tests.patience import wait_for
from tidegate.contracts.naming import group_id
from tidegate.runtime.batch_loop import claimed_operator
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.client import client
from tidegate.runtime.kafka.offsets import committed_offsets
from tidegate.state.protocol_decisions import parse_mark

pytestmark = [pytest.mark.broker, pytest.mark.spark]

COUNT = 2_000


def lags(broker, here):
    """What kafka-consumer-groups tells of the operator's group: (current offset, end, lag) per partition."""
    tool = [java_command(), "-cp", f"{jars('broker')}/*", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
    group = group_id(here.application.application, here.name)
    asked = [*tool, "--bootstrap-server", broker.bootstrap, "--describe", "--group", group]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=300).stdout
    rows = [line.split() for line in told.splitlines() if here.source in line]
    return {int(row[2]): tuple(map(int, row[3:6])) for row in rows}


@pytest.mark.parametrize("until", [{"time_limit": "0s"}, {"time_limit": "10d"}], ids=["emits", "emits nothing"])
def test_kafkas_own_tool_sees_no_lag_when_everything_is_read_whether_or_not_it_was_emitted(world, broker, until):
    here = world(until=until)
    here.feed(records(COUNT))
    driver = here.run()
    ends = driver.claim.operator.newest.next_offsets
    assert sum(ends.values()) == COUNT
    assert lags(broker, here) == {partition: (end, end, 0) for partition, end in ends.items()}
    here.feed(records(COUNT))
    assert sum(lag for _, _, lag in lags(broker, here).values()) == COUNT


def test_a_running_driver_without_emissions_shows_its_progress(world, broker, monkeypatch):
    monkeypatch.setattr(claimed_operator, "COMMIT_OFFSETS_EVERY_S", 0.2)
    here, stop = world(until={"time_limit": "10d"}), Event()
    driver = here.driver()
    running = Thread(target=driver.run, args=(stop,))
    running.start()
    try:
        here.feed(records(COUNT))
        wait_for(lambda: sum(offsets(broker, here).values()) == COUNT, "the group's offsets stay behind the log's")
    finally:
        stop.set()
        running.join()


def offsets(broker, here):
    """The group's offsets, each with a mark of this log that no batch is above."""
    found = committed_offsets(
        client({"bootstrap.servers": broker.bootstrap}),
        group_id(here.application.application, here.name),
        here.source,
        list(range(PARTITIONS)),
    )
    assert all(parse_mark(mark.metadata) for mark in found.values() if mark is not None)
    return {partition: mark.offset for partition, mark in found.items() if mark is not None}
