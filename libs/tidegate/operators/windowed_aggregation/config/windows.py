"""Windows of event time, as a configuration writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.option_types import Duration
from tidegate.contracts.errors import InvalidValue

Length = Annotated[Duration, Field(gt=0)]


class Tumbling(Config):
    """Windows of equal length, side by side."""

    tumbling: Length
    """Length of a window."""
    grace: Duration
    """How long after its end a window accepts late records."""


class Hopping(Config):
    """Windows of equal length, which overlap."""

    hopping: Length
    """Length of a window."""
    advance: Length
    """Time from the start of one window to the start of the next: at most the length."""
    grace: Duration
    """How long after its end a window accepts late records."""

    @field_validator("advance")
    @classmethod
    def _advance_fits_length(cls, advance: int, info: ValidationInfo) -> int:
        if advance > info.data.get("hopping", advance):
            raise InvalidValue(
                "records between two windows would be in no window", "write an advance of at most the length"
            )
        return advance


class Session(Config):
    """Windows of records that follow each other within a gap."""

    session: Length
    """The gap: records of a key that are at most this far apart are in one session."""
    grace: Duration
    """How long after the gap a session accepts late records."""
    max_length: Length | None = None
    """Longest time between the first and the last record of a session: the operator stops before a record that would
    make a session longer. Omitted: any length.
    """


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
        raise InvalidValue("not a window", "write window: {tumbling: 1h, grace: 2h}, or hopping, session or unlimited")
    if "retention" in value:
        raise InvalidValue("retention is not an option of the window", "write retention beside window, not in it")
    if kinds == ["unlimited"] and "grace" in value:
        raise InvalidValue("a window that never ends has no grace", "remove grace")
    return _WINDOWS[kinds[0]].model_validate(value)


Window: TypeAlias = Annotated[Tumbling | Hopping | Session | Unlimited, BeforeValidator(_read_window)]


def least_retention(window: Tumbling | Hopping | Session | Unlimited) -> int:
    """Return how long a window must be kept so that it can close, in ms."""
    match window:
        case Tumbling():
            return window.tumbling + window.grace
        case Hopping():
            return window.hopping + window.grace
        case Session():
            return window.session + window.grace
    return 0


def closes_after(window: Tumbling | Hopping | Session | Unlimited) -> int | None:
    """Return how long after its end (a session's: its last record) a window accepts records, in ms; None: forever."""
    match window:
        case Unlimited():
            return None
        case Session():
            return window.session + window.grace + 1
    return window.grace
