"""Read from a log, and from the input, what the explanation of an emission needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.batch_metadata import BatchMeta, Pin
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.operators.registry import kind_of, operator_for
from tidegate.runtime.configuration.application import Application, config_of
from tidegate.runtime.doctor.change_preview import committed_state
from tidegate.runtime.doctor.explanation.explanation import (
    Explanation,
    Facts,
    Recomputed,
    Row,
    TableRead,
    explanation_of,
)
from tidegate.runtime.doctor.explanation.recomputation import Input, emissions_of, results_of, with_tables
from tidegate.state.delta_log.data_files import read_files
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.positions import Position
from tidegate.state.earlier_batches import log_after, metas_of
from tidegate.state.lake.opening import open_lake
from tidegate.state.raised_offsets import input_offsets
from tidegate.state.slots import live_rows
from tidegate.state.upkeep.batch_history import overlapping

INTEGER_BYTES: Mapping[ShownAs, int] = {"int16": 2, "int32": 4, "int64": 8}
"""Bytes of the keys that are numbers, by their type."""

NOT_OF_AN_EMISSION = ("kind", "op")
"""Columns of the log that say nothing about an emission."""


def key_of(text: str, config: OperatorConfig) -> bytes:
    """Return the key that a person has written: 0x and hexadecimal digits, a number where keys are numbers, or text."""
    size = INTEGER_BYTES.get(config.key_format)
    try:
        if text.startswith("0x"):
            return bytes.fromhex(text[2:])
        return text.encode() if size is None else int(text).to_bytes(size, "big", signed=True)
    except (ValueError, OverflowError):
        raise UserError(
            "the operator can have no such key", value=text, remedy="write it as its page shows it"
        ) from None


def newest_emissions(application: Application, name: str, key: bytes, batch: int | None) -> list[Position]:
    """Return the positions of the key's emissions in the newest batch that has some, as of `batch` (None: now).

    Raise UserError if there are none, or if the log does not reach back to the batch.
    """
    log = log_after(open_lake(application.lake / name), batch)
    for group in reversed(overlapping(log.data_files("emission"))):
        rows = read_files(log.lake, group, log.schema, [*Position._fields, "key"])
        rows = rows.filter(pc.equal(rows["key"], pa.scalar(key, pa.binary())))
        if len(rows):
            newest = rows.filter(pc.equal(rows["batch"], pc.max(rows["batch"]))).select(Position._fields)
            return sorted(Position(**row) for row in newest.to_pylist())
    remedy = "see what is held, late and rejected: tidegate console or tidegate sql"
    raise UserError("the log has no emission of that key", value=key.decode(errors="backslashreplace"), remedy=remedy)


def explain(application: Application, name: str, position: Position, read: Input) -> Explanation:
    """Return the explanation of an emission. What the log or the input no longer has is unknown in it.

    `read`: the operator's input. Raise UserError if there is no such emission.
    """
    log = log_after(open_lake(application.lake / name), None)
    row = _emission(log, position)
    before, meta = _metadata(log, position.batch)
    then = config_of(meta.settings) if meta.settings else application.operators[name]
    batch = _Batch(application, name, then, before, meta, position.partition, read)
    newest = {table: _newest_pin(application, table) for table in meta.inputs}
    is_newer = any(newest[table].version > pin.version for table, pin in meta.inputs.items())
    rules = _rules(then, row)
    return explanation_of(
        Facts(
            row=row,
            position=position,
            before=before,
            meta=meta,
            held=batch.held_for(row, rules),
            causes=_causes(then, rules),
            again=batch.recomputed(meta.inputs),
            newer=batch.recomputed(newest) if is_newer else None,
            tables=[TableRead(table, pin.version, newest[table].version) for table, pin in meta.inputs.items()],
            input_offset=_input_offset(meta, position.partition, row),
        )
    )


class _Batch:
    """What a batch did in a partition, and the state before it."""

    def __init__(
        self,
        application: Application,
        name: str,
        config: OperatorConfig,
        before: BatchMeta,
        meta: BatchMeta,
        partition: int,
        read: Input,
    ) -> None:
        self._application, self._name, self._config = application, name, config
        self._before, self._meta, self._partition, self._read = before, meta, partition, read

    def recomputed(self, pins: Mapping[str, Pin]) -> Recomputed:
        """Return the emissions recomputed with the tables at these versions."""
        try:
            state = committed_state(self._log(), self._before, self._partition, self._config)
            with_tables(state, self._application, pins, self._meta, self._partition)
            return Recomputed(emissions_of(results_of(state, self._before, self._meta, self._partition, self._read)))
        except TidegateError as error:
            return Recomputed(None, " ".join(str(error).split()))

    def held_for(self, row: Row, rules: OperatorRules | None) -> Row | None:
        """Return what was held in the emission's place before the batch; None if nothing was or it is not known."""
        if rules is None:
            return None
        slot = operator_for(rules).slot
        assert isinstance(slot, tuple), "a step is no pipeline"
        try:
            rows = self._log().read("state", self._partition)
        except TidegateError:
            return None
        known = [(name, row[name]) for name in ("step", *slot) if row.get(name) is not None]
        rows = reduce(lambda left, column: left.filter(pc.equal(left[column[0]], column[1])), known, rows)
        held = kind_of(rules.kind).held(live_rows(rows, slot), rules)
        found: list[Row] = held.select(rows.column_names).to_pylist()
        return found[0] if len(found) == 1 else None

    def _log(self) -> LogVersion:
        return log_after(open_lake(self._application.lake / self._name), self._before.batch)


def _emission(log: LogVersion, position: Position) -> Row:
    rows = log.read("emission", position.partition, position.batch - 1, up_to=position.batch)
    found = rows.filter(pc.equal(rows["seq"], position.seq)).drop_columns(NOT_OF_AN_EMISSION).to_pylist()
    if not found:
        remedy = "`keep_output` says for how long the log keeps emissions"
        raise UserError("the log has no emission there", value=str(position), remedy=remedy)
    row: Row = found[0]
    return row


def _metadata(log: LogVersion, batch: int) -> tuple[BatchMeta, BatchMeta]:
    """Return the metadata before and after the batch."""
    found = metas_of(log, range(batch - 1, batch + 1))
    if [meta.batch for meta in found] != [batch - 1, batch]:
        raise UserError("the log no longer has the metadata of that batch", value=batch, remedy="name a later batch")
    return found[0], found[1]


def _rules(config: OperatorConfig, row: Row) -> OperatorRules | None:
    """Return the rules of the step that emitted the row; None for a step that holds nothing."""
    steps = config.operators
    return config if row.get("step") is None and not steps else steps.get(row.get("step") or "")


def _causes(config: OperatorConfig, rules: OperatorRules | None) -> Mapping[str, str]:
    """Return what the causes mean. Behind an operator, the steps that hold nothing pass its cause on."""
    known = [rules] if rules is not None else [config, *config.operators.values()]
    return {cause: rule for each in known for cause, rule in kind_of(each.kind).causes.items()}


def _newest_pin(application: Application, table: str) -> Pin:
    log = log_after(open_lake(application.lake / table), None)
    return Pin(log.version, log.table_id)


def _input_offset(meta: BatchMeta, partition: int, row: Row) -> int:
    """Return the offset in the input of the record that the row shows, or that caused it in a pipeline."""
    offset = row["offset"] if row.get("source") is None else row["source"]
    return int(input_offsets(meta.partitions[partition].raised, np.array([offset], np.int64))[0])
