"""The record-batch codec against kafka-python's per-record one, and against invalid bytes."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.hypothesis_profile import sized
from tidegate.contracts.errors import EngineError, OutputTooLarge
from tidegate.contracts.records import UNREADABLE, Records, Row
from tidegate.kernels.record_format import record_decoder
from tidegate.kernels.record_format.compression import CODES
from tidegate.kernels.record_format.record_batch import (
    EncodedBatch,
    Origin,
    OutgoingColumns,
    Stamp,
    decode,
    decode_headers,
    encode,
    encode_headers,
    header_value,
)
from tidegate.kernels.record_format.record_headers import varint

pytestmark = pytest.mark.fast

COMPRESSIONS = sorted(CODES)
MAX_OFFSET = 2**62

headers = st.lists(st.tuples(st.text(max_size=5).map(str.encode), st.none() | st.binary(max_size=8)), max_size=3)
rows = st.builds(
    Row,
    key=st.none() | st.binary(max_size=12),
    value=st.none() | st.binary(max_size=200),
    timestamp=st.integers(0, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000),
    offset=st.just(0),
    headers=headers.map(encode_headers),
    time_only=st.just(False),
    port=st.just(0),
)


def outgoing(listed: Sequence[Row]) -> OutgoingColumns:
    return OutgoingColumns(
        key=pa.array([row.key for row in listed], pa.binary()),
        value=pa.array([row.value for row in listed], pa.binary()),
        headers=pa.array([row.headers or None for row in listed], pa.binary()),
        timestamp=np.array([row.timestamp for row in listed], np.int64),
    )


def encoded(listed: Sequence[Row], stamp: Stamp | None = None, **options: object) -> list[EncodedBatch]:
    defaults = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0, "max_batch_bytes": 2**20}
    return list(encode(outgoing(listed), stamp, **(defaults | options)))  # type: ignore[arg-type]


def placed(batches: Sequence[EncodedBatch], base_offset: int = 0) -> bytes:
    """The batches as a broker stores them: it writes the base offset, which the checksum leaves out."""
    parts = []
    for batch in batches:
        parts.append(struct.pack(">q", base_offset) + batch.data[8:])
        base_offset += batch.count
    return b"".join(parts)


def numbered(listed: Sequence[Row], base_offset: int = 0) -> list[Row]:
    return [row._replace(offset=base_offset + index) for index, row in enumerate(listed)]


def stamp_of(count: int) -> Stamp:
    codes = (np.arange(count) % 2).astype(np.int8)
    return Stamp(operator="late", batch=12, seq=9 + np.arange(len(codes)), cause_codes=codes, causes=["time", "keys"])


def control(producer_id: int, kind: int, base_offset: int) -> bytes:
    """An end marker as a transaction coordinator writes it: 0 aborts, 1 commits."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    [batch] = encoded([Row(key, value, 5, 0)], producer_id=producer_id)
    return resealed(struct.pack(">q", base_offset) + batch.data[8:21] + struct.pack(">h", 0x30) + batch.data[23:])


