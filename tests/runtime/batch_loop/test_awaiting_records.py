"""What a driver does after a round that found nothing to do: when it waits for records, and what ends that."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.patience import PATIENCE_S, wait_for
from tests.runtime.miniature import NAME, Jobs, application, driver_of, use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.cli.driver_client import ask_driver
from tidegate.runtime.batch_loop.driver import LONGEST_WAIT_S, OperatorDriver, Owned
from tidegate.runtime.kafka.arrivals import Position, Positions

pytestmark = pytest.mark.fast


class Waits:
    """In the place of `LongPolls`: a wait ends when the test sets `arrived`, or at an interruption."""

    def __init__(self) -> None:
        self.asked: list[tuple[Positions, float]] = []
        self.arrived = Event()

    def wait(self, positions: Positions, *, longest_s: float, interrupted: Callable[[], bool]) -> None:
        self.asked.append((positions, longest_s))
        until = time.monotonic() + PATIENCE_S
        while not self.arrived.is_set() and not interrupted() and time.monotonic() < until:
            time.sleep(0.01)
        self.arrived.clear()

    def close(self) -> None: ...


class Service:
    """A driver that runs in a thread until the block ends."""

    def __init__(self, folder: Path, **operator: object) -> None:
        self.waits, self._stop = Waits(), Event()
        self.application = application(folder, **operator)
        self.driver: OperatorDriver = driver_of(self.application, Jobs())
        self.driver._arrivals = self.waits
        self._thread = Thread(target=self.driver.run, args=(self._stop,))

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def next_offset(self) -> int:
        claim = self.driver.claim
        return claim.operator.newest.partitions[0].next_offset if isinstance(claim, Owned) else 0


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    broker = ScriptedKafka()
    broker.stable = broker.ends = {0: 1, 1: 1}
    use_broker(monkeypatch, broker)
    return broker


def test_a_driver_with_nothing_to_do_asks_no_broker_until_records_arrive(kafka: ScriptedKafka, tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        wait_for(lambda: service.waits.asked)
        assert service.waits.asked == [({"in": {0: Position(0, 1), 1: Position(0, 1)}}, LONGEST_WAIT_S)]
        asked = len(kafka.asked)
        time.sleep(0.5)  # more than two triggers
        assert len(kafka.asked) == asked
        kafka.stable = kafka.ends = {0: 2, 1: 2}
        service.waits.arrived.set()
        wait_for(lambda: service.next_offset() == 2)


def test_a_request_ends_the_wait(kafka: ScriptedKafka, tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        wait_for(lambda: service.waits.asked)
        assert ask_driver("compact", service.application, NAME) is not None


def test_an_operator_that_advances_when_idle_does_not_wait_for_records(kafka: ScriptedKafka, tmp_path: Path) -> None:
    with Service(tmp_path, idle_after="1h") as service:
        wait_for(lambda: service.next_offset() == 1)
        asked = len(kafka.asked)
        wait_for(lambda: len(kafka.asked) > asked + 4)
        assert service.waits.asked == []


def test_records_that_were_left_for_later_are_not_waited_for(kafka: ScriptedKafka, tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        wait_for(lambda: service.waits.asked)
        operator = service.driver.claim
        assert isinstance(operator, Owned)
        operator.operator.ends = {"in": {0: 9, 1: 1}}
        assert not operator.operator.awaits_records_only()
