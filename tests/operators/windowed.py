"""Helpers for records of windows."""

from __future__ import annotations

from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_headers import encode_headers


def of_window(key: bytes | None, value: bytes | None, timestamp: int, window: tuple[int, int], offset: int = 0) -> Row:
    """Return a record whose headers name its window."""
    names = HEADER_WINDOW_START, HEADER_WINDOW_END
    block = encode_headers((name.encode(), b"%d" % bound) for name, bound in zip(names, window, strict=True))
    return Row(key, value, timestamp, offset, block)
