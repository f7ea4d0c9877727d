"""Final results: exactly one per window and key."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tidegate.contracts.errors import BufferFull
from tidegate.operators.testing.driver import Driver, Emission
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig

pytestmark = pytest.mark.fast

records = st.lists(st.tuples(st.sampled_from(["a", "b", "a longer key"]), st.integers(0, 60)), max_size=30)
graces, lengths = st.integers(0, 15), st.integers(1, 10)
LAST = 10_000


def driver(window: dict[str, Any], **more: Any) -> Driver:
    raw = {"input": "in", "window": window, "aggregate": {"count": True}, "emit": "final"} | more
    return Driver(WindowedAggregation(WindowedAggregationConfig.model_validate(raw)))


def played(driver: Driver, records: list[tuple[str, int]]) -> list[Emission]:
    """What comes out of the records, and of time going on until all windows are closed."""
    found = [emission for key, timestamp in records for emission in driver.pipe(key, "x", timestamp)]
    return found + driver.advance(LAST)


def ms(number: int) -> str:
    return f"{number}ms"


@many
@given(records=records, length=lengths, grace=graces, retention=st.none() | st.just("100ms"), hops=st.integers(1, 3))
def test_each_span_and_key_has_one_final_result_with_every_record_that_was_in_time(
    records: list[tuple[str, int]], length: int, grace: int, retention: str | None, hops: int
) -> None:
    advance = -(-length // hops)
    window = {"hopping": ms(length), "advance": ms(advance), "grace": ms(grace)}
    results = played(driver(window, retention=retention), records)
    expected: Counter[tuple[str, int]] = Counter()
    stream_time = -1
    for key, timestamp in records:
        stream_time = max(stream_time, timestamp)
        for start in range(0, timestamp + 1, advance):
            if timestamp < start + length and start + length > stream_time - grace:
                expected[key, start] += 1
    found = [((result.key or b"").decode(), result.window_start) for result in results]
    assert len(found) == len(set(found))
    assert {window: int(result.value or b"") for window, result in zip(found, results, strict=True)} == expected


@many
@given(records=records, gap=lengths, grace=graces, retention=st.none() | st.just("100ms"))
def test_each_session_and_key_has_one_final_result_and_no_record_is_in_two(
    records: list[tuple[str, int]], gap: int, grace: int, retention: str | None
) -> None:
    tested = driver({"session": ms(gap), "grace": ms(grace)}, retention=retention)
    results = played(tested, records)
    found = [(result.key, result.window_start, result.window_end) for result in results]
    assert len(found) == len(set(found))
    assert sum(int(result.value or b"") for result in results) == len(records) - len(tested.late)


@many
@given(records=records, gap=lengths, grace=graces, seed=st.integers())
def test_with_enough_grace_the_order_of_arrival_changes_no_session(
    records: list[tuple[str, int]], gap: int, grace: int, seed: int
) -> None:
    shuffled = list(records)
    random.Random(seed).shuffle(shuffled)
    window = {"session": ms(gap), "grace": ms(grace + 60)}
    mine, other = (
        [(r.key, r.window_start, r.window_end, r.value) for r in played(driver(window), order)]
        for order in (records, shuffled)
    )
    assert sorted(mine) == sorted(other)


@pytest.mark.parametrize(
    "buffer", [None, {"max_bytes": 100, "when_full": "spill"}, {"max_bytes": 1000, "when_full": "shut_down"}]
)
def test_final_results_are_the_same_under_each_of_the_three_memory_options(buffer: dict[str, Any] | None) -> None:
    """KIP-328: "any of these constructions yield a strict guarantee".

    a    x   x |     x  |
    b      x   | x      |  x
    """
    tested = driver({"tumbling": "10ms", "grace": "5ms"}, buffer=buffer)
    results = played(tested, [("a", 1), ("b", 3), ("a", 5), ("b", 12), ("a", 16), ("b", 22)])
    assert [(r.key, r.window_start, r.value, r.cause) for r in results] == [
        (b"a", 0, b"2", "window_close"),
        (b"b", 0, b"1", "window_close"),
        (b"b", 10, b"1", "idle"),
        (b"a", 10, b"1", "idle"),
        (b"b", 20, b"1", "idle"),
    ]


def test_a_bound_counts_open_windows_after_closing_those_that_the_record_closes() -> None:
    tested = driver({"tumbling": "10ms", "grace": 0}, retention="1h", buffer={"max_keys": 2, "when_full": "shut_down"})
    tested.pipe("a", "x", 1)
    tested.pipe("b", "x", 2)
    with pytest.raises(BufferFull, match="max_keys"):
        tested.pipe("c", "x", 3)
    assert [emission.key for emission in tested.pipe("c", "x", 10)] == [b"a", b"b"]
    assert len(tested.held()) == 3


def test_a_flush_emits_pending_results_and_closes_their_windows() -> None:
    tested = driver({"tumbling": "10ms", "grace": "5ms"})
    tested.pipe("a", "x", 1)
    assert [(emission.value, emission.cause) for emission in tested.flush()] == [(b"1", "flush")]
    assert tested.pipe("a", "x", 2) == []
    assert [row["cause"] for row in tested.late] == ["its windows are closed, though it is ahead of stream time"]
    assert tested.flush() == []
    assert played(tested, []) == []


def test_a_longer_grace_does_not_reopen_a_window_with_a_final_result() -> None:
    tested = driver({"tumbling": "10ms", "grace": 0}, retention="1h")
    tested.pipe("a", "x", 1)
    assert len(tested.pipe("b", "x", 10)) == 1
    later = tested.restarted(driver({"tumbling": "10ms", "grace": "1m"}, retention="1h").operator)
    assert later.pipe("a", "x", 2) == []
    assert [row["timestamp"] for row in later.late] == [2]


@pytest.mark.parametrize("aggregate", [{"count": True}, {"last": True}], ids=["numbers", "elements"])
def test_windows_that_a_shorter_grace_closes_are_emitted_before_the_next_record(aggregate: dict[str, Any]) -> None:
    tested = driver({"tumbling": "10ms", "grace": "1m"}, aggregate=aggregate)
    tested.pipe("a", "1", 1)
    tested.pipe("b", "1", 15)
    later = tested.restarted(driver({"tumbling": "10ms", "grace": 0}, aggregate=aggregate).operator)
    assert [(each.key, each.cause) for each in later.pipe("b", "1", 15)] == [(b"a", "window_close")]
