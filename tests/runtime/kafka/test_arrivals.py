"""Waiting for records: what ends a wait, and what does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Timer

import pytest

from tests.runtime.kafka.peers import transactional, write
from tidegate.contracts.records import Row
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.kafka.arrivals import LongPolls, Position

NewTopic = Callable[..., str]

pytestmark = pytest.mark.broker

RECORD = Row(offset=0, timestamp=1, key=b"k", value=b"v")
LONG_S = 30.0
SHORT_S = 0.4
LEADER = 1
SOON_S = 5.0
"""Much shorter than LONG_S, and long enough for a busy machine."""


@pytest.fixture
def arrivals(broker: Broker) -> Iterator[LongPolls]:
    polls = LongPolls({"bootstrap.servers": broker.bootstrap})
    yield polls
    polls.close()


def waited(
    arrivals: LongPolls,
    topic: str,
    positions: dict[int, int],
    longest_s: float = LONG_S,
    interrupted: Callable[[], bool] = lambda: False,
) -> float:
    """The seconds that a wait took."""
    started = time.monotonic()
    awaited = {topic: {partition: Position(LEADER, offset) for partition, offset in positions.items()}}
    arrivals.wait(awaited, longest_s=longest_s, interrupted=interrupted)
    return time.monotonic() - started


def test_a_record_ends_the_wait_whichever_partition_it_is_in(
    arrivals: LongPolls, broker: Broker, topic: NewTopic
) -> None:
    name = topic(partitions=3)
    later = Timer(0.3, lambda: write(broker.bootstrap, name, [RECORD], partition=2))
    later.start()
    assert waited(arrivals, name, {0: 0, 1: 0, 2: 0}) < SOON_S
    later.join()


def test_records_that_are_there_already_end_the_wait_at_once(
    arrivals: LongPolls, broker: Broker, topic: NewTopic
) -> None:
    name = topic()
    write(broker.bootstrap, name, [RECORD])
    assert waited(arrivals, name, {0: 0}) < SOON_S
    assert SHORT_S <= waited(arrivals, name, {0: 1}, SHORT_S) < SOON_S


def test_records_of_an_open_transaction_end_no_wait_but_its_commit_does(
    arrivals: LongPolls, broker: Broker, topic: NewTopic
) -> None:
    name, producer = topic(), transactional(broker.bootstrap)
    producer.begin_transaction()
    producer.produce(name, b"v", b"k")
    producer.flush(LONG_S)
    assert waited(arrivals, name, {0: 0}, SHORT_S) >= SHORT_S
    later = Timer(0.3, lambda: producer.commit_transaction(LONG_S))
    later.start()
    assert waited(arrivals, name, {0: 0}) < SOON_S
    later.join()


def test_an_interruption_ends_the_wait_and_the_next_wait_is_as_good_as_the_first(
    arrivals: LongPolls, broker: Broker, topic: NewTopic
) -> None:
    name, calls = topic(), iter([False, False, True])
    assert waited(arrivals, name, {0: 0}, interrupted=lambda: next(calls)) < SOON_S
    later = Timer(0.3, lambda: write(broker.bootstrap, name, [RECORD]))
    later.start()
    assert waited(arrivals, name, {0: 0}) < SOON_S
    later.join()


def test_an_error_ends_the_wait_after_a_pause_so_that_the_caller_finds_out(
    arrivals: LongPolls, broker: Broker, topic: NewTopic
) -> None:
    name = topic()
    assert 0.1 < waited(arrivals, name, {0: 99}) < SOON_S  # the partition has no such offset
    assert 0.1 < waited(arrivals, "missing", {0: 0}) < SOON_S
    nobody = LongPolls({"bootstrap.servers": "127.0.0.1:1"})
    assert 0.1 < waited(nobody, name, {0: 0}, SHORT_S) < SOON_S
    nobody.close()
