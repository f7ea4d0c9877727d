"""A flush closes the windows whose results it emits: none of them gets a second result."""

from __future__ import annotations

import pytest

from tests.operators.suppression.partitions import emitted, opened
from tests.operators.suppression.test_windows import FIRST, SECOND, THIRD, updates
from tidegate.operators.suppression.state import SuppressionState

pytestmark = pytest.mark.fast


def flushed(**config: object) -> SuppressionState:
    """T = 12; [0, 10) is held, and [10, 20) too; both have left with a flush."""
    state = opened(until="window_close", grace="5ms", **config)
    state.step(updates((b"A", b"1", 1, FIRST), (b"A", b"1", 12, SECOND)), 0)
    assert emitted(state.flush()) == [(b"A", b"1", 1, "flush"), (b"A", b"1", 12, "flush")]
    return state


def test_a_flushed_window_never_accepts_a_record_again() -> None:
    """T is 12 at the flush; [10, 20) would close at 25; T goes to 24, then to 25"""
    state = flushed()
    again = updates((b"A", b"2", 13, SECOND))
    assert state.step(again, 0).late["cause"].to_pylist() == ["its window is closed, though it is ahead of stream time"]
    for time in (24, 25):
        state.step(updates((b"B", b"1", time, THIRD)), 0)
        assert state.step(again, 0).late["cause"].to_pylist() == ["its window is closed"]
    assert emitted(state.advance(1_000)) == [(b"B", b"1", 25, "idle")]


def test_a_flushed_window_is_forgotten_when_its_grace_has_passed() -> None:
    state = flushed()
    assert [row["window_end"] for row in state.snapshot().to_pylist()] == [10, 20]
    assert state.advance(15).changes["op"].to_pylist() == ["delete"]
    assert state.advance(25).counts.held == 0


def test_a_second_flush_emits_nothing_and_changes_nothing() -> None:
    result = flushed().flush()
    assert (result.emissions.num_rows, result.changes.num_rows) == (0, 0)


@pytest.mark.parametrize("bound", [{"max_keys": 2}, {"max_bytes": 2}], ids=["keys", "bytes"])
def test_a_closed_window_counts_against_no_bound(bound: dict[str, int]) -> None:
    state = flushed(buffer=bound | {"when_full": "shut_down"})
    result = state.step(updates((b"B", b"1", 12, THIRD), (b"C", b"1", 12, THIRD), (b"D", b"1", 12, THIRD)), 0)
    assert (result.stopped_at, result.measures["memory_records_now"]) == (2, 2)


def test_a_closed_window_keeps_only_its_key() -> None:
    row = flushed().snapshot().to_pylist()[0]
    assert (row["key"], row["value"], row["headers"], row["arrival"]) == (b"A", None, None, ~0)
