"""Reference implementation of keys, for tests only: with windowed input the key is (key, start, end).

Used by the slow reference implementations of the operators.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.contracts.config.key_rules import KeyRules, TimeWindows
from tidegate.contracts.event_time import MAX_TIME, MAX_TIMESTAMP, MAX_WINDOW_END
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_headers import decode_headers, header_value

Window = tuple[int, int] | None


class KeyAndWindow(NamedTuple):
    """A record's own key and its window. `fault`: why the record is rejected for its window; empty: it is not."""

    key: bytes | None
    window: Window = None
    fault: str = ""


def key_and_window(row: Row, config: KeyRules) -> KeyAndWindow:
    """Return the record's own key and window as `windows` of the configuration says."""
    windows = config.windows
    if row.key is None or windows == "ignore":
        return KeyAndWindow(row.key)
    if windows == "none":
        names_window = {HEADER_WINDOW_START, HEADER_WINDOW_END} <= _names(row)
        return KeyAndWindow(row.key, None, _UNEXPECTED_WINDOW if names_window else "")
    if windows == "headers":
        return _by_headers(row)
    return _by_bytes(row.key, windows.time if isinstance(windows, TimeWindows) else None)


_UNEXPECTED_WINDOW = "it names a window, but windows: none is configured; write windows: headers, or windows: ignore"


def _names(row: Row) -> set[str]:
    return {name.decode() for name, _ in decode_headers(row.headers)}


def _by_headers(row: Row) -> KeyAndWindow:
    if not {HEADER_WINDOW_START, HEADER_WINDOW_END} <= _names(row):
        return KeyAndWindow(row.key, None, "no window: headers with its bounds are missing")
    bounds = [header_value(row.headers, name) or b"" for name in (HEADER_WINDOW_START, HEADER_WINDOW_END)]
    start, end = (int(bound) if bound.isdigit() and len(bound) < 20 else -1 for bound in bounds)
    return _within(row.key, start, end)


def _by_bytes(key: bytes, size: int | None) -> KeyAndWindow:
    """Return the key and window of Kafka's bytes of a windowed key.

    Behind the key are the start of a time window, or the end and then the start of a session, 8 bytes each.
    `size`: the length of time windows; None: sessions.
    """
    added = 16 if size is None else 8
    if len(key) < added:
        return KeyAndWindow(key, None, "no window: its key is too short for Kafka's format of windowed keys")
    start = int.from_bytes(key[-8:], "big", signed=True)
    end = int.from_bytes(key[-16:-8], "big", signed=True) if size is None else start + size
    return _within(key[:-added], start, end)


def _within(key: bytes | None, start: int, end: int) -> KeyAndWindow:
    if not (0 <= start <= MAX_TIME and start <= end and (end <= MAX_WINDOW_END or end == MAX_TIMESTAMP)):
        return KeyAndWindow(key, None, "no window: its start and end do not form an interval within the range of time")
    return KeyAndWindow(key, (start, end))
