"""Suppression's configuration (KIP-328). May import: the standard library, pydantic, contracts, operators."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tidegate.contracts.config import Config, Duration, OperatorConfig, OperatorRules
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.operators.bounds import Bounds, EagerBuffer, StrictBuffer


class TimeLimit(Config):
    """A key is held for that long, in stream time."""

    time_limit: Duration
    """How long to wait for more updates of a key before it is emitted."""


def _read_until(value: object) -> object:
    if isinstance(value, dict):
        return TimeLimit.model_validate(value)
    if value is None or value == "window_close" or isinstance(value, TimeLimit):
        return value
    raise ValueError("not a moment to emit at; write until: {time_limit: 30s} or until: window_close")


def _read_buffer(value: object) -> object:
    if isinstance(value, dict):
        if value.get("when_full") not in ("emit", "spill", "shut_down"):
            raise ValueError("it does not say what to do when full; add when_full: emit, spill or shut_down")
        return (EagerBuffer if value["when_full"] == "emit" else StrictBuffer).model_validate(value)
    if value is None or isinstance(value, Bounds):
        return value
    raise ValueError("not a buffer; write buffer: {max_keys: 1000, when_full: emit}")


Until: TypeAlias = Annotated[TimeLimit | Literal["window_close"] | None, BeforeValidator(_read_until)]
Buffer: TypeAlias = Annotated[EagerBuffer | StrictBuffer | None, BeforeValidator(_read_buffer)]


class SuppressionRules(OperatorRules):
    """Holds the newest record of each key back until a time limit, or until a bound of the buffer lets it go."""

    live: ClassVar[frozenset[str]] = frozenset({"until", "buffer", "grace", "timer", "bytes_of", "max_lateness"})

    kind: Literal["suppression"] = "suppression"
    """Kind of operator."""
    until: Until = None
    """`{time_limit: 30s}`, or `window_close` for windowed input; omitted: the bounds of `buffer` alone."""
    buffer: Buffer = Field(default=None, validate_default=True)
    """Bounds and what to do when one is reached; omitted: unbounded."""
    grace: Duration | None = Field(default=None, validate_default=True)
    """With `until: window_close`: how long after its end a window takes late records."""
    timer: Literal["first_update", "last_update"] = "first_update"
    """The limit is counted from a key's first held timestamp, or from its latest (which may hold it forever)."""
    bytes_of: Literal["value", "record"] = "value"
    """What bytes count: the value, or key, value and headers."""
    max_lateness: Duration | None = None
    """Records with a timestamp further behind stream time are late; default: none is."""

    @field_validator("buffer")
    @classmethod
    def _records_can_leave(
        cls, buffer: EagerBuffer | StrictBuffer | None, info: ValidationInfo
    ) -> EagerBuffer | StrictBuffer | None:
        until = info.data.get("until", "invalid")
        if until == "window_close" and isinstance(buffer, EagerBuffer):
            raise ValueError(
                "emitting early would break `exactly one result per window`; write when_full: spill or shut_down"
            )
        if until is None and (buffer is None or buffer.when_full == "spill"):
            raise ValueError(
                "nothing would ever let a record go; add until: {time_limit: 30s} (0: every record at once), "
                "or bounds with when_full: emit"
            )
        return buffer

    @field_validator("grace")
    @classmethod
    def _grace_belongs_to_windows(cls, grace: int | None, info: ValidationInfo) -> int | None:
        windowed = info.data.get("until") == "window_close"
        if windowed and grace is None:
            raise ValueError("until: window_close needs it; write the windows' grace, such as grace: 2h (0: none)")
        if not windowed and grace is not None and "until" in info.data:
            raise ValueError("only windows have a grace; remove it, or bound lateness with max_lateness")
        return grace

    @field_validator("timer")
    @classmethod
    def _windows_have_no_timer(cls, timer: str, info: ValidationInfo) -> str:
        if timer == "last_update" and info.data.get("until") == "window_close":
            raise ValueError("a window leaves when it closes, whatever its updates; remove timer")
        return timer

    @field_validator("max_lateness")
    @classmethod
    def _windows_have_a_grace(cls, max_lateness: int | None, info: ValidationInfo) -> int | None:
        if max_lateness is not None and info.data.get("until") == "window_close":
            raise ValueError("a window's grace says what is late; remove max_lateness")
        return max_lateness

    def cannot_follow(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Windows' keys and plain ones do not mix, and a window whose result has left is not remembered."""
        assert isinstance(before, SuppressionRules)
        if (self.until == "window_close") != (before.until == "window_close"):
            return {"until": "windows' keys and plain ones are not held together"}
        if (self.grace or 0) > (before.grace or 0):
            return {"grace": "windows whose results have left are not remembered, and would give a second one"}
        return {}


class SuppressionConfig(SuppressionRules, OperatorConfig):
    """Suppression between two topics."""
