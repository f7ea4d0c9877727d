"""Event time: timestamps, stream time and durations.

A timestamp is an int64 of milliseconds since the epoch. Intervals are [from, to). Stream time (T) is the largest
timestamp that an operator's partition has accepted; it starts at NO_STREAM_TIME.

Timestamps and durations lie in [0, MAX_TIME]. They are checked on entry: in records, in fields of values, in the
headers of windowed results, in configurations and in idle advances. The largest sum that operators compute is a
timestamp plus a length, a grace (or a retention, which by default is a length plus a grace) and 1 ms. It is less than
2^63, so no sum, difference or window end can overflow.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidegate.contracts.errors import InvalidValue

NO_STREAM_TIME = -1
"""Stream time before the first accepted record."""

MAX_TIME = 2**61
"""The largest timestamp and the longest duration, ms: 73 million years."""

MAX_WINDOW_END = 2 * MAX_TIME
"""The latest end of a window that ends."""

MAX_TIMESTAMP = 2**63 - 1
"""The largest int64: the end of a window that never ends, and of open intervals."""

ALWAYS, NEVER = MAX_TIMESTAMP, -(2**62)
"""Bounds at the ends of time: at or after every timestamp, and before every timestamp."""

NO_TIMESTAMP = -(2**63)
"""Stands for a null timestamp; the record is rejected."""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3}))?S)?)?", re.ASCII)
_INEXACT = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?(ms|s|m|h|d)", re.ASCII)
_SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(r"(\d+)(B|KiB|MiB|GiB)", re.ASCII)


def advanced(stream_time: int, to: int) -> int:
    """Return stream time after it has advanced to `to`. It never goes back, nor beyond MAX_TIME."""
    # rule: idle-time-range
    return max(stream_time, min(to, MAX_TIME))


def milliseconds_of(time: datetime) -> int:
    """Return the time in ms since the epoch; one without a zone is in UTC."""
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000)


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of `200ms`, `30s`, `5m`, `2h`, `30d` or an ISO 8601 duration (`PT5M`, `P1DT2H`).

    Raise InvalidValue for anything else. This includes numbers without a unit, except 0.
    """
    if text == "0":
        return 0
    if short := _SHORT.fullmatch(text):
        return _duration(int(short[1]) * _UNITS_MS[short[2]], text)
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups()[:4])
        fraction = int((iso[5] or "").ljust(3, "0"))
        return _duration((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + fraction, text)
    if _INEXACT.fullmatch(text):
        raise InvalidValue(
            "a negative duration, or one with a fraction", "write a whole number and a unit, such as 90m for 1.5h"
        )
    raise InvalidValue(f"{text!r} is not a duration", "write 200ms, 30s, 5m, 2h, 30d or ISO 8601 such as PT5M")


def format_duration_ms(duration_ms: int) -> str:
    """Return the shortest text that `parse_duration_ms` parses to the same number."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % _UNITS_MS[unit] == 0:
            return f"{duration_ms // _UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"


def duration_text(duration: timedelta) -> str:
    """Return the duration as text; `parse_duration_ms` refuses the text of one that is negative or not in whole ms."""
    whole, rest = divmod(duration, timedelta(milliseconds=1))
    if rest or whole < 0:
        return f"{duration / timedelta(milliseconds=1)}ms"
    return format_duration_ms(whole)


def parse_size_bytes(text: str) -> int:
    """Return the bytes of `64MiB`, `10KiB`, `1GiB` or `500B`. Raise InvalidValue for anything else."""
    if size := _SIZE.fullmatch(text):
        return _size(int(size[1]) * _SIZE_UNITS[size[2]], text)
    raise InvalidValue(f"{text!r} is not a size", "write 500B, 64KiB, 64MiB or 1GiB")


def _duration(duration_ms: int, text: str) -> int:
    if duration_ms > MAX_TIME:
        raise InvalidValue(f"{text!r} is too long", f"write at most {MAX_TIME}ms (2^61)")
    return duration_ms


def _size(size: int, text: str) -> int:
    if size > MAX_TIMESTAMP:
        raise InvalidValue(f"{text!r} is larger than a 64-bit number holds", "write a smaller one")
    return size
