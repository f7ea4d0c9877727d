"""Suppression until windows close: final results of a topic of windowed updates (KIP-328)."""

from __future__ import annotations

import pytest

from tests.operators.suppression.partitions import changed, config, emitted, opened
from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.suppression import Suppression
from tidegate.operators.windowed_aggregation import WindowedAggregation, WindowedAggregationConfig

pytestmark = pytest.mark.fast


def update(key: bytes | None, value: bytes | None, timestamp: int, window: tuple[int, int], offset: int) -> Row:
    """A result of a window."""
    names = HEADER_WINDOW_START, HEADER_WINDOW_END
    block = encode_headers((name.encode(), b"%d" % bound) for name, bound in zip(names, window, strict=True))
    return Row(key, value, timestamp, offset, block)


def updates(*rows: tuple[bytes | None, bytes | None, int, tuple[int, int]]) -> Records:
    """Key, value, timestamp and window; offsets from 0 on."""
    return Records.from_rows(update(*row, offset) for offset, row in enumerate(rows))


FIRST, SECOND, THIRD = (0, 10), (10, 20), (20, 30)
SEEN = updates(
    (b"A", b"1", 1, FIRST),
    (b"B", b"1", 2, FIRST),
    (b"A", b"2", 9, FIRST),
    (b"A", b"1", 12, SECOND),
    (b"A", b"3", 5, FIRST),
    (b"A", b"1", 22, THIRD),
)


@pytest.mark.parametrize(
    "buffer",
    [None, {"max_keys": 100, "when_full": "shut_down"}, {"max_keys": 1, "when_full": "spill"}],
    ids=["unbounded", "shut_down", "spill"],
)
def test_each_of_the_three_memory_options_for_final_results_emits_exactly_one_per_windowed_key(buffer) -> None:
    state = opened(until="window_close", grace="5ms", buffer=buffer)
    assert emitted(state.step(SEEN, 0)) == [(b"A", b"3", 5, "window_close"), (b"B", b"1", 2, "window_close")]
    assert emitted(state.advance(35)) == [(b"A", b"1", 12, "idle"), (b"A", b"1", 22, "idle")]


def test_a_window_s_results_keep_their_headers_byte_for_byte() -> None:
    state = opened(until="window_close", grace=0)
    row = update(b"A", b"1", 3, FIRST, 0)
    state.step(Records.from_rows([row]), 0)
    (emission,) = state.flush().emissions.to_pylist()
    assert (emission["key"], emission["headers"]) == (b"A", row.headers)


def test_windows_are_emitted_by_end_whatever_their_updates_timestamps() -> None:
    state = opened(until="window_close", grace="100ms")
    state.step(updates((b"A", b"1", 12, SECOND), (b"B", b"1", 1, THIRD), (b"C", b"1", 15, FIRST)), 0)
    assert [key for key, *_ in emitted(state.flush())] == [b"C", b"A", b"B"]


def test_an_update_of_a_closed_window_is_late_and_names_the_end_that_it_missed() -> None:
    state = opened(until="window_close", grace="5ms")
    state.step(updates((b"A", b"1", 1, FIRST), (b"A", b"1", 15, SECOND)), 0)
    (late,) = state.step(updates((b"A", b"2", 9, FIRST)), 0).late.to_pylist()
    assert (late["key"], late["cause"], late["lateness"], late["bound"]) == (b"A", "its window is closed", 6, 10)


