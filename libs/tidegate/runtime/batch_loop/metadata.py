"""The metadata of a commit, derived from the metadata before it and from the batch's results. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tidegate.contracts.errors import StateError
from tidegate.contracts.schema import FORMAT, BatchMeta, Counts, Pin
from tidegate.runtime.task.messages import PartitionResult
from tidegate.runtime.telemetry.metrics import figures_after, measured_after
from tidegate.state.decisions import RecoveryMethod, RecoveryPlan
from tidegate.state.raised_offsets import after_going_back
from tidegate.state.upkeep.batch_history import recorded_through

_ACTIONS = ("apply", "idle", "flush", "batch")
"""Ascending precedence: a batch whose partitions have different actions is named by the last of them in this list."""
_ADDED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")

MOST_SKIPS = 64
"""How many accepted losses of input the newest metadata lists."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
NO_PARTITIONS: Mapping[int, int] = MappingProxyType({})


def first_meta(operator: str, table_id: str, clock: int, topic: str, starts: dict[int, int]) -> BatchMeta:
    """Return the metadata before the first claim: epoch 0, next offsets at the beginnings of the input."""
    return BatchMeta(
        format=FORMAT,
        operator=operator,
        table_id=table_id,
        epoch=0,
        batch=-1,
        attempt="",
        action="claim",
        clock=clock,
        config="",
        offsets={topic: starts},
    )


def after_claim(
    newest: BatchMeta,
    *,
    attempt: str,
    clock: int,
    config: str,
    topics: Mapping[str, str],
    settings: Mapping[str, Any] = NOTHING,
) -> BatchMeta:
    """Return the metadata of a claim: epoch + 1, a batch number of its own, and otherwise the state of `newest`.

    `settings`: the configuration as it would be written. While records are held, `applied` stays the hash of the last
    configuration applied to them. If that is not the claimed one, the next batch applies the claimed one.
    """
    met = newest.applied or newest.config
    # rule: claim-takes-number, claim-raises-epoch, format-upgrade/recorded
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
    claim: BatchMeta, topic: str, ranges: Mapping[int, tuple[int, int]], epochs: Mapping[int, int] = NO_PARTITIONS
) -> BatchMeta:
    """Return the metadata of a claim that skips offsets [from, to) of the partitions and records that.

    `to` before `from` is a skip back: the input lost the records from `to` on after they were read, and what it has
    there now is read. These offsets were used before, so that the log raises them.
    `epochs`: the leader epoch of the input right before `to`; the former epochs belong to records that are gone.
    """
    offsets = claim.offsets[topic] | {partition: end for partition, (_start, end) in ranges.items()}
    # rule: truncated-input/skipped
    others = {partition: epoch for partition, epoch in claim.epochs.items() if partition not in ranges}
    back = {partition: span for partition, span in ranges.items() if span[1] < span[0]}
    raised = {partition: after_going_back(claim.raised.get(partition, ()), *span) for partition, span in back.items()}
    skips = [(claim.batch, claim.clock, partition, start, end) for partition, (start, end) in ranges.items()]
    # rule: skip-keeps-leader-epoch/kept, raised-offsets/recorded
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
    """Return the metadata of a claim that records whether the partitions' newest output was published.

    A person has decided that. `batches`: the batch of that output, per partition.
    """
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
    gates: Mapping[int, int] = NO_PARTITIONS,
) -> BatchMeta:
    """Return the metadata of a batch: maps cover all partitions, with new values for those that took part.

    `inputs`: the pin of each table that was read. `readers`: of a table, the readers that it kept versions for.
    `gates`: of a reader, per partition the event time up to which the table allowed the release of records.
    Raise StateError if a partition's counts do not balance: no record may be lost silently.
    """
    for result in results:
        _check_balance(result)
    action = max((r.action for r in results), key=_ACTIONS.index, default="batch")
    counts, measures = {r.partition: r.counts for r in results}, {r.partition: r.measures for r in results}
    # rule: last-commit, offsets-of-all
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
        recovered={
            r.partition: r.recovery.description
            for r in results
            if r.recovery is not None and r.partition in newest.last and _came_back(r.recovery)
        },
    )


def after_compaction(
    newest: BatchMeta, partitions: Iterable[int], *, attempt: str, clock: int, through: int | None = None
) -> BatchMeta:
    """Return the metadata of a compaction: it has a batch number of its own, and states keep their `last` commit.

    `partitions`: those whose state was rewritten as a snapshot, as of the batch `through` (None: of all before this).
    """
    # rule: compaction-takes-number
    batch = newest.batch + 1
    # rule: compaction-is-snapshot
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
    """Return whether the partition has an open transaction with something to publish."""
    return result.producer is not None and result.producer.opened


def _came_back(recovery: RecoveryPlan) -> bool:
    """Return whether the local state had to be undone, caught up or rebuilt, rather than just continued."""
    return recovery.method is not RecoveryMethod.GO_ON


def _check_balance(result: PartitionResult) -> None:
    # rule: counts-balance
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
