"""Where state and numbers go when an operator's input changes its number of partitions. Pure functions.

Kafka's partitioner takes the hash of a key modulo the number of partitions. So the keys of partition q of M come from
those partitions p of N for which p and q are equal modulo the greatest common divisor of N and M: its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.batch_metadata import BatchMeta, Counts, PartitionChange, PartitionMeta, Raised
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.operator import Array, OffsetColumns
from tidegate.kernels.record_format.partitioner import partitions_of
from tidegate.state.raised_offsets import raised_now

_ADDED = ("records_in", "applied", "superseded", "late", "rejected", "emitted")

Renumber = Callable[[Array], Array]
"""Returns the new offsets of rows, by their offsets before."""

Measures = dict[str, int]


def sources_of(partition: int, before: int, after: int) -> range:
    """Return the partitions, of `before`, whose keys may belong to this partition of `after`."""
    step = gcd(before, after)
    return range(partition % step, before, step)


def heir_of(partition: int, after: int) -> int:
    """Return the partition, of `after`, that takes over the totals of this partition: a partition with its keys."""
    return partition % after


def misplaced(rows: pa.Table, partition: int, partitions: int) -> int:
    """Return how many rows have a key that Kafka's partitioner would not put into the partition."""
    # rule: rescale-by-partitioner/checked
    return int(np.count_nonzero(partitions_of(rows.column("key"), partitions) != partition))


def rows_for(rows: pa.Table, partition: int, partitions: int) -> pa.Table:
    """Return the rows whose keys belong to the partition, in their order."""
    # rule: rescale-by-partitioner/moved
    return rows.filter(pa.array(partitions_of(rows.column("key"), partitions) == partition))


# ---- offsets


def offsets_in(rows: pa.Table, columns: OffsetColumns) -> Array:
    """Return all offsets that occur in the rows, each once, ascending."""
    found = [_values(rows, name) for name in ("offset", *columns.plain, *columns.complemented)]
    whole = np.concatenate(found)
    complements = np.concatenate([np.empty(0, np.int64), *(_values(rows, name) for name in columns.complemented)])
    return np.unique(np.concatenate([whole[whole >= 0], ~complements[complements < 0]]))


def _values(rows: pa.Table, name: str) -> Array:
    return np.asarray(pc.drop_null(rows.column(name)).to_numpy(), np.int64)


def numbered_together(offsets: Sequence[Array]) -> list[Array]:
    """Return new offsets for each source's offsets (ascending, each once) such that no two sources have the same one.

    Their order is kept, and of equal offsets the first source's comes first. An offset that is unique, and not needed
    for an earlier one, stays as it is. So all offsets of a single source stay as they are.
    """
    source = np.concatenate([np.full(len(each), at) for at, each in enumerate(offsets)] or [np.empty(0, np.int64)])
    whole = np.concatenate([np.empty(0, np.int64), *offsets])
    order = np.lexsort((source, whole))
    place = np.arange(len(whole))
    # rule: rescale-offsets-unique
    new = np.maximum.accumulate(whole[order] - place) + place if len(whole) else whole
    back = np.empty(len(whole), np.int64)
    back[order] = new
    return np.split(back, np.cumsum([len(each) for each in offsets])[:-1]) if offsets else []


def renumbered(rows: pa.Table, columns: OffsetColumns, before: Array, after: Array) -> pa.Table:
    """Return the rows with the offset `after[n]` in place of `before[n]`, in all columns that hold offsets."""
    if np.array_equal(before, after):
        return rows

    def moved(offsets: Array) -> Array:
        return np.asarray(after[np.searchsorted(before, offsets)])

    for name in ("offset", *columns.plain):
        rows = _mapped(rows, name, lambda values: np.where(values < 0, values, moved(np.maximum(values, before[0]))))
    for name in columns.complemented:
        rows = _mapped(
            rows, name, lambda values: np.where(values < 0, ~moved(_positive(values)), moved(_positive(values)))
        )
    return rows


def _positive(values: Array) -> Array:
    return np.where(values < 0, ~values, values)


def _mapped(rows: pa.Table, name: str, change: Renumber) -> pa.Table:
    if name not in rows.column_names:
        return rows
    column = rows.column(name)
    known = np.asarray(column.is_valid())
    values = np.full(len(known), -1, np.int64)
    values[known] = change(_values(rows, name)) if known.any() else values[known]
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, pa.int64(), mask=~known))