def resealed(batch: bytes) -> bytes:
    """The bytes with the checksum that belongs to them."""
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def rewritten(batch: bytes, at: int, layout: str, value: int) -> bytes:
    """The batch with one field of its envelope changed, and the checksum to match."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, at, value)
    return resealed(bytes(changed))


# --- both ways ---------------------------------------------------------------------------------------------------


@sized(80)
@given(st.lists(rows, min_size=1, max_size=30), st.sampled_from(COMPRESSIONS), st.integers(600, 3000), st.booleans())
def test_encoded_records_are_decoded_for_any_compression_and_any_cut(
    listed: list[Row], compression: str, max_batch_bytes: int, stamped: bool
) -> None:
    stamp = stamp_of(len(listed)) if stamped else None
    batches = encoded(listed, stamp, compression=compression, max_batch_bytes=max_batch_bytes)
    decoded = decode(placed(batches), 0, MAX_OFFSET, [])
    own = [row._replace(headers=encode_headers(decode_headers(row.headers)[:-4])) for row in decoded.records.rows()]
    assert (own if stamped else decoded.records.rows()) == numbered(listed)
    assert decoded.next_offset == len(listed)
    assert all(len(batch.data) <= max_batch_bytes for batch in batches)


def test_results_of_windows_have_their_bounds_as_decimal_headers() -> None:
    windows = (np.array([0, 1_700_000_000_000]), np.array([10, 2**63 - 1]))
    stamp = replace(stamp_of(2), windows=windows)
    batches = encoded([Row(b"k", b"1", 3, 0), Row(b"k", None, 4, 0, encode_headers([(b"own", b"x")]))], stamp)
    found = [decode_headers(row.headers) for row in decode(placed(batches), 0, MAX_OFFSET, []).records.rows()]
    assert [dict(headers)[b"tidegate-window-start"] for headers in found] == [b"0", b"1700000000000"]
    assert [dict(headers)[b"tidegate-window-end"] for headers in found] == [b"10", b"9223372036854775807"]
    assert [len(headers) for headers in found] == [6, 7]


@sized(60)
@given(st.lists(rows, min_size=1, max_size=20), st.integers(0, 2**31 - 1))
def test_dead_letters_name_their_position_and_their_reason(listed: list[Row], partition: int) -> None:
    """What no record has caused has the offset -1"""
    offsets = np.array([7 * number - 1 for number in range(len(listed))], np.int64)
    origin = Origin(topic="in", partition=partition, offsets=offsets, messages=["late: time", "rejected: keys"])
    stamp = replace(stamp_of(len(listed)), origin=origin)
    found = decode(placed(encoded(listed, stamp)), 0, MAX_OFFSET, []).records.rows()
    for number, (row, own) in enumerate(zip(found, listed, strict=True)):
        headers = decode_headers(row.headers)
        assert (row.key, row.value, row.timestamp) == (own.key, own.value, own.timestamp)
        assert headers[:-8] == decode_headers(own.headers)
        assert headers[-8:] == [
            (b"tidegate-operator", b"late"),
            (b"tidegate-batch", b"12"),
            (b"__streams.errors.topic", b"in"),
            (b"__streams.errors.partition", b"%d" % partition),
            (b"tidegate-seq", b"%d" % (9 + number)),
            (b"__streams.errors.offset", b"%d" % (7 * number - 1)),
            (b"tidegate-cause", stamp.causes[stamp.cause_codes[number]].encode()),
            (b"__streams.errors.message", origin.messages[stamp.cause_codes[number]].encode()),
        ]


def test_a_record_without_a_timestamp_is_written_without_one() -> None:
    listed = [Row(b"k", b"v", timestamp, 0) for timestamp in (-1, 1_700_000_000_000, -1)]
    found = decode(placed(encoded(listed)), 0, MAX_OFFSET, []).records.rows()
    assert [row.timestamp for row in found] == [-1, 1_700_000_000_000, -1]


@sized(60)
@given(st.lists(rows, min_size=1, max_size=20), st.sampled_from(COMPRESSIONS))
def test_another_parser_reads_the_encoded_records(listed: list[Row], compression: str) -> None:
    found = []
    for batch in MemoryRecords(placed(encoded(listed, compression=compression, max_batch_bytes=1500))):
        assert batch.validate_crc()
        found += [
            Row(record.key, record.value, record.timestamp, record.offset, block(record.headers)) for record in batch
        ]
    assert found == numbered(listed)


def block(listed: Sequence[tuple[str, bytes | None]]) -> bytes:
    return encode_headers([(name.encode(), value) for name, value in listed])


@sized(60)
@given(
    st.lists(rows, min_size=1, max_size=20), st.sampled_from([0, 1, 2, 3, 4]), st.integers(0, 25), st.integers(0, 25)
)
def test_record_batches_of_a_different_encoder_are_read(listed: list[Row], code: int, start: int, length: int) -> None:
    builder = DefaultRecordBatchBuilder(2, code, False, -1, -1, -1, 2**20)
    for offset, row in enumerate(listed):
        names = [(name.decode(), value) for name, value in decode_headers(row.headers)]
        assert builder.append(offset, row.timestamp, row.key, row.value, names)
    decoded = decode(bytes(builder.build()), start, start + length, [])
    assert decoded.records.rows() == numbered(listed)[start : start + length]
    assert decoded.next_offset == max(start, min(start + length, len(listed)))


def test_uncompressed_records_point_into_the_fetched_bytes() -> None:
    raw = np.frombuffer(placed(encoded([Row(b"k", b"v", 1, 0)])), np.uint8)
    assert np.shares_memory(decode(raw, 0, 1, []).records.data, raw)


def test_compressed_and_plain_batches_share_one_buffer() -> None:
    listed = [Row(b"k", b"v" * 900, 1, 0)]
    raw = b"".join(placed(encoded(listed, compression=name), place) for place, name in enumerate(COMPRESSIONS))
    assert decode(raw, 0, 9, []).records.rows() == [
        row for place in range(len(COMPRESSIONS)) for row in numbered(listed, place)
    ]


def test_snappy_without_the_java_framing_is_read() -> None:
    import cramjam

    raw = placed(encoded([Row(b"k", b"v" * 50, 1, 0)]))
    packed = bytes(cramjam.snappy.compress_raw(raw[61:]))
    batch = rewritten(rewritten(raw[:61] + packed, 8, ">i", 49 + len(packed)), 21, ">h", CODES["snappy"])
    assert decode(batch, 0, 9, []).records.rows() == [Row(b"k", b"v" * 50, 1, 0)]


def sample() -> str:
    """What the codec makes of records with extreme numbers, nulls and headers, in both directions."""
    own = encode_headers([(b"h", None)])
    listed = [Row(b"k%d" % i, None if i % 3 else b"v" * i, (2**63 - 1) * (i % 2), 0, own) for i in range(40)]
    batches = encoded(listed, stamp_of(40), max_batch_bytes=900)
    raw = placed(batches) + control(7, 1, 40)
    return f"{raw.hex()} {decode(raw, 3, 41, [(7, 1_000)]).records.rows()!r}"


@pytest.mark.process
def test_plain_python_gives_the_results_of_compiled_kernels() -> None:
    program = (
        "from tidegate.kernels.compiled import NUMBA_ON; assert not NUMBA_ON\n"
        "from tests.kernels.record_format.test_record_batch import sample; print(sample())"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", program],
        env=os.environ | {"TIDEGATE_NUMBA": "off", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == sample()


# --- positions and transactions ----------------------------------------------------------------------------------


def test_a_record_batch_that_is_truncated_at_the_end_is_left_for_the_next_fetch() -> None:
    raw = placed(encoded([Row(b"k", b"v", 1, 0)] * 2, max_batch_bytes=75))
    decoded = decode(raw[:-1], 0, 9, [])
    assert (len(decoded.records), decoded.next_offset, decoded.bytes_used) == (1, 1, len(raw) // 2)


def test_no_complete_batch_means_no_progress() -> None:
    decoded = decode(b"\0" * 11, 5, 9, [])
    assert (len(decoded.records), decoded.next_offset, decoded.bytes_used) == (0, 5, 0)


def test_the_position_moves_past_offsets_that_compaction_removed() -> None:
    batch = rewritten(placed(encoded([Row(b"k", b"v", 1, 0)]), 10), 23, ">i", 4)  # holds 10 of 10..14
    decoded = decode(batch, 8, 99, [])
    assert ([row.offset for row in decoded.records.rows()], decoded.next_offset) == ([10], 15)
    assert decode(batch, 8, 13, []).next_offset == 13


def test_an_empty_batch_after_compaction_moves_the_position() -> None:
    kept = placed(encoded([Row(b"k", b"v", 1, 0)]), 10)[:61]
    empty = rewritten(rewritten(rewritten(kept, 8, ">i", 49), 57, ">i", 0), 23, ">i", 2)
    decoded = decode(empty, 10, 99, [])
    assert (len(decoded.records), decoded.next_offset) == (0, 13)


def test_log_append_time_is_the_timestamp_of_every_record() -> None:
    raw = placed(encoded([Row(b"k", b"v", 1, 0), Row(b"k", b"v", 2, 0)], transactional=False))
    stored = rewritten(rewritten(raw, 21, ">h", 0x08), 35, ">q", 777)
    assert [row.timestamp for row in decode(stored, 0, 9, []).records.rows()] == [777, 777]


def test_aborted_transactions_and_control_batches_are_skipped_and_passed() -> None:
    #  offset    0: A     1: B    2: A aborts   3: A     4: A commits   5: B aborts   6: plain
    raw = (
        placed(encoded([Row(b"a", b"aborted", 1, 0)], producer_id=1), 0)
        + placed(encoded([Row(b"b", b"aborted", 1, 0)], producer_id=2), 1)
        + control(1, 0, 2)
        + placed(encoded([Row(b"a", b"committed", 1, 0)], producer_id=1), 3)
        + control(1, 1, 4)
        + control(2, 0, 5)
        + placed(encoded([Row(b"c", b"plain", 1, 0)], producer_id=-1, transactional=False), 6)
    )
    decoded = decode(raw, 0, 99, [(1, 0), (2, 1)])
    assert [(row.offset, row.value) for row in decoded.records.rows()] == [(3, b"committed"), (6, b"plain")]
    assert decoded.next_offset == 7
    cut = decode(raw[: raw.index(control(2, 0, 5))], 0, 99, [(1, 0), (2, 1)])
    assert (len(cut.records), cut.next_offset) == (1, 5)


def test_a_transaction_aborted_later_does_not_hide_the_one_before() -> None:
    raw = placed(encoded([Row(b"a", b"1", 1, 0)], producer_id=1), 0) + control(1, 1, 1)
    raw += placed(encoded([Row(b"a", b"2", 1, 0)], producer_id=1), 2) + control(1, 0, 3)
    assert [row.value for row in decode(raw, 0, 99, [(1, 2)]).records.rows()] == [b"1"]


# --- what is written ---------------------------------------------------------------------------------------------


def test_a_stamp_is_appended_to_the_record_s_own_headers() -> None:
    own = encode_headers([(b"trace", b"1"), (b"none", None)])
    raw = placed(encoded([Row(b"k", b"v", 1, 0, own), Row(b"k", b"v", 1, 0)], stamp_of(2)))
    first, second = (decode_headers(row.headers) for row in decode(raw, 0, 9, []).records.rows())
    assert first[:2] == [(b"trace", b"1"), (b"none", None)]
    assert first[2:] == [
        (b"tidegate-operator", b"late"),
        (b"tidegate-batch", b"12"),
        (b"tidegate-seq", b"9"),
        (b"tidegate-cause", b"time"),
    ]
    assert second[2:] == [(b"tidegate-seq", b"10"), (b"tidegate-cause", b"keys")]


@sized(20)
@given(st.lists(rows, min_size=1, max_size=10))
def test_the_same_input_gives_the_same_bytes(listed: list[Row]) -> None:
    assert encoded(listed, stamp_of(len(listed))) == encoded(listed, stamp_of(len(listed)))


def test_a_record_larger_than_the_limit_is_named_before_anything_is_written() -> None:
    listed = [Row(b"k", b"v", 5, 0), Row(b"k", b"v" * 1000, 6, 0)]
    with pytest.raises(OutputTooLarge, match="record 1, timestamp 6: 1071 bytes; the limit is 1070") as refused:
        encoded(listed, max_batch_bytes=1070)
    assert "max.message.bytes" in refused.value.remedy
    assert [batch.count for batch in encoded(listed, max_batch_bytes=1071)] == [1, 1]


def test_compression_that_gains_nothing_is_not_used() -> None:
    noise = np.random.default_rng(1).bytes(500)
    [batch] = encoded([Row(None, noise, 1, 0)], compression="zstd", max_batch_bytes=600)
    assert struct.unpack_from(">h", batch.data, 21) == (0x10,)


def test_sequences_continue_modulo_two_to_the_31() -> None:
    batches = encoded([Row(b"k", b"v", 1, 0)] * 3, base_sequence=2**31 - 2, max_batch_bytes=75)
    assert [struct.unpack_from(">i", batch.data, 53)[0] for batch in batches] == [2**31 - 2, 2**31 - 1, 0]


def test_slices_of_arrow_columns_are_written_as_they_are() -> None:
    whole = outgoing([Row(b"k%d" % i, None if i % 2 else b"v", i, 0) for i in range(6)])
    part = OutgoingColumns(
        key=whole.key[2:5], value=whole.value[2:5], headers=whole.headers[2:5], timestamp=whole.timestamp[2:5]
    )
    batches = [*encode(part, None, producer_id=1, producer_epoch=1, base_sequence=0, max_batch_bytes=999)]
    expected = [Row(b"k2", b"v", 2, 0), Row(b"k3", None, 3, 1), Row(b"k4", b"v", 4, 2)]
    assert decode(placed(batches), 0, 9, []).records.rows() == expected


def test_without_records_there_is_no_record_batch() -> None:
    assert encoded([]) == []


def test_a_damaged_block_of_own_headers_is_refused() -> None:
    with pytest.raises(EngineError, match="headers is damaged"):
        encoded([Row(b"k", b"v", 1, 0, b"\xff")])


# --- bytes that lie ----------------------------------------------------------------------------------------------


def test_a_wrong_checksum_is_an_error_that_names_the_batch() -> None:
    raw = bytearray(placed(encoded([Row(b"k", b"v", 1, 0)]), 41))
    raw[-1] ^= 1
    with pytest.raises(EngineError, match="checksum") as damaged:
        decode(bytes(raw), 0, 99, [])
    assert damaged.value.value == "base offset 41"


@sized(250)
@given(
    st.lists(rows, min_size=1, max_size=4),
    st.sampled_from(COMPRESSIONS),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=6),
    st.booleans(),
)
def test_damaged_bytes_end_in_an_error_or_in_records_inside_the_bytes(
    listed: list[Row], compression: str, changes: list[tuple[int, int]], is_control: bool
) -> None:
    batch = bytearray(placed(encoded(listed, compression=compression)))
    for at, value in changes:
        batch[21 + at % (len(batch) - 21)] = value
    if is_control:
        batch[22] |= 0x20
    try:
        decoded = decode(resealed(bytes(batch)), 0, MAX_OFFSET, [(7, 0)] if is_control else [])
    except EngineError:
        return
    _assert_inside(decoded.records)


@sized(200)
@given(st.binary(max_size=300), st.integers(0, 60))
def test_any_bytes_at_all_end_in_an_error_or_in_nothing(noise: bytes, size: int) -> None:
    """The envelope's first fields are made plausible, so that the rest is reached."""
    raw = struct.pack(">qiib", 0, max(size, len(noise) - 12), -1, 2) + noise[17:]
    try:
        decoded = decode(resealed(raw) if len(raw) > 21 else raw, 0, MAX_OFFSET, [])
    except EngineError:
        return
    _assert_inside(decoded.records)


