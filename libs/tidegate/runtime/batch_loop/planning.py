"""Which partitions a micro-batch touches, and how they are spread over tasks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.schema import BatchMeta, Counts
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.messages import PartitionPlan
from tidegate.state.batch_metadata import LINEAGE
from tidegate.state.decisions import Wanted, idle_advance

IDLE_STEP_MS = 1_000
"""An idle advance is committed when stream time would grow by this much: a commit a second, not one per trigger."""

Lineage = Mapping[int, Sequence[tuple[int, str]]]


def plan_records(
    newest: BatchMeta,
    topic: str,
    ends: Mapping[int, int],
    producers: Mapping[int, Producer],
    lineage: Lineage,
    left_out: Collection[int] = (),
) -> list[PartitionPlan]:
    """A plan for each partition with records between its offset and its last stable offset."""
    offsets = newest.offsets[topic]
    return [
        _plan(newest, partition, offsets[partition], end, producers, lineage)
        for partition, end in sorted(ends.items())
        if end > offsets[partition] and partition not in left_out
    ]


def plan_stream(newest: BatchMeta, topic: str, lineage: Lineage) -> dict[int, PartitionPlan]:
    """A plan for every partition, from its offset on; how many records there are is only known where they arrive."""
    offsets = newest.offsets[topic]
    return {partition: _plan(newest, partition, start, start, {}, lineage) for partition, start in offsets.items()}


def plan_idle(
    newest: BatchMeta,
    topic: str,
    high_watermarks: Mapping[int, int],
    now: int,
    idle_after: int,
    producers: Mapping[int, Producer],
    lineage: Lineage,
    left_out: Collection[int] = (),
) -> list[PartitionPlan]:
    """Plan an idle advance for each partition that holds something and whose stream time goes on without records.

    A partition whose high watermark is beyond its offset is not idle: what its producers have begun is still to be
    read, once their transactions end.
    """
    plans = []
    for partition in sorted(newest.active):
        offset = newest.offsets[topic][partition]
        idle = partition not in left_out and high_watermarks.get(partition) == offset
        if not idle or not newest.totals.get(partition, Counts()).held:
            continue
        growth = idle_advance(newest.active[partition], newest.advanced.get(partition, -1), now, idle_after)
        if growth is not None and growth >= IDLE_STEP_MS:
            plan = _plan(newest, partition, offset, offset, producers, lineage)
            plans.append(replace(plan, action="idle", advance_to=plan.stream_time + growth))
    return plans


def plan_held(
    newest: BatchMeta, topic: str, producers: Mapping[int, Producer], lineage: Lineage, partitions: Collection[int]
) -> list[PartitionPlan]:
    """A plan without records for each of the partitions that holds something."""
    held = [p for p, counts in sorted(newest.totals.items()) if counts.held and p in partitions]
    offsets = newest.offsets[topic]
    return [_plan(newest, p, offsets[p], offsets[p], producers, lineage) for p in held]


def plan_flush(
    newest: BatchMeta, topic: str, producers: Mapping[int, Producer], lineage: Lineage
) -> list[PartitionPlan]:
    """A plan for each partition that holds something: release it."""
    plans = plan_held(newest, topic, producers, lineage, newest.totals)
    return [replace(plan, action="flush") for plan in plans]


def plan_apply(
    newest: BatchMeta, topic: str, producers: Mapping[int, Producer], lineage: Lineage
) -> list[PartitionPlan]:
    """A plan for each partition that holds something which has yet to meet the configuration."""
    if newest.applied == newest.config:
        return []
    plans = plan_held(newest, topic, producers, lineage, newest.totals)
    return [replace(plan, action="apply") for plan in plans]


def _plan(
    newest: BatchMeta,
    partition: int,
    start: int,
    end: int,
    producers: Mapping[int, Producer],
    lineage: Lineage,
) -> PartitionPlan:
    return PartitionPlan(
        partition=partition,
        action="batch",
        start=start,
        end=end,
        stream_time=newest.stream_time.get(partition, NO_STREAM_TIME),
        advance_to=NO_STREAM_TIME,
        wanted=Wanted(
            epoch=newest.epoch,
            batch=newest.batch + 1,
            last=newest.last.get(partition),
            lineage=tuple(lineage.get(partition, ())[-LINEAGE:]),
            snapshot=newest.snapshot.get(partition, -1),
        ),
        producer=producers.get(partition),
        epoch=newest.epochs.get(partition, -1),
        raised=newest.raised.get(partition, ()),
    )
