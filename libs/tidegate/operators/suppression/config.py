"""The configuration of suppression (KIP-328)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.key_rules import (
    AddedWindows,
    InputWindowsInOutput,
    KeyRules,
    Windows,
    added_windows,
    output_windows_of,
)
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration
from tidegate.contracts.config.option_types import Duration
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP, format_duration_ms
from tidegate.operators.options.bounds import Bounds, EagerBuffer, StrictBuffer


class TimeLimit(Config):
    """A limit, in stream time, on how long a key is held."""

    time_limit: Duration
    """How long to wait for more updates of a key before it is emitted."""


def _read_until(value: object) -> object:
    if isinstance(value, dict):
        return TimeLimit.model_validate(value)
    if value is None or value == "window_close" or isinstance(value, TimeLimit):
        return value
    raise InvalidValue("neither a time limit nor window_close", "write until: {time_limit: 30s} or until: window_close")


def _read_buffer(value: object) -> object:
    if isinstance(value, dict):
        if value.get("when_full") not in ("emit", "spill", "shut_down"):
            raise InvalidValue("when_full is missing or unknown", "write when_full: emit, spill or shut_down")
        return (EagerBuffer if value["when_full"] == "emit" else StrictBuffer).model_validate(value)
    if value is None or isinstance(value, Bounds):
        return value
    raise InvalidValue("not a buffer", "write buffer: {max_keys: 1000, when_full: emit}")


Until: TypeAlias = Annotated[TimeLimit | Literal["window_close"] | None, BeforeValidator(_read_until)]
Buffer: TypeAlias = Annotated[EagerBuffer | StrictBuffer | None, BeforeValidator(_read_buffer)]


class SuppressionRules(KeyRules):
    """The rules of suppression: until when the newest record of each key is held back, and in which buffer."""

    live: ClassVar[frozenset[str]] = frozenset(
        {"until", "buffer", "grace", "timer", "bytes_of", "max_lateness", "windows"}
    )

    kind: Literal["suppression"] = "suppression"
    """Kind of operator."""
    until: Until = None
    """When a key is emitted: `{time_limit: 30s}`, or `window_close` for windowed input; omitted: as `buffer` says."""
    buffer: Buffer = Field(default=None, validate_default=True)
    """Bounds of the buffer, and what to do when one is reached; omitted: unbounded."""
    grace: Duration | None = Field(default=None, validate_default=True)
    """With `until: window_close`: how long after its end a window still accepts records."""
    timer: Literal["first_update", "last_update", "window_end"] | None = Field(default=None, validate_default=True)
    """What the time limit counts from: a key's first held timestamp, its latest (which may hold the key for ever), or
    the end of its window; omitted: `window_end` if the input is windowed, otherwise `first_update`."""
    bytes_of: Literal["value", "record"] = "value"
    """Which bytes count: those of the value, or those of key, value and headers."""
    max_lateness: Duration | None = None
    """Records whose timestamp is further than this behind stream time are late; default: no record is late."""

    @model_validator(mode="before")
    @classmethod
    def _window_close_implies_headers(cls, raw: Any) -> Any:
        if isinstance(raw, Mapping) and raw.get("until") == "window_close" and raw.get("windows") is None:
            return {**raw, "windows": "headers"}
        return raw

    @field_validator("until")
    @classmethod
    def _until_fits_windows(cls, until: Until, info: ValidationInfo) -> Until:
        windows = info.data.get("windows")
        if until == "window_close" and windows in ("none", "ignore"):
            raise InvalidValue(
                f"window_close needs windows in the keys, and windows: {windows} leaves them out",
                "write windows: headers, session or {time: 1h}, or until: {time_limit: 30s}",
            )
        return until

    @field_validator("buffer")
    @classmethod
    def _buffer_fits_until(
        cls, buffer: EagerBuffer | StrictBuffer | None, info: ValidationInfo
    ) -> EagerBuffer | StrictBuffer | None:
        until = info.data.get("until", "invalid")
        if until == "window_close" and isinstance(buffer, EagerBuffer):
            raise InvalidValue(
                "emitting early would break `exactly one result per window`", "write when_full: spill or shut_down"
            )
        if until is None and (buffer is None or buffer.when_full == "spill"):
            raise InvalidValue(
                "no rule would ever release a record",
                "add until: {time_limit: 30s} (0: every record at once), or bounds with when_full: emit",
            )
        return buffer

    @field_validator("grace")
    @classmethod
    def _grace_fits_until(cls, grace: int | None, info: ValidationInfo) -> int | None:
        windowed = info.data.get("until") == "window_close"
        if windowed and grace is None:
            raise InvalidValue(
                "required with until: window_close", "write the windows' grace, such as grace: 2h (0: none)"
            )
        if not windowed and grace is not None and "until" in info.data:
            raise InvalidValue("only until: window_close has a grace", "remove it, or limit lateness with max_lateness")
        return grace

    @field_validator("timer")
    @classmethod
    def _timer_fits_windows(cls, timer: str | None, info: ValidationInfo) -> str | None:
        windowed = info.data.get("windows") not in ("none", "ignore", None)
        if timer not in (None, "window_end") and info.data.get("until") == "window_close":
            raise InvalidValue("a window is emitted when it closes, so no timer applies", "remove timer")
        if timer == "window_end" and not windowed and "windows" in info.data:
            raise InvalidValue(
                "the input's keys have no windows", "remove timer, or write windows: headers, session or {time: 1h}"
            )
        return timer or ("window_end" if windowed else "first_update")

    @field_validator("max_lateness")
    @classmethod
    def _max_lateness_fits_until(cls, max_lateness: int | None, info: ValidationInfo) -> int | None:
        if max_lateness is not None and info.data.get("until") == "window_close":
            raise InvalidValue("with until: window_close the grace decides what is late", "remove max_lateness")
        return max_lateness

    def hold(self, length: int | None) -> int | None:
        """Return how old a timestamp may be that is still held: the time limit, and the length where windows end.

        Without a time limit it may be any; then no marks are passed on. Neither are they if the end of a window decides
        and the windows' length is unknown.
        """
        if self.until is None or (self.timer == "window_end" and length is None):
            return None
        limit = self.until.time_limit if isinstance(self.until, TimeLimit) else self.grace or 0
        return limit + (length or 0 if self.timer == "window_end" else 0)

    def incompatibilities(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Return, per option, why what is held under `before` cannot be held under this configuration.

        Windowed and plain keys cannot be mixed, and `until` cannot change between `window_close` and others. The grace
        cannot grow: a window whose result was emitted may be forgotten already, and would get a second result.
        """
        assert isinstance(before, SuppressionRules)
        if refused := self.key_kind_conflict(before):
            return refused
        if (self.until == "window_close") != (before.until == "window_close"):
            return {"until": "held records are ordered differently with window_close and with a time limit"}
        if (self.grace or 0) > (before.grace or 0):
            return {"grace": "windows that were already emitted may be forgotten, and would be emitted a second time"}
        return {}

    @classmethod
    def windows_before(cls, settings: Mapping[str, Any]) -> Windows:
        """Return `windows` for settings of a release without that option: `headers` with `until: window_close`."""
        return "headers" if settings.get("until") == "window_close" else super().windows_before(settings)


