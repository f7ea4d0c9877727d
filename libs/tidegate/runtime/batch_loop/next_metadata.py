"""The metadata of a commit, derived from the metadata before it and from the batch's results. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from tidegate.contracts.batch_metadata import (
    BatchMeta,
    Counts,
    Ends,
    Outcome,
    PartitionChange,
    PartitionMeta,
    Pin,
    Reading,
    Settled,
)
from tidegate.contracts.errors import StateError
from tidegate.contracts.log_schema import FORMAT, format_from_claim
from tidegate.runtime.task.messages import PartitionResult
from tidegate.runtime.telemetry.batch_metrics import figures_after, merge_batches
from tidegate.state.protocol_decisions import Commit, RecoveryMethod, RecoveryPlan
from tidegate.state.raised_offsets import after_going_back
from tidegate.state.upkeep.batch_history import recorded_through

_ACTIONS = ("apply", "idle", "flush", "batch")
"""Ascending precedence: a batch whose partitions have different actions is named by the last of them in this list."""
_ADDED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")

MOST_SKIPS = 64
"""How many accepted losses of input the newest metadata lists."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
NO_PARTITIONS: Mapping[int, Any] = MappingProxyType({})


class Alignment(NamedTuple):
    """How a batch was aligned with those of other operators: with the table that it read, or with its own readers.

    `inputs`: the pin of each table that was read. `readers`: of a table, epoch and clock of the readers that it kept
    versions for. `gates`: of a reader, per partition and table the event time up to which the table allowed the release
    of records, ms.
    """

    inputs: Mapping[str, Pin] = NOTHING
    readers: Mapping[str, tuple[int, int]] = NOTHING
    gates: Mapping[int, Mapping[str, int]] = NO_PARTITIONS


ALONE = Alignment()
"""That of an operator that reads no table and has no readers."""


def first_meta(operator: str, table_id: str, clock: int, starts: Ends, *, log_format: int = FORMAT) -> BatchMeta:
    """Return the metadata before the first claim: epoch 0, next offsets at the beginnings of the input topics."""
    (topic, firsts), *others = starts.items()
    return BatchMeta(
        format=log_format,
        operator=operator,
        table_id=table_id,
        epoch=0,
        batch=-1,
        attempt="",
        action="claim",
        clock=clock,
        config="",
        input=topic,
        partitions={
            p: PartitionMeta(next_offset=start, further={name: Reading(offsets[p]) for name, offsets in others})
            for p, start in firsts.items()
        },
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
        format=format_from_claim(newest.format),
        recorded=recorded_through(newest),
        epoch=newest.epoch + 1,
        batch=newest.batch + 1,
        attempt=attempt,
        action="claim",
        clock=clock,
        config=config,
        settings=dict(settings) or newest.settings,
        applied=met if any(known.totals.held for known in newest.partitions.values()) else config,
        topics=dict(topics),
        changed={},
        skipped={},
        settled={},
    )


def after_skip(
    claim: BatchMeta,
    ranges: Mapping[int, tuple[int, int]],
    epochs: Mapping[int, int] = NO_PARTITIONS,
    topic: str | None = None,
) -> BatchMeta:
    """Return the metadata of a claim that skips offsets [from, to) of the partitions and records that.

    `topic`: the input topic of these offsets; None: the first one.

    `to` before `from` is a skip back: the input lost the records from `to` on after they were read, and what it has
    there now is read. These offsets were used before, so that the log raises them.
    `epochs`: the leader epoch of the input right before `to`; the former epochs belong to records that are gone.
    """
    further = None if topic == claim.input else topic
    named = () if further is None else (further,)
    skips = [(claim.batch, claim.clock, partition, start, end, *named) for partition, (start, end) in ranges.items()]
    moved = {p: _moved(claim.partitions[p], further, *span, epochs.get(p, -1)) for p, span in ranges.items()}
    return replace(
        claim,
        action="skip",
        partitions={**claim.partitions, **moved},
        skipped=dict(ranges),
        skips=(*claim.skips, *skips)[-MOST_SKIPS:],
    )


def _moved(known: PartitionMeta, further: str | None, start: int, end: int, leader_epoch: int) -> PartitionMeta:
    """Return what is known of a partition that goes on at `end` instead of `start`, in a further topic or the first."""
    at = known.position
    raised = after_going_back(known.raised, at, at - start + end) if end < start else known.raised
    if further is not None:
        reading = known.further[further]._replace(next_offset=end, leader_epoch=leader_epoch)
        return replace(known, raised=raised, further=known.further | {further: reading})
    # rule: truncated-input/skipped, skip-keeps-leader-epoch/kept, raised-offsets/recorded
    return replace(known, next_offset=end, raised=raised, leader_epoch=leader_epoch)


