"""Suppression's rules by example; the laws and the recorded scenarios test the rest."""

from __future__ import annotations

import pytest

from tests.operators.suppression.partitions import EMIT_2, changed, config, emitted, opened, records
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.suppression import Suppression

pytestmark = pytest.mark.fast


def test_a_key_is_emitted_with_its_newest_record_a_limit_after_it_was_first_held() -> None:
    #  T   0    4    5
    #      A1   A2   B1      A is held since 0, and leaves at 5 with the record of 4
    state = opened(until={"time_limit": "5ms"})
    assert emitted(state.step(records(("A", "1", 0), ("A", "2", 4), ("B", "1", 5)), 0)) == [(b"A", b"2", 4, "time")]


def test_a_replaced_record_is_superseded_and_an_emitted_key_starts_again() -> None:
    state = opened(until={"time_limit": "2ms"})
    counts = state.step(records(("A", "1", 0), ("A", "2", 1), ("B", "1", 2), ("A", "3", 2)), 0).counts
    assert (counts.applied, counts.superseded, counts.emitted, counts.held) == (3, 1, 1, 2)


def test_the_oldest_key_is_emitted_when_a_limit_of_keys_or_bytes_is_exceeded() -> None:
    state = opened(buffer={"max_keys": 2, "max_bytes": 5, "when_full": "emit"})
    result = state.step(records(("A", "1", 3), ("B", "2", 1), ("C", "3", 2), ("C", "55555", 0)), 0)
    assert emitted(result) == [(b"B", b"2", 1, "keys"), (b"C", b"55555", 0, "bytes")]


def test_late_records_are_rows_with_lateness_and_bound_and_move_nothing() -> None:
    #  T = 20, max_lateness = 5: 15 is taken, 14 is late
    state = opened(until={"time_limit": "1h"}, max_lateness="5ms")
    result = state.step(records(("A", "1", 20), ("B", "2", 15), ("C", "3", 14)), 0)
    [row] = result.late.to_pylist()
    assert (row["key"], row["timestamp"], row["lateness"], row["bound"]) == (b"C", 14, 6, 15)
    assert (result.counts.held, result.stream_time) == (2, 20)


@pytest.mark.parametrize(
    ("row", "reason", "bound"),
    [
        (Row(None, b"x", 5, 9), "null key", None),
        (Row(b"A", b"x", -1, 9), "negative timestamp", None),
        (Row(b"A", b"x", 111, 9), "too far ahead", 110),
    ],
)
def test_rejected_records_are_rows_with_a_reason_and_move_nothing(row: Row, reason: str, bound: int | None) -> None:
    state = opened(max_ahead="10ms")
    result = state.step(Records.from_rows([row]), 100)
    [rejected] = result.rejected.to_pylist()
    assert (rejected["offset"], rejected["value"], rejected["cause"], rejected["bound"]) == (9, b"x", reason, bound)
    assert (result.stream_time, result.counts.rejected, result.counts.held) == (-1, 1, 0)


def test_a_record_exactly_max_ahead_of_the_clock_is_accepted() -> None:
    assert opened(max_ahead="10ms").step(records(("A", "1", 110)), 100).counts.applied == 1


def test_shut_down_stops_before_the_record_and_commits_earlier_ones() -> None:
    state = opened(buffer={"max_keys": 1, "when_full": "shut_down"})
    result = state.step(records(("A", "1", 1), ("A", "2", 2), ("B", "3", 9), ("C", "4", 9), first=40), 0)
    assert (result.stopped_at, result.stopped_by) == (42, "buffer.max_keys")
    assert (result.counts.records_in, result.stream_time, changed(result)) == (2, 2, [("put", b"A")])


def test_shut_down_continues_at_the_record_under_a_larger_bound() -> None:
    tight, wide = (
        Suppression(config(until={"time_limit": "1h"}, buffer={"max_keys": keys, "when_full": "shut_down"}))
        for keys in (1, 2)
    )
    storage = MemoryStorage(tight.layout)
    batch = records(("A", "1", 1), ("B", "2", 2))
    assert tight.open(storage).step(batch, 0).stopped_at == 1
    assert wide.open(storage).step(batch.slice(1, 2), 0).counts.held == 2


def test_spill_holds_everything_and_measures_memory_and_disk_separately() -> None:
    state = opened(until={"time_limit": "5ms"}, buffer={"max_bytes": 4, "when_full": "spill"})
    result = state.step(records(*((key, "22", 0) for key in "ABCD")), 0)
    sizes = {name: size for name, size in result.measures.items() if name.endswith("_now")}
    assert sizes == {"memory_records_now": 2, "memory_bytes_now": 4, "disk_records_now": 2, "disk_bytes_now": 4}
    assert [row[3] for row in emitted(state.step(records(("E", "2", 5), first=9), 0))] == ["time"] * 4
    assert result.measures["disk_bytes_max"] == 4