class SuppressionConfig(SuppressionRules, OperatorConfig):
    """The configuration of suppression between two topics."""

    output_windows: InputWindowsInOutput = "headers"
    """How output records name their windows: in `headers`, or with `kafka` in the key, in Kafka's format."""

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the records of the output; None: they have none, or name them already."""
        return added_windows(self, self.output_windows)

    def writes(self) -> OutputDeclaration:
        """Return what is known of the records in the output topic."""
        return OutputDeclaration(
            windows=output_windows_of(self, self.output_windows), key_format=self.explicit_key_format
        )

    @classmethod
    def inferred_options(cls, raw: Mapping[str, Any], topic: OutputDeclaration) -> dict[str, Any]:
        """Return the options that the writer of the input determines; with `until: window_close` also the grace."""
        found = super().inferred_options(raw, topic)
        if raw.get("until") == "window_close" and topic.closes_after is not None:
            found["grace"] = f"{topic.closes_after}ms"
        return found

    def conflicts(self, topic: OutputDeclaration) -> Iterator[tuple[str, InvalidValue]]:
        """Yield each option that contradicts the writer of the input, and how."""
        yield from super().conflicts(topic)
        if self.grace is not None and topic.closes_after not in (None, self.grace):
            grace = format_duration_ms(topic.closes_after or 0)
            cause = f"the windows of its input change until {grace} after they end"
            yield "grace", InvalidValue(cause, f"write {grace} or remove it")
