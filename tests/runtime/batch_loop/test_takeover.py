"""Drivers of one operator on several machines: one drives, the others stand by; commands reach it from anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.patience import PATIENCE_S, wait_for
from tests.runtime.miniature import NAME, Jobs, application, driver_of, use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.cli.driver_client import ask_driver
from tidegate.contracts.errors import Fenced, UserError
from tidegate.runtime.batch_loop.driver import Owned
from tidegate.runtime.batch_loop.lease_holder import LeaseHolder
from tidegate.runtime.configuration.application import config_of
from tidegate.runtime.doctor.current_driver import current_driver
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state.lease_decisions import Succession

pytestmark = pytest.mark.fast

HOUR_MS = 3_600_000
TAKEOVER_AFTER_MS = 3_000
"""Long enough for a thread that renews a lease to get its turn on a busy machine."""


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    """A broker with one record in each partition."""
    broker = ScriptedKafka()
    broker.stable, broker.ends = {0: 1, 1: 1}, {0: 1, 1: 1}
    use_broker(monkeypatch, broker)
    return broker


class Machine:
    """A driver on a machine of its own: another state folder, the same lake."""

    def __init__(
        self, folder: Path, number: int, way: Succession, takeover_after_ms: int = TAKEOVER_AFTER_MS, **operator: object
    ) -> None:
        changed = {"state": folder / f"state-{number}", "takeover_after": takeover_after_ms, "trigger": 10}
        self.application = application(folder, **operator).model_copy(update=changed)
        self.driver = driver_of(self.application, Jobs(), succession=way)
        self.error: Exception | None = None
        self._stop, self._thread = Event(), Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.driver.run(self._stop)
        except Exception as error:
            self.error = error

    @property
    def epoch(self) -> int | None:
        """The epoch under which it believes to drive."""
        claim = self.driver.claim
        return claim.operator.newest.epoch if isinstance(claim, Owned) else None

    def stands_by(self) -> bool:
        return self.driver.observe().status.state == "standing by"

    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert self.has_ended()


@pytest.fixture
def start(kafka: ScriptedKafka, tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    """`start(number, way)`: a driver runs on that machine."""
    with ExitStack() as machines:

        def make(number: int, way: Succession = Succession.STAND_BY, **operator: object) -> Machine:
            machine = Machine(tmp_path, number, way, **operator)
            machines.callback(machine.end)
            return machine

        yield make


def drives(machine: Machine, epoch: int) -> None:
    wait_for(lambda: machine.epoch == epoch, f"it drives under epoch {epoch}")


def more_records(kafka: ScriptedKafka) -> None:
    kafka.stable = kafka.ends = {partition: end + 1 for partition, end in kafka.stable.items()}


def test_a_standby_takes_over_at_once_when_the_driver_ends(start: Callable[..., Machine]) -> None:
    first = start(1)
    drives(first, 1)
    second = start(2)
    wait_for(second.stands_by, "it stands by")
    first.end()
    drives(second, 2)
    assert first.error is None


def test_a_standby_with_another_file_takes_over_under_the_configuration_in_the_log(
    start: Callable[..., Machine], caplog: pytest.LogCaptureFixture
) -> None:
    """The file of the second machine has another time limit; a start without another driver uses it"""
    first = start(1)
    drives(first, 1)
    second = start(2, until={"time_limit": "2h"})
    wait_for(second.stands_by, "it stands by")
    first.end()
    drives(second, 2)
    assert config_of_log(second).until.time_limit == HOUR_MS
    assert "its own file differs" in caplog.text
    second.end()
    third = start(3, until={"time_limit": "2h"})
    wait_for(lambda: third.epoch is not None, "it drives")
    assert config_of_log(third).until.time_limit == 2 * HOUR_MS


def config_of_log(machine: Machine) -> Any:
    assert isinstance(machine.driver.claim, Owned)
    return config_of(machine.driver.claim.operator.newest.settings)


def test_a_second_driver_is_refused_and_the_first_goes_on(start: Callable[..., Machine], kafka: ScriptedKafka) -> None:
    first = start(1)
    drives(first, 1)
    second = start(2, Succession.REFUSE)
    wait_for(second.has_ended, "it is refused")
    assert isinstance(second.error, UserError)
    assert "process " in str(second.error.value)
    more_records(kafka)
    drives(first, 1)


def test_a_second_driver_on_the_same_state_folder_leaves_the_status_of_the_first(start: Callable[..., Machine]) -> None:
    first = start(1)
    drives(first, 1)
    file = DriverStatusFile(first.application.state / "app" / NAME)
    wait_for(lambda: (written := file.read()) is not None and written.state == "running", "it has written its status")
    second = start(1, Succession.REFUSE)
    wait_for(second.has_ended, "it is refused")
    assert isinstance(second.error, UserError)
    written = file.read()
    assert written is not None and written.state == "running"


def test_a_takeover_that_is_asked_for_does_not_wait(start: Callable[..., Machine], kafka: ScriptedKafka) -> None:
    first = start(1, Succession.REFUSE)
    drives(first, 1)
    second = start(2, Succession.TAKE_OVER)
    drives(second, 2)
    more_records(kafka)
    wait_for(first.has_ended, "it is fenced")
    assert isinstance(first.error, Fenced)


def test_a_frozen_driver_is_fenced_by_its_next_commit_and_stands_by(
    start: Callable[..., Machine], kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first renews nothing. The second takes over; the first notices, and neither takes the operator back."""
    renew = LeaseHolder._renew
    first = start(1)
    drives(first, 1)
    frozen = first.driver._holder
    monkeypatch.setattr(LeaseHolder, "_renew", lambda holder, it: None if holder is frozen else renew(holder, it))
    second = start(2)
    drives(second, 2)
    more_records(kafka)
    wait_for(lambda: first.stands_by() or first.has_ended(), "the first stands by")
    assert not first.has_ended()
    for _ in range(20):
        more_records(kafka)
        time.sleep(0.1)
        assert (first.epoch, second.epoch) == (None, 2)
    second.end()
    drives(first, 3)


