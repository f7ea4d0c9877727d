"""Plans of micro-batches: which partitions take part, and what each of them does. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from tidegate.contracts.batch_metadata import BatchMeta, Ends, Reading
from tidegate.contracts.event_time import ALWAYS, NO_STREAM_TIME
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.task.messages import Hold, InputRange, PartitionPlan
from tidegate.state.earlier_batches import LINEAGE
from tidegate.state.protocol_decisions import Commit, Wanted, idle_advance

IDLE_STEP_MS = 1_000
"""Smallest idle advance of stream time that is committed. So there is one commit a second, not one per trigger."""


NOTHING_TO_READ: Ends = MappingProxyType({})


class PlanBasis(NamedTuple):
    """What the plans of all partitions are made from: the log, the local states' lineage, and Kafka's producers.

    `producers`: empty if nothing is published.
    """

    newest: BatchMeta
    lineage: Mapping[int, Sequence[Commit]]
    producers: Mapping[int, Producer]


def plan_records(basis: PlanBasis, ends: Ends, left_out: Collection[int] = ()) -> list[PartitionPlan]:
    """Plan each partition with records between its next offset and its last stable offset, in any input topic."""
    return [
        _plan(basis, partition, ends)
        for partition, unread in sorted(basis.newest.unread(ends).items())
        if unread and partition not in left_out
    ]


def plan_stream(basis: PlanBasis) -> dict[int, PartitionPlan]:
    """Plan every partition from its next offset on, for a streaming DataFrame; the tasks count the records.

    A table never reads versions before its floor again, even if it now keeps them for longer.
    """
    floors = {partition: known.floor for partition, known in basis.newest.partitions.items()}
    # rule: own-table-floor
    holds = {partition: None if floor is None else Hold(floor, ALWAYS) for partition, floor in floors.items()}
    return {partition: replace(_plan(basis, partition), hold=holds[partition]) for partition in holds}


def plan_idle(
    basis: PlanBasis,
    high_watermarks: Ends,
    now: int,
    idle_after: int,
    left_out: Collection[int] = (),
) -> list[PartitionPlan]:
    """Plan an idle advance for each partition that holds records and has had no input for `idle_after` ms.

    A partition whose high watermark is beyond its next offset is not idle: it has records of open transactions, which
    are read when these end. Of several input topics each must be at its high watermark.
    """
    plans, read_to = list[PartitionPlan](), basis.newest.read_to
    for partition, known in sorted(basis.newest.partitions.items()):
        # rule: idle-at-high-watermark/plan
        read = all(high_watermarks[topic].get(partition) == offsets[partition] for topic, offsets in read_to.items())
        idle = read and partition not in left_out
        if not idle or not known.totals.held:
            continue
        growth = idle_advance(known.active_clock, known.advanced_clock, now, idle_after)
        if growth is not None and growth >= IDLE_STEP_MS:
            plan = _plan(basis, partition)
            plans.append(replace(plan, action="idle", advance_to=plan.stream_time + growth))
    return plans


def plan_held(basis: PlanBasis, partitions: Collection[int]) -> list[PartitionPlan]:
    """Plan, without reading input, each of the given partitions that holds records."""
    known = sorted(basis.newest.partitions.items())
    return [_plan(basis, partition) for partition, it in known if it.totals.held and partition in partitions]


def plan_flush(basis: PlanBasis) -> list[PartitionPlan]:
    """Plan a release of everything that is held, in each partition that holds records."""
    plans = plan_held(basis, basis.newest.partitions)
    return [replace(plan, action="flush") for plan in plans]


def plan_apply(basis: PlanBasis) -> list[PartitionPlan]:
    """Plan each partition that holds records if the newest configuration has not been applied to them; else none."""
    if basis.newest.applied == basis.newest.config:
        return []
    plans = plan_held(basis, basis.newest.partitions)
    return [replace(plan, action="apply") for plan in plans]


def _plan(basis: PlanBasis, partition: int, ends: Ends = NOTHING_TO_READ) -> PartitionPlan:
    """Return the plan of a batch that reads the partition's input topics from their next offsets up to these ends."""
    newest, known = basis.newest, basis.newest.partitions[partition]
    # rule: lineage-in-plan, truncated-input/plan
    return PartitionPlan(
        partition=partition,
        action="batch",
        start=known.next_offset,
        end=ends.get(newest.input, {}).get(partition, known.next_offset),
        stream_time=known.stream_time,
        advance_to=NO_STREAM_TIME,
        wanted=Wanted(
            epoch=newest.epoch,
            batch=newest.batch + 1,
            last=known.last,
            lineage=tuple(basis.lineage.get(partition, ())[-LINEAGE:]),
            snapshot=known.snapshot_batch,
        ),
        producer=basis.producers.get(partition),
        epoch=known.leader_epoch,
        raised=known.raised,
        reached=known.reached,
        further=tuple(_range(topic, at, ends.get(topic, {}).get(partition)) for topic, at in known.further.items()),
    )


def _range(topic: str, read: Reading, end: int | None) -> InputRange:
    return InputRange(topic, read.next_offset, read.next_offset if end is None else end, *read[1:])
