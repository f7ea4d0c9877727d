"""Recover a local state: bring it to the commit that the next batch starts from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.contracts.errors import StateError
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.operator import Operator, OperatorState
from tidegate.state.delta_log.data_files import DataFile, read_files
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.port import Lake
from tidegate.state.local.local_state import LocalState
from tidegate.state.protocol_decisions import NO_COMMIT, RecoveryMethod, RecoveryPlan, Wanted, choose_state
from tidegate.state.slots import columns_of, last_rows

_COLUMNS = ("op", "key", "value", "headers", "timestamp", "offset")
"""The columns of a state row, beside those that identify its slot and the operator's own."""


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """A recovered state, how it was recovered, and the number of rows applied for that."""

    state: OperatorState
    plan: RecoveryPlan
    rows: int


@dataclass(frozen=True, kw_only=True)
class PartitionLog:
    """One partition of a log, from which its state is recovered.

    `version`: the log's version at the wanted commit or later. `stream_time`: the partition's, in the log. `tail`: the
    state files that the commits of the lineage added, if they are known; these files may be gone.
    """

    log: Lake
    version: int
    partition: int
    stream_time: int
    tail: Sequence[DataFile] | None = None

    @property
    def lacks_files(self) -> bool:
        """Return whether a file of the tail is gone."""
        return self.tail is not None and any(self.log.etag(file.path) is None for file in self.tail)


def recover(local: LocalState, operator: Operator, wanted: Wanted, source: PartitionLog) -> Recovered:
    """Bring the local state to the partition's `last` commit and write that to its header; return the state.

    The state is used as it is, undone, caught up or rebuilt. It is changed only after the rows to undo or to catch up
    have been read, so that a failing lake never costs a local state.
    """
    layout = operator.layout
    plan = choose_recovery(local, operator, wanted, source.stream_time)
    if plan.method is RecoveryMethod.GO_ON:
        return Recovered(state=_opened(local, operator, wanted), plan=plan, rows=0)
    # rule: replica-vacuumed
    if plan.method is RecoveryMethod.CATCH_UP and source.lacks_files:
        plan = RecoveryPlan(RecoveryMethod.REBUILD, "files that it would be caught up from were vacuumed")
    undo = local.undo() if plan.method is RecoveryMethod.UNDO else None
    # rule: undo-readable/recovery
    if plan.method is RecoveryMethod.UNDO and undo is None:
        plan = RecoveryPlan(RecoveryMethod.REBUILD, "the rows that would undo a failed attempt are damaged")
    # rule: log-read-first
    tables = _rows_to_apply(operator, local.table_id, plan, wanted, source)
    if undo is not None:
        # rule: undo-failed-attempt/applied
        tables = (undo, *tables)
    local.begin(wanted.epoch, *(wanted.last or NO_COMMIT))
    state = operator.open(local.rebuild(layout) if plan.method is RecoveryMethod.REBUILD else local.storage(layout))
    rows = _restore(state, tables, source.stream_time)
    local.complete()
    return Recovered(state=state, plan=plan, rows=rows)


def _opened(local: LocalState, operator: Operator, wanted: Wanted) -> OperatorState:
    """Open the state as it is.

    For a driver of a new epoch this is done as a change (`begin`, `complete`), because it may open the state under a
    new configuration, which changes arrays.
    """
    header = local.header
    # rule: check-once/new-epoch
    if header is None or header.epoch == wanted.epoch:
        return operator.open(local.storage(operator.layout))
    # rule: dirty-while-opening
    local.begin(wanted.epoch, header.batch, header.attempt)
    state = operator.open(local.storage(operator.layout))
    local.complete()
    return state


def choose_recovery(local: LocalState, operator: Operator, wanted: Wanted, stream_time: int) -> RecoveryPlan:
    """Return how to recover the local state, by its header; rebuild it if its arrays are damaged."""
    plan = choose_state(local.header, wanted, local.machine.boot_id(), (operator.layout.kind, operator.layout.version))
    if plan.method is not RecoveryMethod.REBUILD and (
        damage := _damage(local, operator, wanted, stream_time, plan.method)
    ):
        return RecoveryPlan(RecoveryMethod.REBUILD, f"the local state is damaged: {damage}")
    return plan


def _damage(
    local: LocalState, operator: Operator, wanted: Wanted, stream_time: int, method: RecoveryMethod
) -> str | None:
    """Return what is wrong with the arrays; None if nothing is.

    Every task checks the sizes of the files; the first task after a reboot checks the contents as well. A state whose
    header was written since the machine booted is trusted, because pages that no process writes to do not change.
    """
    # rule: files-complete
    if not local.fits(operator.layout):
        return "a file is missing or cut short"
    # rule: check-once/same-boot
    if local.header is None or local.header.boot_id == local.machine.boot_id():
        return None
    storage = local.storage(operator.layout)
    # rule: check-after-reboot/seed
    if not local.has_its_seed(storage):
        return "its seed is not the log's"
    # rule: check-after-reboot/state
    if damage := operator.damage(storage):
        return damage
    if method is RecoveryMethod.GO_ON and operator.open(storage).stream_time != stream_time:
        return "its stream time is not the log's"
    return None


def _rows_to_apply(
    operator: Operator, table_id: str, plan: RecoveryPlan, wanted: Wanted, source: PartitionLog
) -> Iterable[pa.Table]:
    """Return the state rows of the batches after the local state's batch. Undo rows are applied before them.

    To undo or catch up, all rows are read here, before the state is changed. For a rebuild they are read while they are
    applied, a few files at a time.
    """
    partition = source.partition
    # rule: replica-deletes
    if plan.method is RecoveryMethod.CATCH_UP and source.tail is not None:
        files = [file for file in source.tail if file.max_batch > plan.after_batch]
        return [last_rows(read_files(source.log, files, log_schema(operator.columns)), operator.slot)]
    if plan.method is RecoveryMethod.UNDO and plan.after_batch == (wanted.last or NO_COMMIT)[0]:
        return []
    log = LogVersion.at(source.log, source.version)
    # rule: same-table
    _refuse_another(log, table_id)
    if plan.method in (RecoveryMethod.UNDO, RecoveryMethod.CATCH_UP):
        # rule: catch-up-with-deletes
        return [last_rows(log.read("state", partition, plan.after_batch), operator.slot)]
    columns = list(
        dict.fromkeys([*_COLUMNS, *columns_of(operator.slot), *(column.name for column in operator.columns)])
    )
    turns = list(_turns(log.data_files("state", partition))) or [[]]
    return (read_files(log.lake, files, log.schema, columns) for files in turns)


def _refuse_another(log: LogVersion, table_id: str) -> None:
    if log.table_id != table_id:
        raise StateError(
            "the operator log is not the log that the driver of its reader has read",
            value=f"table id {log.table_id}, was {table_id}, in {log.place}",
            remedy="start the operator again: its error says how to continue with a re-created log",
        )


def _turns(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the files in groups by batch: files in one group have overlapping batches and must be sorted together.

    A file that begins with the last batch of a group starts a new group, as a batch has at most one row per slot.
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
    """Apply the tables to the state, set its stream time, and return the number of rows."""
    rows = 0
    for table in tables:
        state.restore(table, stream_time)
        rows += table.num_rows
    return rows