# ---- metadata


def stream_time_of_all(sources: Iterable[int]) -> int:
    """Return the stream time of a partition whose sources have these: the latest one.

    What was late stays late, and no window that had a final result is opened again.
    """
    # rule: rescale-latest-time
    return max(sources, default=NO_STREAM_TIME)


def rescaled(
    claim: BatchMeta,
    starts: Mapping[int, int],
    held: Mapping[int, Counts],
    highest: Mapping[int, int],
    *,
    same_topic: bool,
    merge_measures: Callable[[Measures, Measures], Measures],
) -> BatchMeta:
    """Return the metadata of a claim that changes the number of partitions to that of `starts`.

    `starts`: per partition the input's first offset. `held`: what each partition holds then, and what the change
    itself emitted. `highest`: the highest offset in each partition's rows. `same_topic`: the input is still the topic
    that was read, so that its former partitions continue where they are.
    """
    before = claim.partitions
    partitions = {}
    for partition, start in starts.items():
        sources = [before[source] for source in sources_of(partition, len(before), len(starts))]
        kept = before.get(partition) if same_topic else None
        gone = [
            known for p, known in sorted(before.items()) if p >= len(starts) and heir_of(p, len(starts)) == partition
        ]
        own = [before[partition]] if partition in before else []
        # rule: rescale-output-settled/mark
        partitions[partition] = PartitionMeta(
            **_input(kept, start, _first_free(sources, highest[partition])),
            stream_time=stream_time_of_all(known.stream_time for known in sources),
            last=(claim.batch, claim.attempt) if any(known.begun for known in sources) else None,
            totals=_totals([*own, *gone], held[partition]),
            measured=_measured([*own, *gone], merge_measures),
            snapshot_batch=claim.batch,
            output_batch=claim.batch,
            active_clock=max(known.active_clock for known in sources),
            advanced_clock=max(known.advanced_clock for known in sources),
            remembered_from=_latest(known.remembered_from for known in sources),
            floor=_latest(known.floor for known in sources),
            needs=_earliest([known.needs for known in sources]),
        )
    changed = {p: PartitionChange(counts=counts) for p, counts in held.items() if counts.emitted}
    return replace(
        claim, action="rescale", partitions=partitions, changed=changed, figures=_figures(claim.figures, held.values())
    )


def _figures(figures: Mapping[str, int], held: Collection[Counts]) -> dict[str, int]:
    """Return the operator's figures, with what is held now and what the change has emitted."""
    if not figures:
        return {}
    now = {f"{name}_now": sum(getattr(counts, name) for counts in held) for name in ("held", "held_bytes")}
    return {**figures, **now, "emitted": figures.get("emitted", 0) + sum(counts.emitted for counts in held)}


def _first_free(sources: Sequence[PartitionMeta], highest: int) -> int:
    """Return the first offset in the log that no record of the sources has, before or after the change."""
    return max([highest + 1, *(known.next_offset + raised_now(known.raised) for known in sources)])


def _input(kept: PartitionMeta | None, start: int, first_free: int) -> dict[str, Any]:
    """Return where the input is read from, and by how much its offsets are raised in the log from there on."""
    next_offset, raised = (start, ()) if kept is None else (kept.next_offset, kept.raised)
    by = first_free - next_offset
    # rule: rescale-offsets-above
    if by != raised_now(raised):
        raised = _raised(raised, first_free, by)
    return {"next_offset": next_offset, "raised": raised, "leader_epoch": -1 if kept is None else kept.leader_epoch}


def _raised(raised: Raised, first: int, by: int) -> Raised:
    return (*(earlier for earlier in raised if earlier[0] < first), (first, by))


def _totals(known: Sequence[PartitionMeta], now: Counts) -> Counts:
    """Return the totals of these partitions, with what is held now; `now.emitted` comes on top."""
    return replace(
        now, **{name: getattr(now, name) + sum(getattr(each.totals, name) for each in known) for name in _ADDED}
    )


def _measured(known: Sequence[PartitionMeta], merge: Callable[[Measures, Measures], Measures]) -> Measures:
    found: Measures = {}
    for each in known:
        found = merge(found, each.measured)
    return found


def _latest(times: Iterable[int | None]) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _earliest(needs: Sequence[Mapping[str, int]]) -> dict[str, int]:
    tables = dict.fromkeys(table for each in needs for table in each)
    return {table: min(each[table] for each in needs if table in each) for table in tables}
