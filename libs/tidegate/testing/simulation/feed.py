"""The input of a run: records of a few keys, some of them written in transactions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa

from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_batch import OutgoingColumns, encode, encode_headers
from tidegate.testing.simulation.settings import GRACE_MS, INPUT, RETENTION_MS
from tidegate.testing.simulation.world import World

_KEYS = [b"a", b"b", b"c", b"d", b"e", b"a key that is longer than the others", b"", None]
_VALUES = [None, b"", b"x", b"yy", b"zzz", b"a value that is longer than the others and does not fit a word"]
_HEADERS = [b"", b"", encode_headers([(b"h", b"v"), (b"n", None)])]
_MOST_AT_ONCE = 6
_LATEST_BY_MS, _AHEAD_BY_MS = 12, 9
_TIMES_WITH_TABLE = 3
"""Factor for the number of records in runs of a join, where half belong to the table and a grace holds the others."""


@dataclass(frozen=True, kw_only=True)
class Open:
    """An open transaction in the input, which bounds the last stable offset."""

    topic: str
    partition: int
    producer: int
    offsets: range


class Feed:
    """Producer of the input, a few records at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: list[Open] = []
        self._producers = 0
        self._times = [0] * world.settings.partitions
        self._tables = {
            topic: table for table, oracle in world.oracle.tables.items() for topic in oracle.inputs_by_topic
        }
        self._newest = {name: [-1] * world.settings.partitions for name in (INPUT, *world.oracle.tables)}
        self._left = world.settings.records * (_TIMES_WITH_TABLE if self._tables else 1)
        self._chance: Random = world.chance.of("feed")

    def produce_some(self) -> None:
        """At random, end an open transaction and produce a few records, perhaps in a new transaction."""
        if self._open and self._chance.random() < 0.3:
            self._end(self._open.pop(0), commit=self._chance.random() < 0.5)
        if self._left and self._chance.random() < 0.6:
            count = min(self._left, self._chance.randrange(1, _MOST_AT_ONCE))
            self._left -= count
            self._produce(self._topic(), self._chance.randrange(len(self._times)), count)

    def produce_rest(self) -> None:
        """Commit the open transactions and produce the rest of the input."""
        for opened in self._open:
            self._end(opened, commit=True)
        self._open = []
        while self._left:
            self._left -= 1
            self._produce(self._topic(), self._chance.randrange(len(self._times)), 1)

    def one_each(self) -> None:
        """Produce one record to each partition of each input."""
        for oracle in self._world.oracles.values():
            for topic in oracle.inputs_by_topic:
                for partition in range(len(self._times)):
                    self._produce(topic, partition, 1)

    def finish(self, partition: int) -> None:
        """Commit the open transactions in the input partition."""
        for opened in [opened for opened in self._open if (opened.topic, opened.partition) == (INPUT, partition)]:
            self._open.remove(opened)
            self._end(opened, commit=True)

    def ends(self, topic: str = INPUT) -> dict[int, int]:
        """Return the end offset of each partition."""
        return {p: self._world.broker.logs[topic, p].end for p in range(len(self._times))}

    def _topic(self) -> str:
        topics = list(self._world.oracle.inputs_by_topic)
        if not self._tables or self._chance.random() >= 0.5:
            return INPUT if len(topics) == 1 else self._chance.choice(topics)
        of_tables = [*self._tables]
        return of_tables[0] if len(of_tables) == 1 else self._chance.choice(of_tables)

    def _inputs(self, topic: str, partition: int) -> dict[int, Row]:
        found = (oracle.inputs_by_topic.get(topic) for oracle in self._world.oracles.values())
        return next(inputs for inputs in found if inputs is not None)[partition]

    def _produce(self, topic: str, partition: int, count: int) -> None:
        log = self._world.broker.logs[topic, partition]
        first, rows = log.end, [self._record(topic, partition, log.end + i) for i in range(count)]
        in_transaction = self._world.chance.happens("input_transaction")
        self._producers += 1
        [batch] = encode(
            _columns(rows),
            None,
            producer_id=self._producers if in_transaction else -1,
            producer_epoch=0 if in_transaction else -1,
            base_sequence=0 if in_transaction else -1,
            max_batch_bytes=2**20,
            transactional=in_transaction,
        )
        log.append(bytes(batch.data))
        self._inputs(topic, partition).update({row.offset: row for row in rows})
        if in_transaction:
            self._open.append(
                Open(topic=topic, partition=partition, producer=self._producers, offsets=range(first, log.end))
            )

    def _end(self, opened: Open, *, commit: bool) -> None:
        self._world.broker.logs[opened.topic, opened.partition].mark(opened.producer, 0, commit=commit)
        if not commit:
            for offset in opened.offsets:
                del self._inputs(opened.topic, opened.partition)[offset]

    def _record(self, topic: str, partition: int, offset: int) -> Row:
        is_table = topic in self._tables
        return self._version(topic, partition, offset) if is_table else self._row(partition, offset)

    def _row(self, partition: int, offset: int) -> Row:
        self._times[partition] += self._chance.randrange(_AHEAD_BY_MS)
        timestamp = max(0, self._times[partition] - self._chance.randrange(_LATEST_BY_MS))
        key, value = self._chance.choice(_KEYS), self._chance.choice(_VALUES)
        headers = self._chance.choice(_HEADERS)
        self._newest[INPUT][partition] = max(self._newest[INPUT][partition], timestamp)
        return Row(key, value, timestamp, offset, headers)

    def _version(self, topic: str, partition: int, offset: int) -> Row:
        """Return a record of a table, occasionally far ahead in time.

        It is late neither for the table nor for any record that it may be joined to. Of two topics of a table one has
        the even times and one the odd ones: which of two versions of one time is read first is no matter of the table.
        """
        table = self._tables[topic]
        topics = [other for other, of in self._tables.items() if of == table]
        first = max(0, self._newest[INPUT][partition] - GRACE_MS + 1, self._newest[table][partition] - RETENTION_MS)
        timestamp = first + self._chance.randrange(self._chance.choice((2 * GRACE_MS, 2 * GRACE_MS, 3 * RETENTION_MS)))
        timestamp += (topics.index(topic) - timestamp) % len(topics)
        self._newest[table][partition] = max(self._newest[table][partition], timestamp)
        return Row(self._chance.choice(_KEYS), self._chance.choice(_VALUES), timestamp, offset, b"")


def _columns(rows: list[Row]) -> OutgoingColumns:
    key, value = (pa.array([getattr(row, name) for row in rows], pa.binary()) for name in ("key", "value"))
    headers = pa.array([row.headers or None for row in rows], pa.binary())
    return OutgoingColumns(
        key=key, value=value, headers=headers, timestamp=np.array([row.timestamp for row in rows], np.int64)
    )