def test_a_null_retracts_a_window_and_nothing_is_emitted_for_it() -> None:
    state = opened(until="window_close", grace=0)
    state.step(updates((b"A", b"1", 1, FIRST), (b"B", b"1", 1, FIRST), (b"A", None, 2, FIRST)), 0)
    assert emitted(state.step(updates((b"C", b"1", 10, SECOND)), 0)) == [(b"B", b"1", 1, "window_close")]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([], "headers with its bounds are missing"),
        ([(HEADER_WINDOW_START, b"1")], "headers with its bounds are missing"),
        (
            [(HEADER_WINDOW_START, b"1"), (HEADER_WINDOW_END, b"1e3")],
            "its start and end do not form an interval within the range of time",
        ),
        (
            [(HEADER_WINDOW_START, b"9"), (HEADER_WINDOW_END, b"8")],
            "its start and end do not form an interval within the range of time",
        ),
        (
            [(HEADER_WINDOW_START, None), (HEADER_WINDOW_END, b"8")],
            "its start and end do not form an interval within the range of time",
        ),
    ],
)
def test_a_record_without_a_window_is_rejected_and_the_others_are_processed(headers, reason) -> None:
    state = opened(until="window_close", grace=0)
    block = encode_headers((name.encode(), value) for name, value in headers)
    result = state.step(Records.from_rows([Row(b"A", b"1", 1, 0, block), update(b"B", b"1", 2, FIRST, 1)]), 0)
    (row,) = result.rejected.to_pylist()
    assert (row["key"], row["cause"]) == (b"A", f"no window: {reason}")
    assert result.counts.held == 1


def test_the_changelog_s_slot_includes_the_window() -> None:
    state = opened(until="window_close", grace=0)
    changes = state.step(updates((b"A", b"1", 1, FIRST), (b"A", b"1", 5, SECOND)), 0).changes.to_pylist()
    assert [(row["key"], row["window_start"], row["window_end"]) for row in changes] == [(b"A", 0, 10), (b"A", 10, 20)]
    assert changed(state.advance(20)) == [("delete", b"A")] * 2


def test_a_suppression_of_plain_keys_refuses_held_windows() -> None:
    windowed, plain = Suppression(config(until="window_close", grace=0)), Suppression(config())
    storage = MemoryStorage(windowed.layout)
    state = windowed.open(storage)
    rows = state.step(updates((b"A", b"1", 1, FIRST)), 0).changes
    with pytest.raises(UserError, match="the held keys have windows"):
        plain.open(storage)
    with pytest.raises(UserError, match="the held keys have windows"):
        plain.open(MemoryStorage(plain.layout)).restore(rows, 1)


def test_max_lateness_is_refused_with_window_close() -> None:
    with pytest.raises((ConfigurationError, ValueError), match="remove max_lateness"):
        config(until="window_close", grace=0, max_lateness="1s")


def test_final_results_of_updates_are_those_of_an_aggregation_with_final_results() -> None:
    rules = {"input": "records", "window": {"tumbling": "10ms", "grace": "5ms"}, "aggregate": {"count": True}}
    rows = [Row(b"%d" % (n % 3), b"v", (n * 7) % 40 + n // 2, n) for n in range(120)]
    counted = _run(WindowedAggregation(WindowedAggregationConfig.model_validate(rules | {"emit": "updates"})), rows)
    names = HEADER_WINDOW_START.encode(), HEADER_WINDOW_END.encode()
    told = [
        Row(
            row["key"],
            row["value"],
            row["timestamp"],
            offset,
            encode_headers(zip(names, (b"%d" % row["window_start"], b"%d" % row["window_end"]), strict=True)),
        )
        for offset, row in enumerate(counted)
    ]
    final = _run(WindowedAggregation(WindowedAggregationConfig.model_validate(rules | {"emit": "final"})), rows)
    suppressed = _run(Suppression(config(until="window_close", grace="5ms")), told)
    assert len(final) > 10
    assert _results(suppressed) == _results(final)


def _run(operator, rows):
    return operator.open(MemoryStorage(operator.layout)).step(Records.from_rows(rows), 0).emissions.to_pylist()


def _results(emissions):
    return sorted((row["key"], row["value"], row["timestamp"]) for row in emissions)


@pytest.mark.parametrize("cut", range(1, 12))
def test_headers_truncated_within_a_bound_name_no_window_and_later_bytes_are_not_read(cut: int) -> None:
    state = opened(until="window_close", grace=0)
    row = update(b"A", b"1", 1, (1_700_000_000_000, 1_700_000_000_010), 0)
    (found,) = state.step(Records.from_rows([row._replace(headers=row.headers[:-cut])]), 0).rejected.to_pylist()
    assert found["cause"] == "no window: headers with its bounds are missing"
