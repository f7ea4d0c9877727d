"""One partition of a simulated topic, as a broker stores it.

Batches keep the bytes in which they came, except for base offset and leader epoch. Producer epochs and sequence numbers
are checked, open transactions bound the last stable offset, and every end of a transaction is a control batch with an
offset of its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import google_crc32c

from tidegate.kernels.record_format.record_frames import (
    CHECKED_FROM,
    CONTROL,
    ENVELOPE,
    ENVELOPE_BYTES,
    MAGIC,
    SIZE_END,
    TRANSACTIONAL,
)
from tidegate.kernels.record_format.record_headers import varint

NONE, INVALID_EPOCH, OUT_OF_ORDER = 0, 47, 45
_REMEMBERED = 5
"""Number of batches per producer that a broker recognises as duplicates."""


@dataclass(frozen=True)
class Batch:
    """A record batch and its offsets in the log."""

    base: int
    last: int
    data: bytes
    producer: int


@dataclass
class Writer:
    """What the partition knows of a producer id."""

    epoch: int
    sequences: list[tuple[int, int]] = field(default_factory=list)


class PartitionLog:
    """The batches of one partition."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.start, self.end, self.epoch = 0, 0, 0
        self.deleted = 0
        self._writers: dict[int, Writer] = {}
        self._open: dict[int, int] = {}
        self._aborted: list[tuple[int, int, int]] = []

    @property
    def stable(self) -> int:
        """The last stable offset."""
        return min(self._open.values(), default=self.end)

    def append(self, data: bytes) -> int:
        """Append a batch and return the broker's error code.

        A batch whose sequence numbers are known is treated as a duplicate, whatever its content.
        """
        fields = ENVELOPE.unpack_from(data)
        attributes, last_delta, producer, epoch, sequence, count = fields[5], fields[6], *fields[9:13]
        if producer >= 0:
            code, known = self._check(producer, epoch, sequence, sequence + count - 1)
            if code or known:
                return code
            if attributes & TRANSACTIONAL:
                self._open.setdefault(producer, self.end)
        self._store(data, last_delta, producer)
        return NONE

    def mark(self, producer: int, epoch: int, *, commit: bool) -> list[Batch]:
        """End the producer's transaction with a control batch and return the transaction's batches."""
        first = self._open.pop(producer, None)
        mine = [] if first is None else [b for b in self.batches if b.base >= first and b.producer == producer]
        if mine and not commit:
            self._aborted.append((producer, mine[0].base, self.end))
        writer = self._writers.setdefault(producer, Writer(epoch))
        if epoch > writer.epoch:
            self._writers[producer] = Writer(epoch)
        self._store(_control(producer, epoch, commit), 0, producer)
        return mine

    def safe_cut_offsets(self) -> list[int]:
        """Return the offsets at which the log can be cut without splitting a transaction."""
        ends = {batch.producer: batch.last for batch in self.batches if batch.producer >= 0}
        begins: dict[int, int] = {}
        for batch in self.batches:
            begins.setdefault(batch.producer, batch.base)
        spans = [(begins[producer], last) for producer, last in ends.items()]
        return [b.base for b in self.batches if not any(first < b.base <= last for first, last in spans)]

    def truncate(self, offset: int) -> None:
        """Drop the batches from the offset on and begin a new leader epoch."""
        self.batches = [batch for batch in self.batches if batch.base < offset]
        self._aborted = [aborted for aborted in self._aborted if aborted[1] < offset]
        self.end, self.epoch = offset, self.epoch + 1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the newest leader epoch up to that one, and its end offset."""
        epochs = [(int.from_bytes(b.data[12:16], "big", signed=True), b.base) for b in self.batches]
        later = [base for there, base in epochs if there > epoch]
        return max((there for there, _base in epochs if there <= epoch), default=epoch), min(later, default=self.end)

    def delete_before(self, offset: int) -> None:
        """Delete stable batches before the offset, and count their committed records."""
        gone = [batch for batch in self.batches if batch.last < min(offset, self.stable)]
        if gone:
            self.deleted += sum(batch.last - batch.base + 1 for batch in gone if self._is_committed(batch))
            self.batches = self.batches[len(gone) :]
            self.start = gone[-1].last + 1

    def _is_committed(self, batch: Batch) -> bool:
        """Return True for a batch whose records a read-committed reader sees."""
        control = ENVELOPE.unpack_from(batch.data)[5] & CONTROL
        ends = [(first, last) for producer, first, last in self._aborted if producer == batch.producer]
        return not control and not any(first <= batch.base < last for first, last in ends)

    def fetch(self, position: int, *, one: bool) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the stable batches from the position on, or only the first; and what was aborted.

        Aborted transactions are given as (producer, first offset).
        """
        found = [batch for batch in self.batches if position <= batch.last and batch.last < self.stable]
        found = found[:1] if one else found
        aborted = [(producer, first) for producer, first, last in self._aborted if last >= position]
        return b"".join(batch.data for batch in found), aborted

    def _check(self, producer: int, epoch: int, first: int, last: int) -> tuple[int, bool]:
        writer = self._writers.setdefault(producer, Writer(epoch))
        if epoch < writer.epoch:
            return INVALID_EPOCH, False
        if epoch > writer.epoch:
            writer = self._writers[producer] = Writer(epoch)
        if (first, last) in writer.sequences:
            return NONE, True
        if first != (writer.sequences[-1][1] + 1 if writer.sequences else 0):
            return OUT_OF_ORDER, False
        writer.sequences = [*writer.sequences, (first, last)][-_REMEMBERED:]
        return NONE, False

    def _store(self, data: bytes, last_delta: int, producer: int) -> None:
        placed = struct.pack(">q", self.end) + data[8:12] + struct.pack(">i", self.epoch) + data[16:]
        self.batches.append(Batch(self.end, self.end + last_delta, placed, producer))
        self.end += last_delta + 1


def _control(producer: int, epoch: int, commit: bool) -> bytes:
    """Return the control batch that ends a transaction: one record, whose key is version and type."""
    record = (
        b"\0\0\0" + varint(4) + struct.pack(">hh", 0, int(commit)) + varint(6) + struct.pack(">hi", 0, 0) + varint(0)
    )
    body = varint(len(record)) + record
    size = ENVELOPE_BYTES - SIZE_END + len(body)
    head = ENVELOPE.pack(0, size, 0, MAGIC, 0, TRANSACTIONAL | CONTROL, 0, 0, 0, producer, epoch, -1, 1)
    checksum = google_crc32c.value((head + body)[CHECKED_FROM:])
    return head[: CHECKED_FROM - 4] + struct.pack(">I", checksum) + head[CHECKED_FROM:] + body
