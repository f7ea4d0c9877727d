"""Merges what a partition has read of several input topics into one sequence of records. Pure functions.

The records of a topic keep their own order, which may not be that of their timestamps. A record's place is the largest
timestamp of its topic up to it, over all batches; at one place topics come in the order of their numbers. No record is
processed beyond the time of the slowest topic that has more. So while there is more of every topic, the order does not
depend on how the input is cut into batches.

In the log, the records of all topics are numbered in turn: the number of a record is its offset plus the next offsets
of the other topics when its turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.batch_metadata import Reading
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.flow import NO_SOURCE
from tidegate.contracts.operator import Array
from tidegate.contracts.records import Int64s
from tidegate.operators.late_and_rejected import with_timestamps
from tidegate.runtime.kafka.fetch import Fetched, concatenate
from tidegate.runtime.publishing.dead_letters import of_steps
from tidegate.runtime.task.messages import InputRange, PartitionPlan


class Part(NamedTuple):
    """A range of an input topic, what was read of it, and the place of each record."""

    range: InputRange
    fetched: Fetched
    places: Int64s

    @property
    def has_more(self) -> bool:
        """Return whether the range goes on behind what was read."""
        return self.fetched.next_offset < self.range.end

    @property
    def reached(self) -> int:
        """Return the largest timestamp of the topic up to the end of what was read."""
        return int(self.places[-1]) if len(self.places) else self.range.reached

    def first(self, count: int) -> Part:
        """Return the part with its first records alone; it ends where the next one begins."""
        if count == len(self.places):
            return self
        offsets = self.fetched.records.offset
        next_offset = int(offsets[count]) if count else self.range.start
        cut = replace(self.fetched, records=self.fetched.records.slice(0, count), next_offset=next_offset)
        return Part(self.range, cut, self.places[:count])


def ranges_of(plan: PartitionPlan, topic: str) -> list[InputRange]:
    """Return the plan's ranges of all input topics, of which `topic` is the first."""
    return [InputRange(topic, plan.start, plan.end, plan.epoch, plan.reached), *plan.further]


def part_of(wanted: InputRange, fetched: Fetched, config: OperatorRules, clock_ms: int) -> Part:
    """Return what was read of the range, with places. The time of a record that will be rejected does not count."""
    dated = with_timestamps(fetched.records, config, clock_ms)
    times = dated.batch.timestamp
    # rule: refused-time-merges-nothing
    counting = np.where((dated.missing > 0) | (times > dated.newest), NO_STREAM_TIME, times)
    return Part(wanted, fetched, np.maximum.accumulate(np.append(wanted.reached, counting))[1:])


def up_to_slowest(parts: Sequence[Part]) -> list[Part]:
    """Return the parts without the records that come after what the slowest topic that has more may still have.

    The slowest topic keeps all of its records, so that every batch gets on.
    """
    behind = [(part.reached, number) for number, part in enumerate(parts) if part.has_more]
    # rule: not-beyond-slowest
    if not behind:
        return list(parts)
    time, slowest = min(behind)
    return [
        part.first(int(np.searchsorted(part.places, time, side="right" if number <= slowest else "left")))
        for number, part in enumerate(parts)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Merged(Fetched):
    """The records of several input topics in the order in which they are processed, numbered in turn.

    `ranges`: what was to be read. `topic`: the number of each record's topic. `places`: of each record. `own_offset`:
    its offset in its topic. `before`: by topic and record, the topic's next offset when the record's turn comes.
    """

    ranges: Sequence[InputRange]
    topic: npt.NDArray[np.int8]
    places: Int64s
    own_offset: Int64s
    before: Array

    def until(self, offset: int) -> Fetched:
        """Return the same as if only the records before that number had been read."""
        at = int(np.searchsorted(self.records.offset, offset))
        if at == len(self.records):
            return self
        readings = []
        for number, wanted in enumerate(self.ranges):
            own = self.places[:at][self.topic[:at] == number]
            reached = int(own[-1]) if len(own) else wanted.reached
            readings.append(Reading(int(self.before[number, at]), self._epochs()[number], reached))
        return replace(self, **_positions(self.ranges, readings))

    def with_origins(self, rows: pa.Table, raised: int) -> pa.Table:
        """Return late or rejected rows with the topic and the offset of their records.

        A row that no record has caused gets the first topic, and NO_SOURCE. `raised`: by how much their offsets are
        larger than the numbers here.
        """
        cause = rows["offset"]
        if "source" in rows.column_names:
            cause = pc.if_else(of_steps(rows), rows["source"], cause)
        source = cause.to_numpy()
        caused = source != NO_SOURCE
        topic, offset = np.zeros(len(source), np.int8), np.full(len(source), NO_SOURCE, np.int64)
        at = np.searchsorted(self.records.offset, source[caused] - raised)
        topic[caused], offset[caused] = self.topic[at], self.own_offset[at]
        topics = pa.array([wanted.topic for wanted in self.ranges])
        return rows.append_column("origin_topic", topics.take(pa.array(topic))).append_column(
            "origin_offset", pa.array(offset)
        )

    def _epochs(self) -> list[int]:
        return [self.epoch, *(reading.leader_epoch for reading in self.further.values())]


def merged(parts: Sequence[Part], streams: int = 1) -> Merged:
    """Return the records of the parts as one sequence; with several `streams`, each part is one of them, by its port.

    Otherwise all parts are one stream, and the operator does not learn from which topic a record came.
    """
    places = np.concatenate([part.places for part in parts])
    order = np.argsort(places, kind="stable")
    records = concatenate([part.fetched.records for part in parts]).take(order)
    topic = np.repeat(np.arange(len(parts), dtype=np.int8), [len(part.places) for part in parts])[order]
    starts = [part.range.start for part in parts]
    before = np.stack([_before(records.offset, topic == number, start) for number, start in enumerate(starts)])
    # rule: numbered-in-turn
    others = before.sum(axis=0) - before[topic, np.arange(len(topic))]
    # rule: merged-topics-one-stream
    ports = topic if streams > 1 else None
    ranges = [part.range for part in parts]
    readings = [Reading(part.fetched.next_offset, part.fetched.epoch, part.reached) for part in parts]
    return Merged(
        records=replace(records, offset=records.offset + others, port=ports),
        ranges=ranges,
        topic=topic,
        places=places[order],
        own_offset=records.offset,
        before=before,
        **_positions(ranges, readings),
    )


def _before(offset: Int64s, own: Array, start: int) -> Int64s:
    """Return the next offset of a topic before each record; `own`: the records that are of this topic."""
    after = np.maximum.accumulate(np.append(start, np.where(own, offset + 1, start)))
    return after[:-1]


def _positions(ranges: Sequence[InputRange], readings: Sequence[Reading]) -> dict[str, Any]:
    """Return the fields that say how far the topics were read."""
    first, *others = readings
    further = {wanted.topic: reading for wanted, reading in zip(ranges[1:], others, strict=True)}
    return {"next_offset": first.next_offset, "epoch": first.leader_epoch, "reached": first.reached, "further": further}
