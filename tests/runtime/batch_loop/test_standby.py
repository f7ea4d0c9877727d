"""The wait for a turn to claim, and the lease of a driver while it runs; with a clock of the test."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.living_driver import LEASE
from tidegate.contracts.errors import Unavailable, UserError
from tidegate.runtime.batch_loop.lease_holder import Ended, LeaseHolder
from tidegate.runtime.batch_loop.standby import DriverWatch, Standby
from tidegate.runtime.environment import REAL
from tidegate.runtime.telemetry.driver_status import DriverStatusFile
from tidegate.state import driver_leases
from tidegate.state.driver_requests import KEY, Requester
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.lease_decisions import DriverLease, Life, Succession

pytestmark = pytest.mark.fast

SIX_S = 6_000
OTHERS = replace(LEASE, takeover_after_ms=SIX_S)


class TestClock:
    """Time passes when somebody waits; whatever happens at a moment happens then."""

    __test__ = False

    def __init__(self) -> None:
        self.now_s = 100.0
        self.events: list[tuple[float, Callable[[], object]]] = []

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for event in [event for event in self.events if event[0] <= self.now_s]:
            self.events.remove(event)
            event[1]()


class Stop(Event):
    """A stop event on which waiting lets that clock go on."""

    def __init__(self, clock: TestClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.sleep(timeout or 0.0)
        return self.is_set()


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(Place.of(tmp_path))


def renewing(clock: TestClock, lake: Lake, lease: DriverLease, times: int, every_s: float = 2.0) -> None:
    """That driver renews its lease so many times from now on."""
    driver_leases.put(lake, lease)
    for number in range(1, times + 1):
        renewed = replace(lease, renewals=lease.renewals + number, clock=10**number)  # another size: another ETag
        clock.events.append((clock.now_s + number * every_s, lambda renewed=renewed: driver_leases.put(lake, renewed)))


class Waiting:
    """A driver that wants to claim an operator; the log has these epochs, one after the other."""

    def __init__(
        self, lake: Lake, clock: TestClock, way: Succession, folder: Path, epochs: tuple[int, ...], was_fenced: bool
    ) -> None:
        self.clock, self.stop, self.status = clock, Stop(clock), DriverStatusFile(folder, clock)
        self._epochs = list(epochs)
        watch = DriverWatch(lake, "mine", SIX_S, clock)
        self._standby = Standby("updates", watch, self._newest_epoch, way, self.status, was_fenced=was_fenced)

    def _newest_epoch(self) -> int:
        return self._epochs.pop(0) if len(self._epochs) > 1 else self._epochs[0]

    def turn(self) -> tuple[int | None, float]:
        """The epoch that it may follow, and after how many seconds."""
        started = self.clock.now_s
        return self._standby.await_turn(self.stop), self.clock.now_s - started


@pytest.fixture
def waiting(lake: Lake, clock: TestClock, tmp_path: Path) -> Callable[..., Waiting]:
    def make(way: Succession, *epochs: int, was_fenced: bool = False) -> Waiting:
        return Waiting(lake, clock, way, tmp_path / "state", epochs or (1_000,), was_fenced)

    return make


def test_without_a_lease_a_driver_claims_at_once(waiting: Callable[..., Waiting]) -> None:
    assert waiting(Succession.REFUSE, 7).turn() == (7, 0.0)


def test_a_driver_of_the_same_instance_claims_at_once(waiting: Callable[..., Waiting], lake: Lake) -> None:
    driver_leases.put(lake, replace(OTHERS, instance="mine"))
    assert waiting(Succession.REFUSE).turn() == (1_000, 0.0)


def test_a_start_beside_a_living_driver_is_refused_with_its_place_and_the_ways_out(
    waiting: Callable[..., Waiting], lake: Lake, clock: TestClock
) -> None:
    renewing(clock, lake, OTHERS, 3)
    with pytest.raises(UserError, match="another driver runs updates") as refused:
        waiting(Succession.REFUSE).turn()
    assert refused.value.value == "process 77 on head"
    assert all(way in refused.value.remedy for way in ("tidegate stop", "--standby", "--takeover"))


def test_a_standby_waits_as_long_as_the_driver_renews_and_six_seconds_more(
    waiting: Callable[..., Waiting], lake: Lake, clock: TestClock
) -> None:
    renewing(clock, lake, OTHERS, 20)
    standby = waiting(Succession.STAND_BY)
    follows, waited_s = standby.turn()
    assert follows == 1_000
    assert 46.0 <= waited_s <= 46.6
    assert (standby.status.last.state, standby.status.last.why) == ("standing by", "driven by process 77 on head")


def test_a_standby_claims_as_soon_as_the_driver_has_deleted_its_lease(
    waiting: Callable[..., Waiting], lake: Lake, clock: TestClock
) -> None:
    renewing(clock, lake, OTHERS, 4)
    clock.events.append((clock.now_s + 9.0, lambda: driver_leases.end(lake, OTHERS.epoch)))
    follows, waited_s = waiting(Succession.STAND_BY).turn()
    assert follows == 1_000
    assert 9.0 <= waited_s <= 9.3


def test_a_start_after_a_crash_on_another_machine_waits_out_the_lease(
    waiting: Callable[..., Waiting], lake: Lake
) -> None:
    driver_leases.put(lake, OTHERS)
    follows, waited_s = waiting(Succession.REFUSE).turn()
    assert follows == 1_000
    assert 6.0 <= waited_s <= 6.3


def test_a_claim_that_another_driver_made_meanwhile_is_waited_for_again(
    waiting: Callable[..., Waiting], lake: Lake
) -> None:
    """Its lease is not there yet. At 6 s the log shows epoch 1,001, of which no lease ever comes."""
    driver_leases.put(lake, OTHERS)
    follows, waited_s = waiting(Succession.STAND_BY, 1_000, 1_001).turn()
    assert follows == 1_001
    assert 12.0 <= waited_s <= 12.6


def test_a_fenced_driver_waits_for_the_lease_of_the_one_that_has_fenced_it(
    waiting: Callable[..., Waiting], lake: Lake, clock: TestClock
) -> None:
    """A driver has claimed the operator under epoch 1,001; its lease comes after 1 s, and goes at 4 s as it ends."""
    new = replace(OTHERS, epoch=1_001)
    clock.events.append((clock.now_s + 1.0, lambda: driver_leases.put(lake, new)))
    clock.events.append((clock.now_s + 4.0, lambda: driver_leases.end(lake, 1_001)))
    follows, waited_s = waiting(Succession.STAND_BY, 1_001, was_fenced=True).turn()
    assert follows == 1_001
    assert 4.0 <= waited_s <= 4.5


def test_a_fenced_driver_takes_over_from_one_that_never_writes_a_lease(waiting: Callable[..., Waiting]) -> None:
    follows, waited_s = waiting(Succession.STAND_BY, 1_001, was_fenced=True).turn()
    assert follows == 1_001
    assert 6.0 <= waited_s <= 6.5


def test_a_standby_ends_when_it_is_asked_to(waiting: Callable[..., Waiting], lake: Lake, clock: TestClock) -> None:
    renewing(clock, lake, OTHERS, 20)
    standby = waiting(Succession.STAND_BY)
    clock.events.append((clock.now_s + 5.0, standby.stop.set))
    follows, waited_s = standby.turn()
    assert follows is None
    assert waited_s <= 5.3


def test_a_standby_waits_while_the_lake_does_not_answer(
    waiting: Callable[..., Waiting], lake: Lake, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver cannot renew either: after 60 s of outage it has two renewals' time to go on."""
    renewing(clock, lake, OTHERS, 2)
    standby = waiting(Succession.STAND_BY)
    look = driver_leases.look

    def away(*arguments: Any) -> Any:
        if 105.0 <= clock.now_s < 165.0:
            raise Unavailable("the lake does not answer")
        return look(*arguments)

    monkeypatch.setattr(driver_leases, "look", away)
    clock.events.append((166.0, lambda: driver_leases.put(lake, replace(OTHERS, clock=10**9))))
    clock.events.append((167.0, standby.stop.set))
    assert standby.turn()[0] is None