def _assert_inside(records: object) -> None:
    for name in ("key", "value", "headers"):
        start, length = getattr(records, f"{name}_start"), getattr(records, f"{name}_length")
        held = length > 0
        assert (length >= -1).all()
        assert (start[held] >= 0).all()
        assert (start[held] + length[held] <= len(records.data)).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [0, -1, 13, 48])
def test_an_impossible_size_is_an_error_not_an_endless_loop(size: int) -> None:
    raw = bytearray(placed(encoded([Row(b"k", b"v", 1, 0)])))
    struct.pack_into(">i", raw, 8, size)
    with pytest.raises(EngineError, match="envelope"):
        decode(bytes(raw), 0, 9, [])


def test_more_records_than_bytes_are_refused_before_memory_is_taken() -> None:
    batch = rewritten(placed(encoded([Row(b"k", b"v", 1, 0)])), 57, ">i", 2**31 - 1)
    assert refused(decode(batch, 0, 9, []).records) == [(0, 0, "its records do not fit into it")]


def refused(records: Records) -> list[tuple[int, int, str]]:
    """The offsets of the batches that cannot be read, and why."""
    if records.unreadable is None:
        return []
    found = []
    for row, code in zip(records.rows(), records.unreadable.tolist(), strict=True):
        if code:
            said = json.loads(row.value or b"")
            found.append((said["first_offset"], said["last_offset"], UNREADABLE[code - 1].split(": ")[1]))
    return found


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_record_batch_over_the_size_limit_becomes_one_row_and_the_records_around_it_are_read(
    monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setattr(record_decoder, "LARGEST_BATCH_BYTES", 2**16)
    bomb = placed(encoded([Row(b"k", bytes(2**17), 1, 0)], compression=compression), 5)
    assert len(bomb) < 2**14
    raw = placed(encoded([Row(b"a", b"1", 1, 0)]), 4) + bomb + placed(encoded([Row(b"b", b"2", 2, 0)]), 6)
    decoded = decode(raw, 0, 99, [])
    assert refused(decoded.records) == [(5, 5, "its records take more than 256 MiB")]
    assert [(row.offset, row.key) for row in decoded.records.rows()] == [(4, b"a"), (5, b""), (6, b"b")]
    assert (decoded.next_offset, len(decoded.records.data) < 2**10) == (7, True)


def test_record_batches_are_read_up_to_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_decoder, "LARGEST_BATCH_BYTES", 2**16)
    batch = encoded([Row(b"k", bytes(2**15), 1, 0)], compression="gzip")
    raw = b"".join(placed(batch, offset) for offset in range(5))
    first = decode(raw, 0, 5, [])
    assert ([row.offset for row in first.records.rows()], first.next_offset) == ([0, 1], 2)
    rest = decode(raw[first.bytes_used :], 2, 5, [])
    assert [row.offset for row in rest.records.rows()] == [2, 3]


