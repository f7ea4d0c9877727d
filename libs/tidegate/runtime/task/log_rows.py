"""The rows of an operator log as users read them, in Arrow: its outputs, and its state as of a batch.

The SQL views show the same rows. These functions need no Spark session, so tasks of a data source can call them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import milliseconds_of
from tidegate.kernels.codecs.shown import shown
from tidegate.operators.registry import kind_of, operator_for
from tidegate.operators.table_history.views import refuse_latest_values, versions_in
from tidegate.operators.views import as_received, is_typed, window_names
from tidegate.runtime.configuration.application import rules_of
from tidegate.state.delta_log.data_files import ANY_BATCH, read_files
from tidegate.state.delta_log.log_entries import newest_version
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import log_after
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place, place_named
from tidegate.state.lake.port import Lake
from tidegate.state.slots import live_rows

OUTPUTS = {"emissions": "emission", "late": "late", "rejected": "rejected"}
"""The views of what an operator has put out, and the kinds of their rows."""
STATE, HISTORY = "state", "history"

_TIME = pa.timestamp("us", tz="UTC")
_LAST_MS = 2**63 // 1_000
_WITHOUT = {
    "emissions": {"kind", "op", "topic", "lateness", "bound"},
    "late": {"kind", "op"},
    "rejected": {"kind", "op"},
    STATE: {"kind", "op", "seq", "topic", "cause", "lateness", "bound"},
}
"""Columns of the log that a view leaves out."""


@dataclass(frozen=True, kw_only=True)
class LogRows:
    """The rows of one view of a log at one of its versions; `found` makes it.

    `view`: one of OUTPUTS, STATE or HISTORY. `rules`: those of the operator, or of the `step` of a pipeline if one is
    given. `partitions`: those that the log has. `up_to`: the newest batch of outputs. `as_of`: the time of the versions
    of a HISTORY, ms; None: all of them.
    """

    lake: Lake
    version: int
    view: str
    whole: OperatorRules
    rules: OperatorRules
    partitions: tuple[int, ...]
    step: str | None
    up_to: int
    as_of: int | None

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the rows: key and value in the operator's formats, `event_time` beside `timestamp`."""
        if self.view == HISTORY:
            return pa.schema([*self._own(["partition", "key", *self._windows, "value"]), *_VALID])
        fields = self._own([name for name in self._log().schema.names if name not in self._left_out])
        at = [field.name for field in fields].index("timestamp") + 1
        return pa.schema([*fields[:at], pa.field("event_time", _TIME), *fields[at:]])

    def read(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the partition. Outputs are read file by file; a state is in memory as a whole."""
        tables = self._outputs(partition) if self.view in OUTPUTS else iter([self._state(partition)])
        for table in tables:
            yield from self._shown(table).to_batches(max_chunksize=_ROWS)

    def _outputs(self, partition: int) -> Iterator[pa.Table]:
        log = self._log()
        for file in log.data_files(OUTPUTS[self.view], partition, up_to=self.up_to):
            yield self._of_step(read_files(log.lake, [file], log.schema, up_to=self.up_to))

    def _state(self, partition: int) -> pa.Table:
        rows = self._of_step(self._log().read("state", partition))
        if self.view == HISTORY:
            return versions_in(rows, self.rules, self.as_of)
        slot = operator_for(self.whole).slot
        if isinstance(slot, Mapping):  # rows of no step say where the steps stand
            slot = {step: names for step, names in slot.items() if step is not None}
        return live_rows(rows, slot)

    def _of_step(self, rows: pa.Table) -> pa.Table:
        return rows if self.step is None else rows.filter(pc.equal(rows["step"], self.step))

    def _shown(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the columns of the schema."""
        times = {"event_time": "timestamp", "valid_from": "timestamp", "valid_to": "next"}
        typed = {name: shown(form) for name, form in self._formats.items() if is_typed(form)}
        columns = [
            _as_time(rows[times[field.name]])
            if field.name in times
            else typed[field.name].column(rows[field.name])
            if field.name in typed
            else rows[field.name].cast(field.type, safe=False)
            for field in self.schema
        ]
        return pa.table(columns, self.schema)

    def _own(self, names: Sequence[str]) -> list[pa.Field]:
        formats, of_log = self._formats, self._log().schema
        return [_shown_as(of_log.field(name), formats.get(name, "bytes")) for name in names]

    @property
    def _formats(self) -> dict[str, ShownAs]:
        """Return the formats of keys and values. Rows that may have several values show those as bytes."""
        mixed = self.view in ("late", "rejected") or (self.view == STATE and self.rules.operators)
        rules = as_received(self.rules) if mixed else self.rules
        return {"key": rules.key_format, "value": rules.value_format}

    @property
    def _left_out(self) -> set[str]:
        return _WITHOUT[self.view] | (set() if self.whole.operators else {"step"})

    @property
    def _windows(self) -> tuple[str, ...]:
        return window_names(self.rules) if isinstance(self.rules, KeyRules) else ()

    def _log(self) -> LogVersion:
        return LogVersion.at(self.lake, self.version)


_ROWS = 65_536
"""Rows of a record batch at most."""
_VALID = (pa.field("valid_from", _TIME), pa.field("valid_to", _TIME))


def found(
    log: Place, *, view: str = "emissions", step: str | None = None, batch: int | None = None, as_of: int | None = None
) -> LogRows:
    """Return the rows of a view of the log, of one step, as of the batch.

    Raise UserError, which names what there is, if there is no such log, view, step or batch, and if an operator that is
    no table, or that keeps latest values alone, has no versions to read as of a time.
    """
    lake = open_lake(log)
    if newest_version(lake) is None or (newest := LogVersion.at(lake, None).newest()) is None:
        raise UserError("there is no operator log", value=log, remedy="name the folder <lake>/<operator> of a log")
    whole = rules_of(newest.settings)
    rules = _rules_of_step(whole, step)
    _check_view(view, rules, as_of)
    at = LogVersion.at(lake, None).version
    if batch is not None and not 0 <= batch <= newest.batch:
        raise UserError("the log has no such batch", value=batch, remedy=f"its newest one is {newest.batch}")
    if batch is not None and view not in OUTPUTS:
        at = log_after(lake, batch).version
    return LogRows(
        lake=lake,
        version=at,
        view=view,
        whole=whole,
        rules=rules,
        partitions=tuple(sorted(newest.partitions)),
        step=step,
        up_to=ANY_BATCH if batch is None else batch,
        as_of=as_of,
    )


def read_log(
    log: str | Path,
    *,
    view: str = "emissions",
    step: str | None = None,
    batch: int | None = None,
    as_of: datetime | int | None = None,
    lake_options: Mapping[str, str] | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of an operator log in Arrow, which DuckDB and Polars read. No Spark, Java or file is needed.

    `log`: its folder, or its URL in an object store. `view`: `emissions`, `late`, `rejected`, `state`, or of a table
    `history`. `step`: of a pipeline. `batch`: as of which the rows are. `as_of`: of a history, what was valid at that
    time: ms, or a datetime, which is in UTC unless it says otherwise. Keys and values have the operator's formats:
    numbers, and records of Avro and Protobuf, are typed columns, and null where they cannot be read. `lake_options`:
    how to reach an object store, as in configurations.

    Raise UserError, which names what there is, if there is no such log, view, step, batch or option.
    """
    time = milliseconds_of(as_of) if isinstance(as_of, datetime) else as_of
    rows = found(place_named(log, lake_options), view=view, step=step, batch=batch, as_of=time)
    batches = (each for partition in rows.partitions for each in rows.read(partition))
    return pa.RecordBatchReader.from_batches(rows.schema, batches)


def _shown_as(field: pa.Field, form: ShownAs) -> pa.Field:
    if form == "bytes":
        return field
    return pa.field(field.name, shown(form).type if is_typed(form) else pa.string())


def _rules_of_step(whole: OperatorRules, step: str | None) -> OperatorRules:
    if step is None:
        return whole.shown()
    if step not in whole.operators:
        there_are = ", ".join(whole.operators) or "none: the operator is no pipeline"
        raise UserError("the operator has no such step with state", value=step, remedy=f"its steps are: {there_are}")
    return whole.shown(step)


def _check_view(view: str, rules: OperatorRules, as_of: int | None) -> None:
    is_table = kind_of(rules.kind).is_table
    views = [*OUTPUTS, STATE, *([HISTORY] if is_table else [])]
    if view not in views:
        tables = "" if is_table else "; only a table has a history"
        raise UserError("the operator has no such view", value=view, remedy=f"views: {', '.join(views)}{tables}")
    if as_of is not None and view != HISTORY:
        raise UserError("only a history has times", value=f"view {view}", remedy="read the view history of a table")
    if as_of is not None:
        refuse_latest_values(rules, as_of)


def _as_time(milliseconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times in ms as timestamps; one beyond the last timestamp is shown as that."""
    within = pc.min_element_wise(milliseconds.cast(pa.int64()), np.int64(_LAST_MS), skip_nulls=False)
    return pc.multiply(within, 1_000).cast(_TIME)