def test_a_command_knows_after_one_renewal_or_after_the_lease_ran_out_whether_a_driver_runs(
    lake: Lake, clock: TestClock
) -> None:
    assert DriverWatch(lake, None, SIX_S, clock).until_known() is Life.NONE
    renewing(clock, lake, OTHERS, 1)
    started = clock.now_s
    assert DriverWatch(lake, None, SIX_S, clock).until_known() is Life.ALIVE
    assert clock.now_s - started <= 2.3
    assert DriverWatch(lake, None, SIX_S, clock).until_known() is Life.GONE
    assert DriverWatch(lake, "another", SIX_S, clock).look() is Life.GONE


# ---- the lease of a driver that runs


def not_repeating(_work: Callable[[], None], _pause_s: float, _name: str) -> AbstractContextManager[None]:
    return nullcontext()


@pytest.fixture
def holder(lake: Lake, clock: TestClock) -> LeaseHolder:
    environment = replace(REAL, clock=clock, repeating=not_repeating)
    return LeaseHolder(
        "updates", lake, environment, instance="mine", takeover_after_ms=SIX_S, committed_clock=lambda: clock.now_ms()
    )


def leases(lake: Lake) -> list[str]:
    return [found.key for found in lake.list_after(driver_leases.FOLDER)]


def test_a_driver_has_a_lease_from_its_claim_to_its_end(holder: LeaseHolder, lake: Lake, clock: TestClock) -> None:
    driver_leases.put(lake, replace(OTHERS, epoch=4))
    with holder.keeping():
        holder.tick()
        assert leases(lake) == [driver_leases.key_of(4)]
        holder.claimed(5)
        assert leases(lake) == [driver_leases.key_of(5)]
        holder.claimed(6)  # it has started over
        assert leases(lake) == [driver_leases.key_of(6)]
        seen = driver_leases.look(lake)
        assert seen is not None and seen.lease is not None
        assert (seen.lease.epoch, seen.lease.instance, seen.lease.clock) == (6, "mine", clock.now_ms())
    assert leases(lake) == []
    holder.tick()
    assert leases(lake) == []


