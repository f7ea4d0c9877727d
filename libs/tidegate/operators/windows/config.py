"""What a windowed aggregation is told: windows, aggregates, and when results leave. May import: pydantic, contracts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from tidegate.contracts.config import Config, Duration, OperatorConfig, OperatorRules
from tidegate.operators.bounds import StrictBuffer

Length = Annotated[Duration, Field(gt=0)]


class Tumbling(Config):
    """Windows side by side."""

    tumbling: Length
    """How long a window is."""
    grace: Duration
    """How long after its end a window takes late records."""


class Hopping(Config):
    """Windows that overlap."""

    hopping: Length
    """How long a window is."""
    advance: Length
    """How long after a window the next one begins: at most its length."""
    grace: Duration
    """How long after its end a window takes late records."""

    @field_validator("advance")
    @classmethod
    def _leaves_no_gap(cls, advance: int, info: ValidationInfo) -> int:
        if advance > info.data.get("hopping", advance):
            raise ValueError("records between two windows would be in none; give an advance of at most the length")
        return advance


class Session(Config):
    """Windows of records that follow each other closely."""

    session: Length
    """The gap: records of a key that are at most so far apart are in one session."""
    grace: Duration
    """How long after the gap a session takes late records."""


class Unlimited(Config):
    """One window per key, which never ends."""

    unlimited: Literal[True]
    """Always true."""


_WINDOWS: dict[str, type[Config]] = {
    "tumbling": Tumbling,
    "hopping": Hopping,
    "session": Session,
    "unlimited": Unlimited,
}


def _read_window(value: object) -> object:
    if isinstance(value, Tumbling | Hopping | Session | Unlimited):
        return value
    kinds = [kind for kind in _WINDOWS if isinstance(value, Mapping) and kind in value]
    if not isinstance(value, Mapping) or len(kinds) != 1:
        raise ValueError("not a window; write window: {tumbling: 1h, grace: 2h}, or hopping, session or unlimited")
    if "retention" in value:
        raise ValueError("windows have no retention, their store has; write retention beside window")
    if kinds == ["unlimited"] and "grace" in value:
        raise ValueError("a window that never ends has no grace; remove grace")
    return _WINDOWS[kinds[0]].model_validate(value)


Window: TypeAlias = Annotated[Tumbling | Hopping | Session | Unlimited, BeforeValidator(_read_window)]


class NumberField(Config):
    """A number in a JSON object."""

    field: str
    """Name of the top-level field."""


Number: TypeAlias = NumberField | Literal[True] | None


class Aggregates(Config):
    """What is computed over a window's records: one of them gives a bare JSON value, several an object."""

    count: Literal[True] | None = None
    """How many records there are; null values count."""
    sum: Number = None
    """The sum of a field, or with `true` of values that are numbers themselves: exact for whole numbers of 64 bits."""
    min: Number = None
    """The smallest number."""
    max: Number = None
    """The largest number."""
    avg: Number = None
    """The mean of the numbers."""

    @model_validator(mode="after")
    def _one_is_given(self) -> Aggregates:
        if not self.model_fields_set:
            raise ValueError("nothing to compute; write aggregate: {count: true}, or sum: {field: amount}")
        return self


class WindowRules(OperatorRules):
    """Aggregates the records of each key in windows of event time."""

    kind: Literal["windowed_aggregation"] = "windowed_aggregation"
    """Kind of operator."""
    window: Window
    """`{tumbling: 1h, grace: 2h}`, `{hopping: 1h, advance: 10m, grace: 0}`, `{session: 30m, grace: 0}`, or
    `{unlimited: true}`."""
    aggregate: Aggregates
    """What is computed: `{count: true}`, `{sum: {field: amount}}`, min, max, avg."""
    emit: Literal["updates", "on_time", "final"]
    """`updates`: every change. `on_time`: when the window ends, then every change. `final`: once, when it closes."""
    retention: Duration | None = Field(default=None, validate_default=True)
    """How long windows are kept, from their start (sessions: from their end); default: until they close."""
    buffer: StrictBuffer | None = None
    """With `emit: final`: how many windows may be open, and what to do with more; omitted: any number."""

    @field_validator("emit")
    @classmethod
    def _window_ends(cls, emit: str, info: ValidationInfo) -> str:
        if emit != "updates" and isinstance(info.data.get("window"), Unlimited):
            raise ValueError("an unlimited window never ends, so nothing would be emitted; write emit: updates")
        return emit

    @field_validator("retention")
    @classmethod
    def _lasts_until_the_window_closes(cls, retention: int | None, info: ValidationInfo) -> int | None:
        window = info.data.get("window")
        if retention is None or window is None:
            return retention
        if isinstance(window, Unlimited):
            raise ValueError("an unlimited window is kept for ever; remove retention")
        if retention < least_retention(window):
            raise ValueError("windows would expire before they close; retain at least their length (gap) and grace")
        return retention

    @field_validator("buffer")
    @classmethod
    def _holds_results_back(cls, buffer: StrictBuffer | None, info: ValidationInfo) -> StrictBuffer | None:
        if buffer is not None and info.data.get("emit", "final") != "final":
            raise ValueError("only final results are held back; write emit: final, or remove buffer")
        return buffer


def least_retention(window: Tumbling | Hopping | Session | Unlimited) -> int:
    """How long a window has to be kept so that it can close, in ms."""
    match window:
        case Tumbling():
            return window.tumbling + window.grace
        case Hopping():
            return window.hopping + window.grace
        case Session():
            return window.session + window.grace
    return 0


class WindowConfig(WindowRules, OperatorConfig):
    """Windowed aggregation between two topics."""