def test_a_record_batch_that_was_sent_damaged_becomes_one_row() -> None:
    batch = bytearray(placed(encoded([Row(b"k", b"v" * 99, 1, 0)], compression="gzip"), 3))
    batch[70:80] = bytes(10)
    raw = resealed(bytes(batch)) + placed(encoded([Row(b"b", b"2", 2, 0)]), 4)
    decoded = decode(raw, 0, 99, [])
    assert refused(decoded.records) == [(3, 3, "its compression is damaged")]
    assert [row.offset for row in decoded.records.rows()] == [3, 4]


LARGEST = 2**63 - 1


def zigzag(number: int) -> bytes:
    """A varint, as Kafka has it."""
    rest, found = number << 1 if number >= 0 else (~number << 1) | 1, bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


def one_record(base_offset: int, last_delta: int, delta: int) -> bytes:
    """A batch whose envelope says that, with one record at that place after the first offset."""
    record = bytes([0, 0]) + zigzag(delta) + zigzag(-1) + zigzag(-1) + zigzag(0)
    rest = struct.pack(">hiqqqhii", 0, last_delta, 0, 0, -1, 0, 0, 1) + zigzag(len(record)) + record
    return resealed(struct.pack(">qiibI", base_offset, len(rest) + 9, 0, 2, 0) + rest)


