"""How a batch's results become the metadata of its commit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tidegate.contracts.errors import StateError
from tidegate.contracts.schema import FORMAT, BatchMeta, Counts, Pin
from tidegate.runtime.messages import PartitionResult
from tidegate.runtime.telemetry.metrics import figures_after, measured_after
from tidegate.state.decisions import Way
from tidegate.state.raised_offsets import after_going_back
from tidegate.state.upkeep.batch_history import recorded_through

_ACTIONS = ("apply", "idle", "flush", "batch")
"""A batch in which some partitions read and others only go on in time is called by the first of both."""
_ADDED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")

MOST_SKIPS = 64
"""Accepted losses that the newest metadata still tells of."""

NOTHING: Mapping[str, Any] = MappingProxyType({})


def after_claim(
    newest: BatchMeta,
    *,
    attempt: str,
    clock: int,
    config: str,
    topics: Mapping[str, str],
    settings: Mapping[str, Any] = NOTHING,
) -> BatchMeta:
    """The metadata of a claim: epoch + 1, a batch of its own, everything else as it was.

    `settings`: of the configuration, which what is held has yet to meet when there is another one than before.
    """
    met = newest.applied or newest.config
    return replace(
        newest,
        format=FORMAT,
        recorded=recorded_through(newest),
        epoch=newest.epoch + 1,
        batch=newest.batch + 1,
        attempt=attempt,
        action="claim",
        clock=clock,
        config=config,
        settings=dict(settings) or newest.settings,
        applied=met if any(counts.held for counts in newest.totals.values()) else config,
        topics=dict(topics),
        counts={},
        measures={},
        opened=(),
        recovered={},
        skipped={},
        settled={},
        gates={},
    )


def after_skip(
    claim: BatchMeta, topic: str, ranges: Mapping[int, tuple[int, int]], epochs: Mapping[int, int] = NOTHING
) -> BatchMeta:
    """The metadata of a claim that also goes past offsets [from, to) of the partitions, and says so.

    Where `to` is before `from`, what was read from there on is no longer in the input, and what it has now is read: at
    raised offsets, as these were used before.
    `epochs`: the leader epochs of what the input has before `to`; those of before are of what it no longer has.
    """
    offsets = claim.offsets[topic] | {partition: end for partition, (_start, end) in ranges.items()}
    others = {partition: epoch for partition, epoch in claim.epochs.items() if partition not in ranges}
    back = {partition: span for partition, span in ranges.items() if span[1] < span[0]}
    raised = {partition: after_going_back(claim.raised.get(partition, ()), *span) for partition, span in back.items()}
    skips = [(claim.batch, claim.clock, partition, start, end) for partition, (start, end) in ranges.items()]
    return replace(
        claim,
        action="skip",
        offsets={**claim.offsets, topic: offsets},
        raised={**claim.raised, **raised},
        epochs={**others, **epochs},
        skipped=dict(ranges),
        skips=(*claim.skips, *skips)[-MOST_SKIPS:],
    )


def after_settling(claim: BatchMeta, batches: Mapping[int, int], *, published: bool) -> BatchMeta:
    """Return the metadata of a claim under which a person has said what became of the partitions' newest output."""
    word = "published" if published else "unpublished"
    return replace(claim, action="settle", settled={partition: (batch, word) for partition, batch in batches.items()})


def after_batch(
    newest: BatchMeta,
    results: Sequence[PartitionResult],
    *,
    topic: str,
    batch: int,
    attempt: str,
    clock: int,
    inputs: Mapping[str, Pin] = NOTHING,
    readers: Mapping[str, tuple[int, int]] = NOTHING,
    gates: Mapping[int, int] = NOTHING,
) -> BatchMeta:
    """The metadata of a batch: maps complete for all partitions, moved on for those that took part.

    `inputs`: of each table that was read its pin. `readers`: of a table, those that it has kept versions for. `gates`:
    per partition until when records could leave, as far as the table is concerned that is read.
    Raises StateError when a partition's counts do not balance: nothing may be lost silently.
    """
    for result in results:
        _check_balance(result)
    action = max((r.action for r in results), key=_ACTIONS.index, default="batch")
    counts, measures = {r.partition: r.counts for r in results}, {r.partition: r.measures for r in results}
    return replace(
        newest,
        batch=batch,
        attempt=attempt,
        action=action,
        applied=newest.config if action == "apply" else newest.applied,
        clock=clock,
        offsets={
            **newest.offsets,
            topic: {**newest.offsets.get(topic, {}), **{r.partition: r.next_offset for r in results}},
        },
        epochs={**newest.epochs, **{r.partition: r.epoch for r in results if r.epoch >= 0}},
        stream_time={**newest.stream_time, **{r.partition: r.stream_time for r in results}},
        last={**newest.last, **{r.partition: (batch, attempt) for r in results}},
        counts=counts,
        totals={**newest.totals, **{r.partition: _total(newest.totals.get(r.partition), r.counts) for r in results}},
        measures=measures,
        measured=measured_after(newest, measures),
        figures=figures_after(newest, counts, measures, clock),
        opened=tuple(r.partition for r in results if _opened(r)),
        output={**newest.output, **{r.partition: batch for r in results if r.counts.emitted or _opened(r)}},
        active={**newest.active, **{r.partition: clock for r in results if r.counts.records_in}},
        advanced={**newest.advanced, **{r.partition: clock for r in results if r.action == "idle"}},
        inputs=dict(inputs),
        readers=dict(readers),
        floor={**newest.floor, **{r.partition: r.floor for r in results if r.floor is not None}},
        needs={**newest.needs, **{r.partition: r.needs for r in results if r.needs is not None}},
        gates=dict(gates),
        recovered={r.partition: r.recovery for r in results if r.partition in newest.last and _came_back(r)},
    )


def after_compaction(
    newest: BatchMeta, partitions: Iterable[int], *, attempt: str, clock: int, through: int | None = None
) -> BatchMeta:
    """The metadata of a compaction: a batch of its own; states keep their `last`.

    `partitions` are those whose state became a snapshot: of all batches before, or up to `through`.
    """
    batch = newest.batch + 1
    return replace(
        newest,
        batch=batch,
        attempt=attempt,
        action="compaction",
        clock=clock,
        counts={},
        measures={},
        opened=(),
        recovered={},
        gates={},
        snapshot={**newest.snapshot, **dict.fromkeys(partitions, batch if through is None else through)},
        compacted=batch,
        recorded=batch - 1 if through is None else through,
    )


def _opened(result: PartitionResult) -> bool:
    """True when the partition has an open transaction, with something to publish."""
    return result.producer is not None and result.producer.opened


def _came_back(result: PartitionResult) -> bool:
    """True when the local state was not the one of before, which just goes on."""
    return bool(result.recovery) and not result.recovery.startswith(Way.GO_ON.value)


def _check_balance(result: PartitionResult) -> None:
    if not result.counts.balanced:
        raise StateError(
            f"partition {result.partition}: not every record has exactly one count",
            value=result.counts,
            remedy="this is a defect of Tidegate: report it with the value; nothing was committed",
        )


def _total(before: Counts | None, now: Counts) -> Counts:
    if before is None:
        return now
    return replace(now, **{name: getattr(before, name) + getattr(now, name) for name in _ADDED})