def test_of_several_that_stand_by_one_takes_over_and_the_others_stand_by(start: Callable[..., Machine]) -> None:
    """The first deletes its lease as it ends; no lease runs out within the test."""
    first = start(1)
    drives(first, 1)
    others = [start(number, takeover_after_ms=60_000) for number in range(2, 5)]
    wait_for(lambda: all(each.stands_by() for each in others), "all stand by")
    first.end()
    wait_for(lambda: [each.epoch for each in others if each.epoch] == [2], "one drives")
    time.sleep(1.0)  # a takeover too many would happen now
    assert [each.epoch for each in others if each.epoch] == [2]
    assert not any(each.has_ended() for each in others)


def test_commands_reach_the_driver_from_a_machine_with_another_state_folder(
    start: Callable[..., Machine], tmp_path: Path
) -> None:
    first = start(1)
    drives(first, 1)
    elsewhere = first.application.model_copy(update={"state": tmp_path / "elsewhere"})
    lease = ask_driver("compact", elsewhere, NAME)
    assert lease is not None and lease.epoch == 1
    assert current_driver(elsewhere, NAME) is not None
    claim = first.driver.claim
    assert isinstance(claim, Owned) and claim.operator.newest.action == "compaction"


def test_a_driver_that_is_asked_to_stop_from_elsewhere_ends_without_error(
    start: Callable[..., Machine], tmp_path: Path
) -> None:
    first = start(1, Succession.REFUSE)
    drives(first, 1)
    elsewhere = first.application.model_copy(update={"state": tmp_path / "elsewhere"})
    assert ask_driver("stop", elsewhere, NAME) is not None
    wait_for(first.has_ended, "it has ended")
    assert first.error is None
    assert current_driver(elsewhere, NAME) is None
    assert ask_driver("stop", elsewhere, NAME) is None


def test_a_command_finds_after_a_crash_elsewhere_that_nobody_drives(
    start: Callable[..., Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(1)
    drives(first, 1)
    monkeypatch.setattr(LeaseHolder, "_end", lambda _holder: None)
    first.end()
    elsewhere = first.application.model_copy(update={"state": tmp_path / "elsewhere"})
    asked_at = time.monotonic()
    assert ask_driver("flush", elsewhere, NAME) is None
    assert time.monotonic() - asked_at >= TAKEOVER_AFTER_MS / 1_000
    assert ask_driver("flush", first.application, NAME) is None
