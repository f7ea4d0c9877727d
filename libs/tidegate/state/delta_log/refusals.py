"""Why a log cannot be used, or a commit to it was refused."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import EngineError, Fenced, StateError
from tidegate.contracts.log_schema import FORMAT, READABLE_FORMATS, is_partitioned
from tidegate.state.delta_log.creation import FORMAT_KEY
from tidegate.state.delta_log.delta_snapshot import Snapshot
from tidegate.state.delta_log.log_entries import entry_place
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import Entry, Verdict

_PROTOCOL = (1, 2)
"""The highest reader and writer version of Delta's protocol that is supported."""


def refuse_foreign_changes(log: Lake, entries: Sequence[Entry]) -> None:
    """Raise StateError if another program changed data with one of the entries."""
    foreign = [entry.version for entry in entries if entry.foreign_change]
    if foreign:
        raise _foreign_change(log, foreign)


def _foreign_change(log: Lake, foreign: Sequence[int]) -> StateError:
    return StateError(
        "another program changed data in the operator log (a RESTORE, DELETE, UPDATE or append)",
        value=", ".join(str(entry_place(log, version)) for version in foreign),
        remedy="stop the operator, move those entries and all newer ones out of _delta_log, and start again; "
        "or begin a new log in another lake",
    )


def refuse_another(
    place: Place, snapshot: Snapshot, operator: str, found: pa.Schema, expected: pa.Schema, *, evolves: bool
) -> None:
    """Raise StateError if this program cannot read the log, or if it is another operator's.

    `found`, `expected`: the log's columns. With `evolves`, it is enough that no column of both has another type.
    """
    needed = (snapshot.protocol["minReaderVersion"], snapshot.protocol["minWriterVersion"])
    # rule: known-delta-protocol
    if needed[0] > _PROTOCOL[0] or needed[1] > _PROTOCOL[1]:
        remedy = "another program raised it (ALTER TABLE): move that entry and all newer ones out of _delta_log"
        raise StateError(
            "the operator log needs an unsupported Delta protocol", value=f"{needed} in {place}", remedy=remedy
        )
    # rule: known-format
    if (written := snapshot.metadata["configuration"].get(FORMAT_KEY)) not in map(str, READABLE_FORMATS):
        remedy = f"this program reads format {FORMAT}: use the release that wrote the log, or migrate it"
        raise StateError("the operator log has a different format", value=f"{written} in {place}", remedy=remedy)
    # rule: own-log
    if (name := snapshot.metadata["name"]) != operator:
        remedy = f"give {operator} a lake or a name of its own"
        raise StateError("the log belongs to another operator", value=f"{name} in {place}", remedy=remedy)
    if is_partitioned(int(written)):
        expected = pa.schema([field for field in expected if field.name != "step"])
    if not (_has_same_types(found, expected) if evolves else found.equals(expected)):
        different = sorted({field.name for field in set(found) ^ set(expected)})
        remedy = "an operator's kind and columns are fixed in its log: give the changed operator a new name"
        raise StateError("the operator log has different columns", value=f"{different} in {place}", remedy=remedy)


def is_pipeline(schema: pa.Schema) -> bool:
    """Return whether the log with these columns is a pipeline's."""
    return "source" in schema.names


def _has_same_types(found: pa.Schema, expected: pa.Schema) -> bool:
    """Return whether the log is a pipeline's, and no column of both has another type."""
    return is_pipeline(found) and all(found.field(f.name).equals(f) for f in expected if f.name in found.names)


def refusal(verdict: Verdict, log: Lake, meta: BatchMeta, above: Sequence[Entry]) -> Exception:
    """Return the error of a commit that the entries `above` it have refused."""
    shown = f"batch {meta.batch} of epoch {meta.epoch} in {log.place}"
    if verdict is Verdict.FENCED:
        remedy = "do nothing if you meant to start the other driver; otherwise stop that one"
        return Fenced("a newer driver has claimed the operator; this one stops", value=shown, remedy=remedy)
    foreign = [entry.version for entry in above if entry.foreign_change]
    if foreign:
        return _foreign_change(log, foreign)
    if verdict is Verdict.STOP:
        return StateError("two drivers of one epoch have committed to the same log", value=shown)
    return EngineError("another commit won the race; the driver starts over", value=shown)
