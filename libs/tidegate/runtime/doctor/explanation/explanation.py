"""Explain an emission. Pure: facts in, explanation out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.state.delta_log.positions import Position

Row = Mapping[str, Any]
Verdict = Literal["equal", "different", "unknown"]

PASSED_ON = "a record was read, and the steps passed it on"
"""The rule behind an emission without a cause, of a pipeline without a step that gives one."""


class Recomputed(NamedTuple):
    """The emissions of a batch in a partition, recomputed in their order; None with the reason if it cannot be done."""

    rows: pa.Table | None
    why: str = ""


class TableRead(NamedTuple):
    """A table that the batch read: its version then, and the newest one."""

    name: str
    version: int
    newest: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What an explanation follows from.

    `row`: the emission in the log. `before`, `meta`: the metadata before and after its batch. `held`: the row that was
    held in its place before the batch, if any. `again`: the batch recomputed with the tables as they were read;
    `newer`: with the newest versions of these, None if there is none. `input_offset`: the offset in the input of the
    record that the row shows.
    """

    row: Row
    position: Position
    before: BatchMeta
    meta: BatchMeta
    held: Row | None
    causes: Mapping[str, str]
    again: Recomputed
    newer: Recomputed | None = None
    tables: Sequence[TableRead] = ()
    input_offset: int


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why an emission is in the log.

    `rule`: what its cause means. `source_batch`: the batch that read its record, None if the log no longer says.
    `stream_time`: before and after the batch, ms. `settings`: the configuration in effect. `verdict`: whether the
    recomputed emission equals the one in the log, byte for byte; `why`: the columns that differ, or why it is unknown.
    `newer`: the emissions of the same record with the newest versions of its tables, None if nothing newer was
    read; `newer_why`: why they are unknown.
    """

    position: Position
    row: Row
    rule: str
    action: str
    clock_ms: int
    stream_time: tuple[int, int]
    settings: Mapping[str, Any]
    source_offset: int
    source_batch: int | None
    held: Row | None
    tables: Sequence[TableRead]
    verdict: Verdict
    why: str
    newer: Sequence[Row] | None
    newer_why: str


def explanation_of(facts: Facts) -> Explanation:
    """Return the explanation that follows from the facts."""
    partition = facts.position.partition
    verdict, why = _verdict(facts.row, facts.again, facts.position.seq)
    newer, newer_why = _newer(facts)
    return Explanation(
        position=facts.position,
        row=facts.row,
        rule=facts.causes.get(facts.row["cause"] or "", PASSED_ON),
        action=facts.meta.action,
        clock_ms=facts.meta.clock,
        stream_time=(facts.before.partitions[partition].stream_time, facts.meta.partitions[partition].stream_time),
        settings=facts.meta.settings,
        source_offset=facts.input_offset,
        source_batch=_source_batch(facts),
        held=facts.held,
        tables=facts.tables,
        verdict=verdict,
        why=why,
        newer=newer,
        newer_why=newer_why,
    )


def _verdict(logged: Row, again: Recomputed, seq: int) -> tuple[Verdict, str]:
    if again.rows is None:
        return "unknown", again.why
    if seq >= len(again.rows):
        return "different", f"only {len(again.rows)} emissions were recomputed"
    [computed] = again.rows.slice(seq, 1).to_pylist()
    wrong = [name for name, value in computed.items() if logged[name] != value]
    return ("different", ", ".join(wrong)) if wrong else ("equal", "")


def _source_batch(facts: Facts) -> int | None:
    """Return the batch that read the record at `input_offset`: this one, or that of what was held."""
    partition = facts.position.partition
    first, end = (meta.partitions[partition].position for meta in (facts.before, facts.meta))
    if first <= facts.input_offset < end:
        return facts.position.batch
    is_held = facts.held is not None and facts.held["offset"] == facts.row["offset"]
    return facts.held["batch"] if is_held and facts.held is not None else None


def _newer(facts: Facts) -> tuple[list[Row] | None, str]:
    if facts.newer is None:
        return None, ""
    if facts.newer.rows is None:
        return None, facts.newer.why
    rows: list[Row] = facts.newer.rows.to_pylist()
    same = [
        name for name in ("step", "source", "key", "offset", "window_start") if name in facts.newer.rows.column_names
    ]
    return [row for row in rows if all(row[name] == facts.row[name] for name in same)], ""