def after_settling(claim: BatchMeta, batches: Mapping[int, int], outcome: Outcome) -> BatchMeta:
    """Return the metadata of a claim that records whether the partitions' newest output was published.

    A person has decided that. `batches`: the batch of that output, per partition.
    """
    settled = {partition: Settled(batch, outcome) for partition, batch in batches.items()}
    return replace(claim, action="settle", settled=settled)


def after_batch(
    newest: BatchMeta,
    results: Sequence[PartitionResult],
    *,
    batch: int,
    attempt: str,
    clock: int,
    alignment: Alignment = ALONE,
) -> BatchMeta:
    """Return the metadata of a batch: of all partitions, with one new value for each that took part.

    Raise StateError if a partition's counts do not balance: no record may be lost silently.
    """
    for result in results:
        _check_balance(result)
    action = max((r.action for r in results), key=_ACTIONS.index, default="batch")
    before = {r.partition: newest.partitions[r.partition] for r in results}
    after = {r.partition: _partition_after(before[r.partition], r, (batch, attempt), clock) for r in results}
    changed = {r.partition: _change(before[r.partition], r, alignment.gates.get(r.partition, {})) for r in results}
    # rule: offsets-of-all
    return replace(
        newest,
        batch=batch,
        attempt=attempt,
        action=action,
        applied=newest.config if action == "apply" else newest.applied,
        clock=clock,
        partitions={**newest.partitions, **after},
        changed=changed,
        figures=figures_after(newest, changed, clock),
        inputs=dict(alignment.inputs),
        readers=dict(alignment.readers),
    )


def _partition_after(known: PartitionMeta, result: PartitionResult, commit: Commit, clock: int) -> PartitionMeta:
    """Return what is known of a partition after its part of a batch."""
    # rule: last-commit
    return replace(
        known,
        next_offset=result.next_offset,
        leader_epoch=result.epoch if result.epoch >= 0 else known.leader_epoch,
        reached=result.reached,
        further=dict(result.further) or known.further,
        stream_time=result.stream_time,
        last=commit,
        totals=_total(known.totals, result.counts),
        measured=merge_batches(known.measured, result.measures),
        output_batch=commit[0] if result.counts.emitted or _opened(result) else known.output_batch,
        active_clock=clock if result.counts.records_in else known.active_clock,
        advanced_clock=clock if result.action == "idle" else known.advanced_clock,
        floor=known.floor if result.floor is None else result.floor,
        needs=result.needs or known.needs,
        reader_time=result.reader_time,
    )


def _change(known: PartitionMeta, result: PartitionResult, gates: Mapping[str, int]) -> PartitionChange:
    """Return what the batch did in a partition; `known`: of the partition before the batch."""
    recovery = result.recovery if known.begun else None
    return PartitionChange(
        counts=result.counts,
        measures=result.measures,
        opened=_opened(result),
        recovered=recovery.description if recovery is not None and _came_back(recovery) else None,
        gates=gates,
        ledger=dict(result.ledger),
    )


def after_compaction(
    newest: BatchMeta, partitions: Iterable[int], *, attempt: str, clock: int, through: int | None = None
) -> BatchMeta:
    """Return the metadata of a compaction: it has a batch number of its own, and states keep their `last` commit.

    `partitions`: those whose state was rewritten as a snapshot, as of the batch `through` (None: of all before this).
    """
    # rule: compaction-takes-number
    batch = newest.batch + 1
    snapshot = batch if through is None else through
    # rule: compaction-is-snapshot
    rewritten = {p: replace(newest.partitions[p], snapshot_batch=snapshot) for p in partitions}
    return replace(
        newest,
        batch=batch,
        attempt=attempt,
        action="compaction",
        clock=clock,
        partitions={**newest.partitions, **rewritten},
        changed={},
        compacted=batch,
        recorded=batch - 1 if through is None else through,
    )


def _opened(result: PartitionResult) -> bool:
    """Return whether the partition has an open transaction with something to publish."""
    return result.transaction is not None


def _came_back(recovery: RecoveryPlan) -> bool:
    """Return whether the local state had to be undone, caught up or rebuilt, rather than just continued."""
    return recovery.method is not RecoveryMethod.GO_ON


def _check_balance(result: PartitionResult) -> None:
    wrong = [counts for counts in (result.counts, *result.ledger.values()) if not counts.balanced]
    # rule: counts-balance
    if wrong:
        raise StateError(
            f"partition {result.partition}: not every record has exactly one count",
            value=wrong[0],
            remedy="this is a defect of Tidegate: report it with the value; nothing was committed",
        )


def _total(before: Counts, now: Counts) -> Counts:
    return replace(now, **{name: getattr(before, name) + getattr(now, name) for name in _ADDED})
