"""The configuration of deduplication: the first record of each key, within a period or for ever."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, PlainSerializer, ValidationInfo, field_validator

from tidegate.contracts.config.key_rules import AddedWindows, KeyRules, added_windows, output_windows_of
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration
from tidegate.contracts.config.option_types import Duration, Keep
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.values import Values
from tidegate.operators.options.bounds import StrictBuffer

FOREVER = "forever"
Within = Annotated[Keep, PlainSerializer(lambda ms: ms if ms == FOREVER else f"{ms}ms", when_used="json")]


class DeduplicateRules(KeyRules):
    """The rules of an operator that emits the first record of each key and drops its duplicates."""

    live: ClassVar[frozenset[str]] = frozenset({"within", "grace", "buffer", "windows"})

    kind: Literal["deduplicate"] = "deduplicate"
    """Kind of operator."""
    within: Within
    """Records of a key less than this apart are duplicates of the one that arrived first. `forever`: all later ones."""
    grace: Duration | None = Field(default=None, validate_default=True)
    """How far behind stream time a record is accepted. Required with a duration in `within`, refused with `forever`."""
    buffer: StrictBuffer | None = None
    """How many keys may be remembered, and what to do if there are more; omitted: any number."""

    @field_validator("within")
    @classmethod
    def _within_is_positive(cls, within: int | str) -> int | str:
        if within == 0:
            raise InvalidValue("no record would be a duplicate", "write within: 10m, or within: forever")
        return within

    @field_validator("grace")
    @classmethod
    def _grace_fits_within(cls, grace: int | None, info: ValidationInfo) -> int | None:
        within = info.data.get("within")
        # rule: expiry-has-grace/forever
        if within == FOREVER and grace is not None:
            raise InvalidValue("no record is late with within: forever", "remove it, or write within: 10m")
        # rule: expiry-has-grace/time
        if within not in (None, FOREVER) and grace is None:
            raise InvalidValue(
                "required if within is a duration, because keys are then forgotten",
                "write grace: 1h (with 0, every record behind stream time is late)",
            )
        return grace

    @property
    def within_ms(self) -> int:
        """Return the time within which records are duplicates, in ms; the largest one for `forever`."""
        return self.within if isinstance(self.within, int) else MAX_TIMESTAMP

    @property
    def remembered_ms(self) -> int:
        """Return how far behind stream time keys are remembered, in ms."""
        return min(self.within_ms + (self.grace or 0), MAX_TIMESTAMP)

    def hold(self, length: int | None) -> int:
        """Return 0: nothing is held back."""
        return 0

    def held_columns(self, values: Values) -> pa.Schema:
        """Return no columns: keys alone are remembered."""
        return pa.schema([])

    def incompatibilities(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Return why the keys remembered under `before` do not suffice for this configuration, per option.

        Windowed and plain keys cannot be mixed, and keys that are forgotten already cannot be remembered longer.
        """
        assert isinstance(before, DeduplicateRules)
        if conflict := self.key_kind_conflict(before):
            return conflict
        # rule: not-remembered-longer
        if self.remembered_ms <= before.remembered_ms:
            return {}
        option = "within" if self.within_ms > before.within_ms else "grace"
        return {option: "keys older than within and grace together are forgotten, and would be passed on again"}


class DeduplicateConfig(DeduplicateRules, OperatorConfig):
    """The configuration of deduplication between two topics."""

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the records of the output; None: they have none, or name them already."""
        return added_windows(self, "headers")

    def writes(self) -> OutputDeclaration:
        """Return what is known of the records in the output topic."""
        return OutputDeclaration(
            windows=output_windows_of(self, "headers"),
            key_format=self.explicit_key_format,
        )