def test_a_driver_renews_its_lease_three_times_in_the_time_that_others_wait(
    holder: LeaseHolder, lake: Lake, clock: TestClock
) -> None:
    etags = set()
    with holder.keeping():
        holder.claimed(5)
        for _ in range(60):
            clock.sleep(0.1)
            holder.tick()
            seen = driver_leases.look(lake)
            assert seen is not None and seen.lease is not None
            etags.add(seen.lease.renewals)
    assert len(etags) == 4


def test_an_outage_of_the_lake_stops_no_driver_and_is_logged_once(
    holder: LeaseHolder, lake: Lake, clock: TestClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_arguments: object) -> None:
        raise Unavailable("the lake does not answer")

    with caplog.at_level(logging.WARNING, "tidegate"), monkeypatch.context() as patch:
        patch.setattr(driver_leases, "put", away)
        holder.claimed(5)
        for _ in range(3):
            clock.sleep(2.0)
            holder.tick()
    assert [record.getMessage() for record in caplog.records] == [
        "updates: its lease could not be renewed, another driver may take over: the lake does not answer"
    ]
    clock.sleep(2.0)
    holder.tick()
    assert leases(lake) == [driver_leases.key_of(5)]


def test_a_request_to_stop_ends_the_driver_wherever_it_waits(holder: LeaseHolder, lake: Lake, clock: TestClock) -> None:
    ended = Ended(Stop(clock), holder)
    with holder.keeping():
        holder.claimed(5)
        assert holder.request() is None
        assert not ended.wait(1.0)
        requester = Requester(lake, clock)
        request = requester.new("stop", 5, 30.0)
        requester.put(request)
        assert not ended.is_set()
        holder.tick()
        assert ended.is_set() and ended.wait(1.0)
        assert (holder.request(), holder.stop_request) == (request, request)
        holder.done(request)
        assert not ended.is_set()
        assert lake.get(KEY) is None


def test_a_request_is_found_by_the_next_round_in_a_folder(holder: LeaseHolder, lake: Lake, clock: TestClock) -> None:
    with holder.keeping():
        holder.claimed(5)
        requester = Requester(lake, clock)
        request = requester.new("apply", 5, 30.0, "{}")
        requester.put(request)
        assert holder.request() == request
        holder.refuse(request, UserError("not so"))
        assert holder.request() is None
