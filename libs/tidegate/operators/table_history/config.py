"""The configuration of a table history (KIP-889, KIP-923)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.operator_config import OperatorConfig, TableFacts
from tidegate.contracts.config.option_types import Duration, Size
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP

HOLD_FOR_READERS = 2**30

_WITHOUT_EFFECT = {
    "output": ("a table emits nothing", "remove it, and join a stream with the table or query its history"),
    "idle_after": ("a table holds no records back, so stream time need not advance without records", "remove it"),
}
"""Options of every operator that a table must not have: why, and the remedy."""


class TableHistoryRules(KeyRules):
    """The rules of a table: every version of every key is kept for a retention, or only the latest values are."""

    live: ClassVar[frozenset[str]] = frozenset({"history_retention", "hold_for_readers", "windows"})

    kind: Literal["table_history"] = "table_history"
    """Kind of operator."""
    versions: Literal["latest"] | None = None
    """`latest`: a plain table of the latest values by offset, for joins without a grace; omitted: a history."""
    history_retention: Duration | None = Field(default=None, validate_default=True)
    """How far behind stream time versions can be written and read; required for a history."""
    hold_for_readers: Size = HOLD_FOR_READERS
    """Maximum bytes per partition of versions beyond the retention, kept because readers have yet to look them up."""

    @field_validator("history_retention")
    @classmethod
    def _retention_fits_versions(cls, retention: int | None, info: ValidationInfo) -> int | None:
        latest = info.data.get("versions") == "latest"
        if latest and retention is not None:
            raise InvalidValue(
                "a table of latest values has no history to keep", "remove it, or remove versions: latest"
            )
        if not latest and retention is None:
            raise InvalidValue(
                "required for a history",
                "write history_retention: 30d, or versions: latest for a table without history",
            )
        return retention

    @field_validator("hold_for_readers")
    @classmethod
    def _hold_for_readers_fits_versions(cls, size: int, info: ValidationInfo) -> int:
        if info.data.get("versions") == "latest" and size != HOLD_FOR_READERS:
            raise InvalidValue(
                "a table of latest values has no versions to hold", "remove it, or remove versions: latest"
            )
        return size

    def incompatibilities(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Return why versions held under `before` cannot be held under this: windowed and plain keys cannot be
        mixed."""
        assert isinstance(before, TableHistoryRules)
        return self.key_kind_conflict(before)


class TableHistoryConfig(TableHistoryRules, OperatorConfig):
    """The configuration of a table read from a topic."""

    @field_validator(*_WITHOUT_EFFECT)
    @classmethod
    def _has_an_effect(cls, value: object, info: ValidationInfo) -> object:
        if value is not None and info.field_name is not None:
            raise InvalidValue(*_WITHOUT_EFFECT[info.field_name])
        return value

    def as_table(self) -> TableFacts:
        """Return what operators that read the table need to know of it."""
        return TableFacts(self.history_retention, self.windowed, self.explicit_key_format)
