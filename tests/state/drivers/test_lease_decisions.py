"""When a driver may claim an operator that another one drives, or drove."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.drivers.lease_world import CLAIM_S, TAKEOVER_AFTER_MS, ModelDriver, ModelLake, Span, play
from tidegate.state.lease_decisions import (
    DriverLease,
    Life,
    Sight,
    Succession,
    Turn,
    Watch,
    life_of,
    look_s,
    patience_s,
    renewal_s,
    whose_turn,
)

pytestmark = pytest.mark.fast

LEASE = DriverLease(
    epoch=3, instance="theirs", host="head", process=77, since=1, takeover_after_ms=6_000, clock=2, renewals=5
)
SEEN = Sight(3, "etag")


def watched(*looks: tuple[Sight, float]) -> Watch:
    """What these looks show, each at its second; the time between two counts as up to two seconds."""
    (sight, at), *more = looks
    watch = Watch(sight, at)
    for sight, at in more:
        watch = watch.after(sight, at, 2.0)
    return watch


def silent(seconds: float) -> Watch:
    return replace(watched((SEEN, 0.0)), silent_s=seconds)


def test_without_a_lease_there_is_no_driver_and_the_claim_need_not_wait() -> None:
    assert life_of(None, None, None, 6_000) is Life.NONE
    assert whose_turn(Life.NONE, Succession.REFUSE) is Turn.CLAIM


def test_a_lease_that_is_renewed_is_that_of_a_living_driver() -> None:
    watch = watched((SEEN, 0.0), (Sight(3, "another"), 1.0))
    assert life_of(watch, LEASE, "mine", 6_000) is Life.ALIVE


def test_a_lease_that_stays_the_same_for_too_long_is_that_of_a_driver_that_is_gone() -> None:
    """seconds 0 to 5: unknown; 6: gone"""
    looks = [(SEEN, float(second)) for second in range(7)]
    found = [life_of(watched(*looks[:count]), LEASE, "mine", 6_000) for count in range(1, 8)]
    assert found == [Life.UNKNOWN] * 6 + [Life.GONE]


def test_a_driver_that_was_alive_is_gone_once_its_lease_is_no_longer_renewed() -> None:
    first, second = SEEN, Sight(3, "another")
    looks = [(first, 0.0), (second, 1.0), (second, 3.0), (second, 5.0)]
    assert life_of(watched(*looks), LEASE, "mine", 6_000) is Life.ALIVE
    assert life_of(watched(*looks, (second, 7.0)), LEASE, "mine", 6_000) is Life.GONE


def test_a_new_epoch_is_a_sign_of_life_even_before_its_lease() -> None:
    watch = watched((SEEN, 0.0), (SEEN, 2.0), (SEEN, 4.0), (Sight(4, None), 6.0))
    assert (watch.silent_s, watch.renewed) == (0.0, True)


def test_the_time_in_which_the_lake_did_not_answer_is_no_silence_of_the_driver() -> None:
    """Looks at 0 and 60 s: the driver may have been kept from renewing just as the watcher from looking."""
    watch = watched((SEEN, 0.0), (SEEN, 60.0))
    assert watch.silent_s == 2.0
    assert life_of(watch, LEASE, "mine", 6_000) is Life.UNKNOWN


def test_a_driver_that_starts_again_with_the_same_instance_need_not_wait() -> None:
    assert life_of(watched((SEEN, 0.0)), LEASE, "theirs", 6_000) is Life.GONE
    assert life_of(watched((SEEN, 0.0)), LEASE, None, 6_000) is Life.UNKNOWN


def test_a_lease_that_cannot_be_read_counts_by_its_etag() -> None:
    assert life_of(silent(5.9), None, "mine", 6_000) is Life.UNKNOWN
    assert life_of(silent(6.0), None, "mine", 6_000) is Life.GONE


@pytest.mark.parametrize(("own_ms", "theirs_ms"), [(6_000, 30_000), (30_000, 6_000)])
def test_of_two_settings_the_longer_one_counts(own_ms: int, theirs_ms: int) -> None:
    lease = replace(LEASE, takeover_after_ms=theirs_ms)
    assert life_of(silent(29.9), lease, "mine", own_ms) is Life.UNKNOWN
    assert life_of(silent(30.0), lease, "mine", own_ms) is Life.GONE


def test_a_living_driver_is_kept_unless_a_takeover_is_asked_for() -> None:
    """refuse: ends with an error; stand by: looks again; take over: claims"""
    assert [whose_turn(Life.ALIVE, way) for way in Succession] == [Turn.REFUSE, Turn.LOOK, Turn.CLAIM]


def test_nobody_is_refused_before_the_driver_has_shown_life() -> None:
    assert [whose_turn(Life.UNKNOWN, way) for way in Succession] == [Turn.LOOK, Turn.LOOK, Turn.CLAIM]


def test_a_driver_that_is_gone_is_followed_by_everybody() -> None:
    assert {whose_turn(Life.GONE, way) for way in Succession} == {Turn.CLAIM}


def test_a_lease_round_trips_and_each_renewal_differs() -> None:
    assert DriverLease.from_json(LEASE.to_json()) == LEASE
    assert LEASE.renewed(2).to_json() != LEASE.to_json()
    for damaged in (b"", b"{", b"[]", b"{}", LEASE.to_json().replace(b'"epoch":3', b'"epoch":"3"')):
        with pytest.raises((ValueError, TypeError)):
            DriverLease.from_json(damaged)


def test_a_driver_renews_several_times_within_the_time_that_others_wait() -> None:
    for takeover_after_ms in (6_000, 30_000):
        patience = patience_s(None, takeover_after_ms)
        assert 3 * renewal_s(takeover_after_ms) <= patience
        assert look_s(patience, is_local=True) < look_s(patience, is_local=False) < renewal_s(takeover_after_ms)


# ---- several drivers on one clock

LONGEST_S = 60.0
FAULTY_S = 180.0
spans = st.tuples(st.floats(0, FAULTY_S - LONGEST_S), st.floats(0, LONGEST_S)).map(lambda span: (span[0], sum(span)))
several = st.lists(spans, max_size=4)


@given(outages=several, frozen=st.lists(several, min_size=2, max_size=4))
def test_drivers_that_freeze_and_lose_the_lake_end_with_one_of_them_driving(
    outages: list[Span], frozen: list[list[Span]]
) -> None:
    """Faults end at 180 s. After that one takeover may be under way; then nobody disturbs the one that drives."""
    lake = ModelLake(outages=outages)
    drivers = [ModelDriver(number, lake, spans) for number, spans in enumerate(frozen)]
    play(lake, drivers, FAULTY_S + 30.0)
    settled = len(lake.claims)
    assert settled <= 1 + len(outages) + sum(map(len, frozen))
    play(lake, drivers, FAULTY_S + 300.0, from_s=FAULTY_S + 30.0)
    assert len(lake.claims) == settled
    assert [driver.owns for driver in drivers if driver.owns is not None] == [lake.epoch]


@given(
    killed_at=st.integers(80, 160).map(lambda steps: steps / 4),
    phases=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=3),
    leaves_lease=st.booleans(),
)
def test_a_standby_takes_over_within_ten_seconds_of_a_kill_and_only_one_does(
    killed_at: float, phases: list[float], leaves_lease: bool
) -> None:
    lake = ModelLake()
    first = ModelDriver(0, lake, killed_at=killed_at)
    standbys = [ModelDriver(number, lake, [(0.0, 10.0 + at)]) for number, at in enumerate(phases, 1)]
    play(lake, [first, *standbys], killed_at)
    if not leaves_lease:  # a clean end
        lake.leases.clear()
    play(lake, [first, *standbys], killed_at + 60.0, from_s=killed_at)
    assert lake.claims[0][1] == 0
    [(taken_at, _)] = lake.claims[1:]
    assert taken_at - killed_at <= (10.0 if leaves_lease else 2 * CLAIM_S)


@given(frozen_s=st.floats(0.0, TAKEOVER_AFTER_MS / 1_000 - 2.5))
def test_a_short_freeze_costs_no_driver_its_operator(frozen_s: float) -> None:
    lake = ModelLake()
    drivers = [ModelDriver(0, lake, [(20.0, 20.0 + frozen_s)]), ModelDriver(1, lake, [(0.0, 5.0)])]
    play(lake, drivers, 120.0)
    assert lake.claims == [(CLAIM_S, 0)]


def test_a_frozen_driver_that_thaws_is_fenced_and_stands_by_without_taking_back() -> None:
    lake = ModelLake()
    drivers = [ModelDriver(0, lake, [(20.0, 60.0)]), ModelDriver(1, lake, [(0.0, 5.0)])]
    play(lake, drivers, 300.0)
    assert [number for _, number in lake.claims] == [0, 1]
    assert [driver.owns for driver in drivers] == [None, 2]
