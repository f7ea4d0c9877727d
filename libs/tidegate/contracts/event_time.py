"""Event time: timestamps, stream time and durations. May import: the standard library.

A timestamp is an int64 of milliseconds since the epoch, >= 0. Intervals are [from, to).
Stream time (T) is the largest timestamp that an operator's partition has accepted; it starts at NO_STREAM_TIME.
"""

from __future__ import annotations

import re

NO_STREAM_TIME = -1
"""Stream time before the first accepted record."""

MAX_TIMESTAMP = 2**63 - 1

NO_TIMESTAMP = -(2**63)
"""In place of a timestamp that is null; its record is rejected."""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SHORT = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3}))?S)?)?", re.ASCII)
_SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(r"(\d+)(B|KiB|MiB|GiB)", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """The milliseconds of `200ms`, `30s`, `5m`, `2h`, `30d` or an ISO 8601 duration (`PT5M`, `P1DT2H`).

    Raises ValueError, with a remedy in its text, for anything else (a bare number has no unit: refused; except 0).
    """
    if text == "0":
        return 0
    if short := _SHORT.fullmatch(text):
        return _within_range(int(short[1]) * _UNITS_MS[short[2]], text)
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups()[:4])
        fraction = int((iso[5] or "").ljust(3, "0"))
        return _within_range((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 + fraction, text)
    raise ValueError(f"{text!r} is not a duration; write 200ms, 30s, 5m, 2h, 30d or ISO 8601 such as PT5M")


def format_duration_ms(duration_ms: int) -> str:
    """The shortest text that `parse_duration_ms` reads back as the same number."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms and duration_ms % _UNITS_MS[unit] == 0:
            return f"{duration_ms // _UNITS_MS[unit]}{unit}"
    return f"{duration_ms}ms"


def parse_size_bytes(text: str) -> int:
    """The bytes of `64MiB`, `10KiB`, `1GiB` or `500B`. Raises ValueError for anything else."""
    if size := _SIZE.fullmatch(text):
        return _within_range(int(size[1]) * _SIZE_UNITS[size[2]], text)
    raise ValueError(f"{text!r} is not a size; write 500B, 64KiB, 64MiB or 1GiB")


def _within_range(number: int, text: str) -> int:
    if number > MAX_TIMESTAMP:
        raise ValueError(f"{text!r} is larger than a 64-bit number holds; write a smaller one")
    return number
