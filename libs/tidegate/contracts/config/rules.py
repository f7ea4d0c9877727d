"""The options that decide an operator's results. Each operator's own type is in the operator's folder.

Grace and retention have no silent default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self

from pydantic import model_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.option_types import Duration, FieldName, FieldPath, ShownAs
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP, NO_STREAM_TIME

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.contracts.values import Values


class JsonField(Config):
    """A field of a JSON object, or of an object within it."""

    field: FieldName | None = None
    """Name of a top-level field."""
    path: FieldPath | None = None
    """Instead of `field`: the names that lead to a field within a field, separated by dots: `weather.gust`."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.field is None) == (self.path is None):
            raise InvalidValue(
                "it does not name one field", "write field: NAME, or path: NAME.NAME for a field within a field"
            )
        return self

    @classmethod
    def at(cls, text: str) -> Self:
        """Return the field of that name, or of that path if the text has dots."""
        return cls.model_validate({"path" if "." in text else "field": text})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that lead to the field, from the outermost object on."""
        return tuple(self.path.split(".")) if self.path is not None else (self.field or "",)


class TimestampField(JsonField):
    """The field of a JSON value that holds the event timestamp."""

    unit: Literal["ms", "s", "us"] = "ms"
    """Unit of the number in that field."""


class _Times(Protocol):
    """What is known of the times of a partition."""

    @property
    def stream_time(self) -> int: ...
    @property
    def reader_time(self) -> Mapping[str, int]: ...


class TableRead(NamedTuple):
    """How an operator reads a table.

    `table`: name of the operator whose table is read. `grace`: how long the reader holds records, ms. `wait`: maximum
    time that these records then wait for the table, ms; None: until the table has caught up. `step`: the step of a
    pipeline that reads the table; None: the operator is no pipeline. `has_own_time`: the step is not the first that
    holds state, whose stream time is that of the partition.
    """

    table: str
    grace: int
    wait: int | None
    step: str | None = None
    has_own_time: bool = False

    def time_of(self, partition: _Times) -> int:
        """Return the stream time with which the partition reads the table."""
        if not self.has_own_time:
            return partition.stream_time
        # rule: step-reads-with-own-time
        return partition.reader_time.get(self.table, NO_STREAM_TIME)

    def measure_of(self, measures: Mapping[str, int], name: str) -> int:
        """Return a measure of what reads the table; 0 if it has no such measure."""
        return measures.get(name if self.step is None else f"{self.step}.{name}", 0)


class PartChange(NamedTuple):
    """A part of an option that differs, with its values as they would be written (None: left out).

    `refused`: why the state does not allow the change; None: it is allowed. `note`: what then is worth knowing.
    """

    option: str
    before: Any = None
    after: Any = None
    refused: str | None = None
    note: str | None = None


Held = Callable[[str], int]
"""A function that says how much a part of an operator's state holds, by the part's name."""


def holds_nothing(part: str) -> int:
    """Return 0, of any part."""
    return 0


class OperatorRules(Config):
    """The options that decide an operator's results, wherever its records come from."""

    live: ClassVar[frozenset[str]] = frozenset()
    """Options of this kind that may change while the operator holds records, unless `incompatibilities` objects."""
    streams: ClassVar[int] = 1
    """The number of streams that an operator of this kind reads, tables aside."""

    kind: str
    """Kind of operator."""
    timestamp: TimestampField | None = None
    """Where the event timestamp is; default: it is the timestamp of the Kafka record."""
    key_format: ShownAs = "bytes"
    """Format in which views show keys."""
    value_format: ShownAs = "bytes"
    """Format in which views show values."""
    max_ahead: Duration | None = None
    """Records with a timestamp further than this ahead of the micro-batch's clock are rejected; default: no limit."""
    rewind_window: Duration = 7 * 86_400_000
    """How far back in time the log can be read as of an earlier version."""

    def shown(self, step: str | None = None) -> OperatorRules:
        """Return the rules with the formats in which views show its results, or what a step of it holds and emits."""
        return self

    def shown_formats(self) -> set[ShownAs]:
        """Return the formats of keys and values that its views need."""
        return {self.key_format, self.value_format}

    def closed_kept_for_ms(self) -> int | None:
        """Return how far behind stream time closed windows are still known, in ms; None if nothing depends on that."""
        return None

    def reads(self) -> tuple[TableRead, ...]:
        """Return how this operator reads each of the tables that it joins; none unless its kind says so."""
        return ()

    @property
    def operators(self) -> Mapping[str, OperatorRules]:
        """Return the rules of the steps that hold state, by name; of an operator that is no pipeline none."""
        return {}

    @property
    def step_names(self) -> Sequence[str]:
        """Return the names of all steps that have one; of an operator that is no pipeline none."""
        return ()

    def results(self, values: Values, emits: pa.Schema | None) -> Values:
        """Return what is known of the results' values if the input has these: the same, unless the kind makes others.

        `emits`: the fields that only its user knows: of what a function returns, or of a table's values.
        """
        return values

    def hold(self, length: int | None) -> int | None:
        """Return how far the time marks that the operator passes on stay behind its stream time, ms.

        `length`: that of the windows in the keys of its input; None: unknown. Return None if it passes no marks on, so
        that its results alone move time behind it: the default.
        """
        return None

    def incompatibilities(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Return, per live option, why state held under `before` cannot continue under this configuration.

        `before` is of the same kind. `known`: how far behind stream time closed windows are still known, in ms; this is
        less than `before.closed_kept_for_ms` if an even earlier configuration kept closed windows for a shorter time.
        """
        return {}

    def part_changes(
        self, before: OperatorRules, known: int = MAX_TIMESTAMP, held: Held = holds_nothing
    ) -> dict[str, list[PartChange]]:
        """Return the changes of options that are judged part by part, by option; the default is none.

        `before`, `known`: as for `incompatibilities`. `held`: how much a part of that name holds.
        """
        return {}

    def reads_json(self) -> bool:
        """Return whether the operator reads its input's values as JSON, whatever they are."""
        return False

    def unknown_fields(self, values: Values) -> Iterator[tuple[str, InvalidValue]]:
        """Yield what is wrong with options that name fields of its input's values, with the names of the options."""
        return iter(())

    def held_columns(self, values: Values) -> pa.Schema:
        """Return the columns of its input's values that the operator's state may hold: all, unless the kind knows."""
        return values.schema