def test_the_changelog_has_one_row_per_slot_that_changed() -> None:
    #  A held before and gone: delete.  B held before, gone and back: put.  C came and went: nothing.  D came: put.
    state = opened(until={"time_limit": "5ms"})
    state.step(records(("A", "1", 0), ("B", "1", 0)), 0)
    result = state.step(records(("C", "1", 2), ("D", "1", 7), ("B", "2", 6), first=2), 0)
    assert [row[0] for row in emitted(result)] == [b"A", b"B", b"C"]
    assert changed(result) == [("put", b"D"), ("delete", b"A"), ("put", b"B")]


def test_an_idle_advance_emits_due_records_with_cause_idle_and_never_moves_time_back() -> None:
    state = opened(until={"time_limit": "5ms"})
    state.step(records(("A", "1", 0), ("B", "1", 3)), 0)
    result = state.advance(7)
    assert (emitted(result), changed(result)) == ([(b"A", b"1", 0, "idle")], [("delete", b"A")])
    assert state.advance(4).stream_time == 7


def test_a_flush_emits_everything_in_order_and_does_not_move_time() -> None:
    state = opened()
    state.step(records(("A", "1", 9), ("B", "2", 3), ("C", None, 3)), 0)
    result = state.flush()
    assert emitted(result) == [(b"B", b"2", 3, "flush"), (b"C", None, 3, "flush"), (b"A", b"1", 9, "flush")]
    assert (result.stream_time, result.counts.held, result.counts.held_bytes) == (9, 0, 0)


def test_lateness_is_measured_of_all_records_and_overtime_of_emissions_by_time() -> None:
    #  T   0    10   10                    lateness 0 + 0 + 4; A is due at 5, leaves at 10: overtime 5
    #      A    B    C(6)                  C is due at 11
    state = opened(until={"time_limit": "5ms"}, max_lateness="1s")
    first = state.step(records(("A", "1", 0), ("B", "1", 10), ("C", "1", 6)), 0).measures
    assert (first["lateness_sum"], first["lateness_max"]) == (4, 4)
    assert (first["lateness_upto_0"], first["lateness_upto_4"]) == (2, 1)
    assert (first["overtime_sum"], first["overtime_min"], first["emitted_time"]) == (5, 5, 1)
    second = state.step(records(("D", "1", 12), first=9), 0).measures
    assert (second["overtime_min"], second["emitted_time"]) == (1, 1)
    assert "overtime_min" not in state.flush().measures


def test_keys_values_and_headers_pass_unchanged_byte_for_byte() -> None:
    rows = [
        Row(b"", b"", 0, 0, b"\x02\x02h\x02v"),
        Row(b"\x00\xff", None, 1, 1),
        Row(b"k" * 70_000, b"v" * 2**20, 2, 2, bytes(range(256))),
    ]
    state = opened()
    state.step(Records.from_rows(rows), 0)
    kept = state.snapshot().to_pylist()
    left = state.flush().emissions.to_pylist()
    for found in (kept, left):
        assert [(row["key"], row["value"], row["headers"] or b"") for row in found] == [
            (row.key, row.value, row.headers) for row in rows
        ]


def test_a_hundred_thousand_records_of_one_timestamp_are_emitted_in_order_of_arrival() -> None:
    keys = [b"%d" % (n * 7_919 % 100_000) for n in range(100_000)]
    state = opened(until={"time_limit": "1ms"})
    assert state.step(Records.from_rows(Row(key, b"v", 5, at) for at, key in enumerate(keys)), 0).counts.held == 100_000
    result = state.step(records(("last", "v", 6), first=100_000), 0)
    assert result.emissions["key"].to_pylist() == keys


def test_tombstones_are_emitted() -> None:
    state = opened(buffer=EMIT_2)
    result = state.step(records(("A", None, 0), ("B", "1", 1), ("C", "1", 2)), 0)
    assert emitted(result) == [(b"A", None, 0, "keys")]


def test_a_changed_bytes_of_recounts_the_bytes() -> None:
    by_value, by_record = (Suppression(config(bytes_of=of)) for of in ("value", "record"))
    storage = MemoryStorage(by_value.layout)
    by_value.open(storage).step(records(("key", "1", 0), ("other key", "22", 0)), 0)
    assert by_record.open(storage).advance(0).counts.held_bytes == 15
    assert by_value.open(storage).advance(0).counts.held_bytes == 3
