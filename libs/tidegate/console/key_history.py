"""What a log has about one key, as a time line: what was held, from batch to batch, and what was emitted or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.console.rows import refuse_too_much
from tidegate.contracts.config.rules import OperatorRules
from tidegate.operators.registry import operator_for
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.delta_log.log_version import LogVersion

MOST_EVENTS = 60
"""Most events on a time line: the newest ones are shown."""

LANES = {"state": "held", "emission": "emitted", "late": "late", "rejected": "rejected"}
"""Lanes of the time line from the top down, by the kinds of rows that are on them."""

WIDTH, LEFT, LANE_HEIGHT = 900, 90, 44


class KeyQuery(NamedTuple):
    """A key, of a step in a pipeline, in a partition (None: in all), as of a batch (None: now)."""

    key: bytes
    step: str | None
    partition: int | None
    batch: int | None


class Event(NamedTuple):
    """Something that happened to the key in a batch.

    `what`: held, replaced, released, emitted, late or rejected. `until`: for what was held, the batch in which
    that ended; None if it still is.
    """

    batch: int
    partition: int
    seq: int
    lane: str
    what: str
    cause: str | None
    timestamp: int | None
    offset: int | None
    until: int | None = None


def waiting(events: Sequence[Event]) -> set[int]:
    """Return the partitions in which the key is held."""
    return {event.partition for event in events if event.lane == "held" and event.until is None}


class Mark(NamedTuple):
    """An event as it is drawn: where, how far to the right it lasts, and what it says."""

    lane: str
    x: float
    y: float
    end: float
    says: str


@dataclass(frozen=True)
class TimeLine:
    """A drawing of events: marks, lanes with their heights, and batches with their places."""

    marks: Sequence[Mark]
    lanes: Sequence[tuple[str, float]]
    batches: Sequence[tuple[int, float]]
    width: int
    height: int


def events_of(log: LogVersion, rules: OperatorRules, query: KeyQuery) -> list[Event]:
    """Return the newest events of the key, oldest first. Raise UserError if there is too much to look through.

    What the log no longer has, as after a compaction, is no event.
    """
    files: list[DataFile] = [file for kind in LANES for file in log.data_files(kind, query.partition)]
    refuse_too_much(files)
    rows = {kind: _rows(log, kind, query) for kind in LANES}
    slot = operator_for(rules).slot
    assert isinstance(slot, tuple), "a pipeline's keys are shown by step"
    found = [*_held(rows.pop("state"), slot)]
    for kind, table in rows.items():
        found += [_output(LANES[kind], row) for row in table.to_pylist()]
    return sorted(found, key=lambda event: event[:3])[-MOST_EVENTS:]


def _rows(log: LogVersion, kind: str, query: KeyQuery) -> pa.Table:
    """Return the rows of the key. Only its batches are read, which a first look at the column of keys finds."""
    columns = [name for name in log.schema.names if name not in ("value", "headers")]
    there = pc.min_max(log.read(kind, query.partition, columns=["batch"], keys=[query.key])["batch"]).as_py()
    first, last = (0, -1) if there["min"] is None else (there["min"], there["max"])
    rows = log.read(kind, query.partition, first - 1, columns, up_to=last, keys=[query.key])
    return rows if query.step is None or kind != "state" else rows.filter(pc.equal(rows["step"], query.step))


def _held(rows: pa.Table, slot: Sequence[str]) -> Iterator[Event]:
    """Yield an event for each row that was held; it lasts until the next row of its slot."""
    following: dict[tuple[object, ...], tuple[int, str]] = {}
    events = []
    for row in reversed(rows.to_pylist()):
        place = (row["partition"], *(row[name] for name in slot))
        until, what = following.get(place, (None, "held"))
        if row["op"] == "put":
            at = row["batch"], row["partition"], row["seq"]
            events.append(Event(*at, "held", what, None, row["timestamp"], row["offset"], until))
        following[place] = row["batch"], "replaced" if row["op"] == "put" else "released"
    yield from reversed(events)


def _output(lane: str, row: dict[str, Any]) -> Event:
    at = row["batch"], row["partition"], row["seq"]
    return Event(*at, lane, lane, row["cause"], row["timestamp"], row["offset"])


def time_line(events: Sequence[Event], last: int) -> TimeLine:
    """Return the drawing of the events, as of batch `last`. Batches in which nothing happened take no room."""
    known = sorted({batch for event in events for batch in (event.batch, event.until) if batch is not None} | {last})
    step = (WIDTH - LEFT - 40) / max(1, len(known) - 1)
    places = {batch: LEFT + 10 + at * step for at, batch in enumerate(known)}
    lanes = {lane: LANE_HEIGHT * (at + 0.5) for at, lane in enumerate(LANES.values())}
    marks = [
        Mark(event.lane, places[event.batch], lanes[event.lane], places[_end(event, last)], _says(event))
        for event in events
    ]
    every = 1 + len(known) // 12  # so that the numbers of batches have room
    batches = list(places.items())[::every]
    return TimeLine(marks, list(lanes.items()), batches, WIDTH, LANE_HEIGHT * len(lanes) + 30)


def _end(event: Event, last: int) -> int:
    if event.lane != "held":
        return event.batch
    return last if event.until is None else event.until


def _says(event: Event) -> str:
    cause = f" ({event.cause})" if event.cause else ""
    until = f" until batch {event.until}" if event.until is not None else ""
    return f"batch {event.batch}: {event.what}{cause}{until}, offset {event.offset}"
