"""What a suppression waits for, and the bounds of its buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

from tidegate.application.options import Duration, Fault, Size


@dataclass(frozen=True)
class TimeLimit:
    """A limit, in stream time, on how long a key is held."""

    duration: Duration


@dataclass(frozen=True)
class WindowClose:
    """The close of a window, when its one final result is emitted."""

    grace: Duration | None = None


@dataclass(frozen=True)
class EagerBound:
    """A bound of a buffer that emits its oldest key early when it is full."""

    option: Literal["max_keys", "max_bytes"]
    value: Size
    when_full: str = "emit"


@dataclass(frozen=True)
class StrictBound:
    """A bound of a buffer that never emits early."""

    option: Literal["max_keys", "max_bytes"]
    value: Size
    when_full: Literal["spill", "shut_down"]


def time_limit(duration: Duration) -> TimeLimit:
    """Return the limit: a key is emitted once stream time is this far past the time at which it was first held."""
    return TimeLimit(duration)


def window_close(*, grace: Duration | None = None) -> WindowClose:
    """Return the limit: a window is emitted once, when it closes.

    `grace`: how long after its end a window still accepts records. It can be left out where an operator of the same
    application computes the windows.
    """
    return WindowClose(grace)


@overload
def max_keys(count: int, *, when_full: Literal["emit"]) -> EagerBound: ...


@overload
def max_keys(count: int, *, when_full: Literal["spill", "shut_down"]) -> StrictBound: ...


def max_keys(count: int, *, when_full: Any) -> EagerBound | StrictBound:
    """Return the bound of a buffer: at most so many keys.

    `when_full`: `emit` the oldest key early; `spill` the rest to disk; `shut_down` before the record that exceeds it.
    """
    return _bound("max_keys", count, when_full)


@overload
def max_bytes(size: Size, *, when_full: Literal["emit"]) -> EagerBound: ...


@overload
def max_bytes(size: Size, *, when_full: Literal["spill", "shut_down"]) -> StrictBound: ...


def max_bytes(size: Size, *, when_full: Any) -> EagerBound | StrictBound:
    """Return the bound of a buffer: at most so many bytes, such as `64MiB`. `when_full`: as of `max_keys`."""
    return _bound("max_bytes", size, when_full)


def _bound(option: Literal["max_keys", "max_bytes"], value: Size, when_full: Any) -> EagerBound | StrictBound:
    if when_full in ("spill", "shut_down"):
        return StrictBound(option, value, when_full)
    return EagerBound(option, value, when_full)


def bounds_as_options(bounds: Iterable[StrictBound]) -> tuple[dict[str, Any], list[Fault]]:
    """Return the option of a buffer with these bounds, and what is wrong among them."""
    buffer: dict[str, Any] = {}
    faults: list[Fault] = []
    for bound in bounds:
        if isinstance(bound, EagerBound | StrictBound):
            faults += _add_bound(buffer, bound)
        else:
            faults.append(Fault(bound, "not a bound", "write tg.max_keys(...) or tg.max_bytes(...)"))
    return {"buffer": buffer or None}, faults


def as_options(
    limits: Iterable[TimeLimit | WindowClose | EagerBound | StrictBound],
) -> tuple[dict[str, Any], list[Fault]]:
    """Return the options of a suppression that has these limits, and what is contradictory among them."""
    options: dict[str, Any] = {}
    faults: list[Fault] = []
    for limit in limits:
        if isinstance(limit, EagerBound | StrictBound):
            faults += _add_bound(options.setdefault("buffer", {}), limit)
        elif not isinstance(limit, TimeLimit | WindowClose):
            remedy = "write tg.time_limit(...), tg.max_keys(...), tg.max_bytes(...) or tg.window_close()"
            faults.append(Fault(limit, "not a limit", remedy))
        elif "until" in options:
            faults.append(Fault(str(limit), "there is another limit already", "give one of the two"))
        elif isinstance(limit, TimeLimit):
            options["until"] = {"time_limit": limit.duration}
        else:
            options |= {"until": "window_close", "grace": limit.grace}
    return options, faults


def _add_bound(buffer: dict[str, Any], bound: EagerBound | StrictBound) -> Iterator[Fault]:
    if bound.option in buffer:
        yield Fault(_text(bound), f"there is another {bound.option} already", "give one of the two")
    if buffer.get("when_full", bound.when_full) != bound.when_full:
        yield Fault(_text(bound), "the bounds of one buffer differ in when_full", "write the same when_full in both")
    buffer.setdefault(bound.option, bound.value)
    buffer.setdefault("when_full", bound.when_full)


def _text(bound: EagerBound | StrictBound) -> str:
    return f"{bound.option} {bound.value}, when_full {bound.when_full}"
