"""Bounds of an operator's buffer, and the split of a buffer into its memory and its disk part."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.option_types import Count, Size
from tidegate.contracts.errors import InvalidValue


class Bounds(Config):
    """Upper bounds of what a buffer holds."""

    max_keys: Count | None = None
    """Maximum number of keys held."""
    max_bytes: Size | None = Field(default=None, validate_default=True)
    """Maximum number of bytes held, counted as `bytes_of` says."""

    @field_validator("max_bytes")
    @classmethod
    def _one_bound_is_given(cls, max_bytes: int | None, info: ValidationInfo) -> int | None:
        if max_bytes is None and info.data.get("max_keys", 0) is None:
            raise InvalidValue(
                "a buffer without a bound", "write max_keys or max_bytes, or leave `buffer` out (unbounded)"
            )
        return max_bytes


class EagerBuffer(Bounds):
    """A buffer that emits its oldest key early when it is full: results are best effort."""

    when_full: Literal["emit"]
    """`emit`: emit the oldest key early."""


class StrictBuffer(Bounds):
    """A buffer that never emits early: its results are those of an unbounded buffer."""

    when_full: Literal["spill", "shut_down"]
    """`spill`: hold everything; the bound only sets how much counts as memory. `shut_down`: stop before exceeding
    it."""


def sizes(buffer: Bounds | None, held: int, held_bytes: int, when: str) -> dict[str, int]:
    """Return the records and bytes of the buffer's memory part and, with `spill`, of its disk part, as measures.

    `when` ends the names of the measures. With `spill`, memory has the largest share of the buffer that meets both
    bounds, and disk has the rest. Without `spill` all is in memory, and there are no measures of a disk part.
    """
    whole = {f"memory_records_{when}": held, f"memory_bytes_{when}": held_bytes}
    if not isinstance(buffer, StrictBuffer) or buffer.when_full != "spill":
        return whole
    records, size = _in_memory(buffer, held, held_bytes)
    return {
        f"memory_records_{when}": records,
        f"memory_bytes_{when}": size,
        f"disk_records_{when}": held - records,
        f"disk_bytes_{when}": held_bytes - size,
    }


def _in_memory(bounds: StrictBuffer, held: int, held_bytes: int) -> tuple[int, int]:
    records, size = held, held_bytes
    if bounds.max_keys is not None and records > bounds.max_keys:
        records, size = bounds.max_keys, size * bounds.max_keys // records
    if bounds.max_bytes is not None and size > bounds.max_bytes:
        records, size = records * bounds.max_bytes // size, bounds.max_bytes
    return records, size