def test_offsets_up_to_the_largest_are_read() -> None:
    decoded = decode(one_record(LARGEST - 5, 5, 5), 0, LARGEST, [])
    assert decoded.next_offset == LARGEST
    assert decode(one_record(LARGEST - 6, 5, 5), 0, LARGEST, []).records.offset.tolist() == [LARGEST - 1]


@pytest.mark.parametrize(("base_offset", "last_delta"), [(LARGEST, 1), (LARGEST - 5, 2**31 - 1)])
def test_offsets_beyond_the_largest_are_an_error_in_compiled_code_too(base_offset: int, last_delta: int) -> None:
    with pytest.raises(EngineError, match="damaged"):
        decode(one_record(base_offset, last_delta, 0), 0, LARGEST, [])


@pytest.mark.parametrize(("last_delta", "delta"), [(0, LARGEST), (2**31 - 1, LARGEST - 9)])
def test_a_record_beyond_the_end_of_its_batch_makes_the_batch_unreadable_in_compiled_code_too(
    last_delta: int, delta: int
) -> None:
    decoded = decode(one_record(10, last_delta, delta), 0, LARGEST, [])
    assert refused(decoded.records) == [(10, 10 + last_delta, "its records do not fit into it")]


# --- headers -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(headers)
def test_headers_round_trip(listed: list[tuple[bytes, bytes | None]]) -> None:
    assert decode_headers(encode_headers(listed)) == listed


def test_the_last_header_of_a_name_counts() -> None:
    block = encode_headers([(b"a", b"1"), (b"a", b"2"), (b"b", None)])
    assert header_value(block, "a") == b"2"
    assert header_value(block, "b") is None
    assert header_value(b"", "a") is None


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=40))
def test_a_damaged_block_is_an_error(block: bytes) -> None:
    try:
        assert isinstance(decode_headers(block), list)
    except EngineError as error:
        assert "damaged" in error.problem


@pytest.mark.parametrize("count", [2**20, 2**62])
def test_an_impossible_number_of_headers_is_refused_before_memory_is_allocated(count: int) -> None:
    with pytest.raises(EngineError, match="damaged"):
        decode_headers(varint(count) + b"\x02h\x02v")


def test_many_headers_are_read_in_one_pass() -> None:
    block = encode_headers([(b"n", None)] * 200_000 + [(b"last", b"v")])
    began = time.process_time()
    assert len(decode_headers(block)) == 200_001
    assert header_value(block, "last") == b"v"
    assert time.process_time() - began < 2
