"""The configuration of the stream-table join (KIP-923)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field, ValidationInfo, field_validator

from tidegate.contracts.config.key_rules import (
    AddedWindows,
    InputWindowsInOutput,
    KeyRules,
    added_windows,
    output_windows_of,
)
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration, TableFacts
from tidegate.contracts.config.option_types import Duration, FunctionName
from tidegate.contracts.config.rules import OperatorRules, TableRead
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP, format_duration_ms
from tidegate.contracts.values import Values


class StreamTableJoinRules(KeyRules):
    """The rules of a join of each record of a stream with the version of a table that was valid at its timestamp."""

    live: ClassVar[frozenset[str]] = frozenset(
        {"join", "grace", "wait_for_table", "before_history", "joiner", "windows"}
    )

    kind: Literal["stream_table_join"] = "stream_table_join"
    """Kind of operator."""
    table: str
    """Name of the operator of kind table_history whose table is read."""
    join: Literal["inner", "left"]
    """Records without a matching version: `inner` drops them, `left` emits them with a null table value."""
    grace: Duration | None = None
    """How long, in stream time, a record waits for the table's version; omitted or 0: records do not wait."""
    wait_for_table: Duration | None = Field(default=None, validate_default=True)
    """How long after its arrival, by the wall clock, a record may wait for a table that is behind; omitted: until the
    table has caught up."""
    before_history: Literal["stop", "join"] = "stop"
    """What to do if the stream is at a time before the table's history: `stop`, or `join` with the versions that are
    still kept."""
    joiner: FunctionName | None = None
    """`module:function` that computes the output values; omitted: they are `{"stream": ..., "table": ...}`."""

    @field_validator("wait_for_table")
    @classmethod
    def _wait_for_table_fits_grace(cls, wait: int | None, info: ValidationInfo) -> int | None:
        if wait is not None and "grace" in info.data and not info.data["grace"]:
            raise InvalidValue("without a grace no record waits", "add a grace, such as grace: 5m")
        return wait

    def results(self, values: Values, emits: pa.Schema | None) -> Values:
        """Return what the joiner emits; without a joiner, objects of the stream's value and the table's.

        If the fields of both are known, expressions see those of the stream, and the table's value by the table's name.
        """
        if self.joiner is not None:
            return Values.of_bytes() if emits is None else Values.of_fields(emits)
        known = values.has_fields or values.form == "joined"
        if known and emits is not None and self.table not in values.schema.names:
            return Values("joined", values.schema.append(pa.field(self.table, pa.struct(emits))))
        stream = pa.struct(values.schema) if values.form == "object" else pa.large_string()
        table = pa.large_string() if emits is None else pa.struct(emits)
        return Values.of_fields(pa.schema({"stream": stream, "table": table}))

    def reads_json(self) -> bool:
        """Return whether values become parts of objects: a joiner gets their bytes."""
        return self.joiner is None

    def hold(self, length: int | None) -> int:
        """Return the grace. A mark is never past the oldest record held either, which may wait longer for the table."""
        return self.grace or 0

    def incompatibilities(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Return why records held under `before` cannot be held under this: windowed and plain keys cannot be mixed."""
        assert isinstance(before, StreamTableJoinRules)
        return self.key_kind_conflict(before)

    def reads(self) -> tuple[TableRead, ...]:
        """Return the table that the join reads, with the grace and the wait."""
        return (TableRead(self.table, self.grace or 0, self.wait_for_table),)


class StreamTableJoinConfig(StreamTableJoinRules, OperatorConfig):
    """The configuration of a stream-table join between topics."""

    output_windows: InputWindowsInOutput = "headers"
    """How output records name their windows: in `headers`, or with `kafka` in the key, in Kafka's format."""

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the records of the output; None: they have none, or name them already."""
        return added_windows(self, self.output_windows)

    def writes(self) -> OutputDeclaration:
        """Return what is known of the records in the output topic.

        Without windowed keys nothing is known of windows: the records may still name some.
        """
        windows = output_windows_of(self, self.output_windows) if self.windowed else None
        return OutputDeclaration(windows=windows, key_format=self.explicit_key_format)

    def table_conflicts(self, table: TableFacts, step: str | None = None) -> Iterator[InvalidValue]:
        """Yield each reason why the join cannot read such a table.

        KIP-923: a grace needs a history whose retention is longer than the grace. Kafka Streams accepts an equal one.
        """
        if table.windowed and not self.windowed:
            yield InvalidValue(
                "the table's keys have windows, and the stream's have none",
                "write windows: headers, session or {time: 1h}",
            )
        if self.windowed and not table.windowed:
            yield InvalidValue(
                "the table's keys have no windows, and the stream's have", "write windows: ignore to look up plain keys"
            )
        if None not in (table.key_format, self.explicit_key_format) and table.key_format != self.explicit_key_format:
            cause = f"the table's key_format is {table.key_format} and the stream's is {self.key_format}"
            yield InvalidValue(cause, "give the table and the stream the same format of keys")
        if self.grace is not None:
            yield from self._grace_refuses(self.grace, table.history_retention)

    @staticmethod
    def _grace_refuses(grace: int, kept: int | None) -> Iterator[InvalidValue]:
        waits = format_duration_ms(grace)
        if kept is None:
            yield InvalidValue(
                f"grace {waits} needs earlier versions, which a table of latest values does not keep",
                "remove grace, or give the table a history_retention greater than it",
            )
        elif kept <= grace:
            yield InvalidValue(
                f"the table's history_retention {format_duration_ms(kept)} is not greater than grace {waits}, so "
                "versions would be dropped before they are looked up",
                "raise the table's history_retention or lower grace",
            )

    def functions(self) -> tuple[str, ...]:
        """Return the name of the joiner, if there is one."""
        return () if self.joiner is None else (self.joiner,)
