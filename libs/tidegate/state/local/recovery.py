"""How a task comes to the state that its batch starts from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidegate.contracts.errors import StateError
from tidegate.contracts.operator import Operator, OperatorState
from tidegate.contracts.schema import log_schema
from tidegate.state.decisions import NO_COMMIT, StateUse, Wanted, Way, choose_state
from tidegate.state.delta_log.data_files import DataFile, read_files
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.local.local_state import LocalState, boot_id
from tidegate.state.slots import last_rows

_COLUMNS = ("op", "key", "value", "headers", "timestamp", "offset")
"""What a slot's row says, beside what identifies it and the operator's own columns."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """The state, the way it came about, and how many rows of the log that took."""

    state: OperatorState
    use: StateUse
    rows: int

    @property
    def told(self) -> str:
        """The way and the reason, for people."""
        return f"{self.use.way.value}: {self.use.reason}"


def recover(
    local: LocalState,
    operator: Operator,
    log: Path,
    version: int,
    wanted: Wanted,
    partition: int,
    stream_time: int,
    tail: Sequence[DataFile] | None = None,
) -> Recovered:
    """The state equals the partition's `last` commit, and the header says so: as it was, undone, caught up, or rebuilt.

    `version` is the log's at that commit or later, `stream_time` the T that the log has for the partition. A
    state that is caught up is not touched before the log has been read: a lake that fails costs no local state.
    `tail`: the state files that the commits of the lineage added, where they are known; they may be gone.
    """
    layout = operator.layout
    use = way_back(local, operator, wanted, stream_time)
    if use.way is Way.GO_ON:
        return Recovered(state=_opened(local, operator, wanted), use=use, rows=0)
    if use.way is Way.CATCH_UP and tail is not None and not all((log / file.path).exists() for file in tail):
        use = StateUse(Way.REBUILD, "files that it would be caught up from were vacuumed")
    undo = local.undo() if use.way is Way.UNDO else None
    if use.way is Way.UNDO and undo is None:
        use = StateUse(Way.REBUILD, "the rows that would undo a failed attempt are damaged")
    tables = _rows_to_apply(operator, log, version, local.table_id, partition, use, wanted, tail)
    if undo is not None:
        tables = (undo, *tables)
    local.begin(wanted.epoch, *(wanted.last or NO_COMMIT))
    state = operator.open(local.rebuild(layout) if use.way is Way.REBUILD else local.storage(layout))
    rows = _restore(state, tables, stream_time)
    local.complete()
    return Recovered(state=state, use=use, rows=rows)


def _opened(local: LocalState, operator: Operator, wanted: Wanted) -> OperatorState:
    """The state that is gone on with. A new driver may open it under a new configuration, which changes arrays."""
    header = local.header
    if header is None or header.epoch == wanted.epoch:
        return operator.open(local.storage(operator.layout))
    local.begin(wanted.epoch, header.batch, header.attempt)
    state = operator.open(local.storage(operator.layout))
    local.complete()
    return state


def way_back(local: LocalState, operator: Operator, wanted: Wanted, stream_time: int) -> StateUse:
    """Return what the header says the state is good for, unless the arrays are damaged."""
    use = choose_state(local.header, wanted, boot_id(), (operator.layout.kind, operator.layout.version))
    if use.way is not Way.REBUILD and (damage := _damage(local, operator, wanted, stream_time, use.way)):
        return StateUse(Way.REBUILD, f"the local state is damaged: {damage}")
    return use


def _damage(local: LocalState, operator: Operator, wanted: Wanted, stream_time: int, way: Way) -> str | None:
    """What is wrong with the arrays: their sizes are looked at by every task, all of them by the first after a reboot.

    What was complete in this run of the machine is trusted: pages that no process writes to stay as they are.
    """
    if not local.fits(operator.layout):
        return "a file is missing or cut short"
    if local.header is None or local.header.boot_id == boot_id():
        return None
    storage = local.storage(operator.layout)
    if not local.has_its_seed(storage):
        return "its seed is not the log's"
    if damage := operator.damage(storage):
        return damage
    if way is Way.GO_ON and operator.open(storage).stream_time != stream_time:
        return "its stream time is not the log's"
    return None


def _rows_to_apply(
    operator: Operator,
    path: Path,
    version: int,
    table_id: str,
    partition: int,
    use: StateUse,
    wanted: Wanted,
    tail: Sequence[DataFile] | None,
) -> Iterable[pa.Table]:
    """The state rows above the batch that the state has: read at once for a state that is worth something.

    For a rebuild they are read as they are applied, a few files at a time.
    """
    if use.way is Way.CATCH_UP and tail is not None:
        files = [file for file in tail if file.max_batch > use.after_batch]
        return [last_rows(read_files(path, files, log_schema(operator.columns)), operator.slot)]
    if use.way is Way.UNDO and use.after_batch == (wanted.last or NO_COMMIT)[0]:
        return []
    log = OperatorLog.at(path, version)
    _refuse_another(log, table_id)
    if use.way in (Way.UNDO, Way.CATCH_UP):
        return [last_rows(log.read("state", partition, use.after_batch), operator.slot)]
    columns = list(dict.fromkeys([*_COLUMNS, *operator.slot, *(column.name for column in operator.columns)]))
    turns = list(_turns(log.data_files("state", partition))) or [[]]
    return (read_files(log.path, files, log.schema, columns) for files in turns)


def _refuse_another(log: OperatorLog, table_id: str) -> None:
    if log.table_id != table_id:
        raise StateError(
            "the operator log is another one than its reader's driver saw",
            value=f"table id {log.table_id}, was {table_id}, in {log.path}",
            remedy="start the operator again: it says what to do about a log that was begun anew",
        )


def _turns(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """The files, those together that must be sorted together, in the order of their batches.

    A batch has one row of a slot at the most, so files that share a first and a last batch alone may come in turn.
    """
    together: list[DataFile] = []
    for file in files:
        if together and file.min_batch >= max(other.max_batch for other in together):
            yield together
            together = []
        together.append(file)
    if together:
        yield together


def _restore(state: OperatorState, tables: Iterable[pa.Table], stream_time: int) -> int:
    """The tables are applied, and T is `stream_time`; gives the number of their rows."""
    rows = 0
    for table in tables:
        state.restore(table, stream_time)
        rows += table.num_rows
    return rows
