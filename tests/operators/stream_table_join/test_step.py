"""The join's rules by example; the laws and the recorded scenarios test the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.stream_table_join.partitions import Line, config, joined, opened, records, table_of
from tidegate.contracts.event_time import NEVER
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin

pytestmark = pytest.mark.fast


def values(result: Any) -> list[bytes]:
    """The values of the emissions."""
    found: list[bytes] = result.emissions["value"].to_pylist()
    return found


def test_a_record_is_released_when_stream_time_has_passed_it_by_the_grace() -> None:
    #  T       10   12   15   17          grace 5: the record of 10 leaves at 15, that of 12 at 17
    state = opened(table_of(("k", "1", 0)), grace="5ms")
    assert joined(state.step(records(("k", "a", 10), ("k", "b", 12), ("k", "c", 14)), 0)) == []
    pair = b'{"stream_bytes":"%s","table":1}'
    result = state.step(records(("k", "d", 15), ("k", "e", 17), first=3), 0)
    assert joined(result) == [(b"k", pair % b"YQ==", 10, "matched"), (b"k", pair % b"Yg==", 12, "matched")]


def test_the_version_is_looked_up_when_the_record_is_released() -> None:
    state = opened(table_of(("k", "1", 0)), grace="5ms")
    state.step(records(("k", "0", 10)), 0)
    state.read_table(table_of(("k", "1", 0), ("k", "2", 10), ("k", "3", 11)))
    result = state.step(records(("k", "0", 15), first=1), 0)
    assert result.emissions["valid_from"].to_pylist() == [10]
    assert values(result) == [b'{"stream":0,"table":2}']


def test_a_late_record_is_joined_ahead_of_the_buffer_and_does_not_move_time() -> None:
    #  T = 20, grace 5: 15 is in the grace and due at once, 14 is late
    state = opened(table_of(("k", "1", 0)), grace="5ms")
    result = state.step(records(("k", "0", 20), ("k", "0", 14), ("k", "0", 15), ("other", "0", 3)), 0)
    assert [row[2:] for row in joined(result)] == [(14, "late"), (15, "matched"), (3, "late")]
    assert (result.stream_time, result.counts.applied, result.counts.held, result.late.num_rows) == (20, 4, 1, 0)


def test_records_of_equal_time_are_emitted_in_order_of_arrival() -> None:
    state = opened(table_of(), grace="5ms")
    state.step(records(("b", "0", 5), ("a", "1", 5), ("b", "2", 4), ("a", "3", 5)), 0)
    result = state.flush()
    assert result.emissions["offset"].to_pylist() == [2, 0, 1, 3]


@pytest.mark.parametrize("grace", [{}, {"grace": 0}])
def test_without_a_grace_each_record_is_joined_at_once(grace: dict[str, Any]) -> None:
    state = opened(table_of(("k", "1", 3), ("k", "2", 7)), **grace)
    result = state.step(records(("k", "0", 9), ("k", "0", 5), ("k", "0", 2)), 0)
    assert [row[2:] for row in joined(result)] == [(9, "matched"), (5, "matched"), (2, "unmatched")]
    assert result.emissions["valid_from"].to_pylist() == [7, 3, None]
    assert (result.stream_time, result.counts.held, result.changes.num_rows) == (9, 0, 0)


def test_an_inner_join_drops_unmatched_records_late_or_not() -> None:
    table = table_of(("k", "1", 0), ("gone", "1", 0), ("gone", None, 5))
    state = opened(table, join="inner", grace="5ms")
    state.step(records(("k", "0", 10), ("gone", "0", 10), ("other", "0", 10), ("other", "0", 4)), 0)
    result = state.flush()
    assert [row[0] for row in joined(result)] == [b"k"]
    assert (result.counts.emitted, result.counts.held) == (1, 0)
    assert (result.measures["emitted_matched"], result.measures["dropped_unmatched"]) == (1, 2)


REJECTED = [
    (Row(b"k", None, 5, 9), "null value", None),
    (Row(None, None, -1, 9), "null value", None),
    (Row(b"k", b"x", -1, 9), "negative timestamp", None),
    (Row(None, b"x", 111, 9), "too far ahead", 110),
    (Row(None, b"x", 5, 9), "null key", None),
]


@pytest.mark.parametrize(("row", "reason", "bound"), REJECTED)
def test_rejected_records_are_rows_with_the_first_reason_and_move_nothing(
    row: Row, reason: str, bound: int | None
) -> None:
    result = opened(table_of(), join="inner", max_ahead="10ms").step(Records.from_rows([row]), 100)
    [rejected] = result.rejected.to_pylist()
    assert (rejected["offset"], rejected["cause"], rejected["bound"]) == (9, reason, bound)
    assert (result.stream_time, result.counts.rejected, result.counts.applied) == (-1, 1, 0)


@pytest.mark.parametrize("grace", [{}, {"grace": "5ms"}])
def test_a_left_join_emits_a_record_without_a_key_at_once_and_alone(grace: dict[str, Any]) -> None:
    state = opened(table_of(("", "1", 0)), **grace)
    result = state.step(records((None, "0", 50)), 0)
    assert joined(result) == [(None, b'{"stream":0,"table":null}', 50, "unmatched")]
    assert (result.stream_time, result.counts.applied) == (-1, 1)


def test_key_headers_timestamp_and_offset_are_those_of_the_record() -> None:
    rows = [Row(b"\x00\xff", b"v" * 70_000, 1, 7, b"\x02\x02h\x02v"), Row(b"k" * 70_000, b"", 2, 9)]
    state = opened(table_of(), grace="1h")
    state.step(Records.from_rows(rows), 0)
    left = state.flush().emissions.to_pylist()
    found = [(row["key"], row["headers"] or b"", row["timestamp"], row["offset"]) for row in left]
    assert found == [(row.key, row.headers, row.timestamp, row.offset) for row in rows]


def test_the_changelog_has_a_put_for_a_held_record_and_a_delete_for_an_emitted_one() -> None:
    #  k is held, then gone: delete.  n comes and goes in one batch: nothing.  o stays: put.
    state = opened(table_of(), grace="5ms")
    state.step(records(("k", "0", 10)), 77)
    result = state.step(records(("n", "0", 11), ("o", "0", 20), first=1), 88)
    changes = [
        (row["op"], row["key"], row["timestamp"], row["offset"], row["arrived"]) for row in result.changes.to_pylist()
    ]
    assert changes == [("put", b"o", 20, 2, 88), ("delete", b"k", 10, 0, None)]
    assert result.changes["value"].to_pylist() == [b"0", None]


def held_by(*lines: Line, wait: str | None = "100ms", open_until: int = NEVER) -> Any:
    """A join that waits for its table, 100 ms at most, after a batch of clock 1,000; the table has (k, 1, 0)."""
    state = opened(table_of(("k", "1", 0)), grace="5ms", wait_for_table=wait)
    state.read_table(table_of(("k", "1", 0)), open_until)
    state.step(records(*lines), 1_000)
    return state


def test_a_record_is_released_once_the_table_is_complete_for_its_time() -> None:
    state = held_by(("k", "0", 10), ("k", "0", 11), ("k", "0", 20))
    assert joined(state.step(records(), 1_099)) == []
    state.read_table(table_of(("k", "1", 0)), 10)
    assert [row[2:] for row in joined(state.step(records(), 1_050))] == [(10, "matched")]


def test_a_record_waits_for_the_table_unless_the_clock_ends_the_wait() -> None:
    lines = ("k", "0", 10), ("k", "0", 20)
    assert joined(held_by(*lines, wait=None).step(records(), 10**15)) == []
    state = held_by(*lines)
    assert joined(state.step(records(), 1_099)) == []
    assert [row[2:] for row in joined(state.step(records(), 1_100))] == [(10, "matched")]


def test_only_late_records_overtake_a_waiting_record() -> None:
    #  10 waits for the table; 3 is late; what comes later by the clock waits longer, the older goes first
    state = held_by(("k", "0", 10))
    result = state.step(records(("k", "0", 20), ("k", "0", 3), ("k", "0", 16), first=1), 1_060)
    assert [row[2:] for row in joined(result)] == [(3, "late")]
    assert [row[2] for row in joined(state.step(records(("k", "0", 30), first=4), 1_100))] == [10]
    assert [row[2] for row in joined(state.step(records(), 1_160))] == [16, 20]


def test_an_idle_advance_releases_by_the_grace_but_ends_no_wait_and_a_flush_ends_all() -> None:
    state = held_by(("k", "0", 10), ("k", "0", 12), open_until=10)
    assert [row[2:] for row in joined(state.advance(1_000))] == [(10, "matched")]
    assert state.advance(5).stream_time == 1_000
    assert [row[2:] for row in joined(state.flush())] == [(12, "matched")]


def test_due_records_that_wait_for_the_table_are_measured_and_their_times_still_needed() -> None:
    #  T = 20, grace 5: 10 and 15 are due and wait, 18 is within its grace; an earlier time than 10 is never asked for
    state = held_by(("k", "00", 10), ("k", "0", 15), ("k", "0", 18), ("k", "0", 20))
    result = state.step(records(), 1_001)
    waiting = [result.measures[f"waiting_{what}_now"] for what in ("records", "bytes")]
    assert (waiting, result.needs) == ([2, 5], {"table": 10})
    assert state.flush().needs == {"table": 15}


@pytest.mark.parametrize(("grace", "released"), [("2ms", [10, 11]), ("5ms", []), ("9ms", []), (0, [10, 11, 13])])
def test_a_changed_grace_takes_effect_with_the_next_batch(grace: Any, released: list[int]) -> None:
    #  T = 13: under a grace of 2 the records of 10 and 11 are due, under 0 all, under 9 none before T = 19
    table = table_of(("k", "1", 0))
    storage = MemoryStorage(StreamTableJoin.layout)
    opened(table, storage, grace="5ms").step(records(("k", "0", 10), ("k", "0", 11), ("k", "0", 13)), 0)
    state = opened(table, storage, grace=grace)
    assert [row[2] for row in joined(state.step(records(), 0))] == released
    assert [row[2] for row in joined(state.flush())] == [time for time in (10, 11, 13) if time not in released]


def test_no_record_is_joined_before_the_table_was_read() -> None:
    operator = StreamTableJoin(config())
    state = operator.open(MemoryStorage(operator.layout))
    assert state.step(records(("k", None, 1)), 0).counts.rejected == 1
    with pytest.raises(AssertionError, match="before a table was read"):
        state.step(records(("k", "0", 1)), 0)


def test_lateness_is_measured_for_all_records_that_are_not_rejected() -> None:
    #  T        10   10   10   10         lateness 0 + 6 + 2, and 1 of the record without a key
    state = opened(table_of(), grace="5ms")
    lines = records(("k", "0", 10), ("k", "0", 4), ("k", "0", 8), (None, "0", 9), (None, "0", 99), ("k", None, 0))
    found = state.step(lines, 0).measures
    assert (found["lateness_sum"], found["lateness_max"], found["lateness_count"]) == (9, 6, 5)
    assert (found["emitted_late"], found["emitted_unmatched"], found["buffer_records_max"]) == (1, 2, 2)
