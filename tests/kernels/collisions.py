"""Keys whose hashes are equal, made without touching the hash."""

from __future__ import annotations

import hashlib
import itertools
from functools import cache

_OFFSET, _PRIME, _MASK = 2166136261, 16777619, 0xFFFFFFFF


@cache
def keys_with_equal_hashes(steps: int = 3) -> list[bytes]:
    """2**steps keys of one FNV-1a state: two continuations that meet again, then two more from there, and so on."""
    keys, state = [b""], _OFFSET
    for _ in range(steps):
        left, right, state = _meeting(state)
        keys = [key + part for key in keys for part in (left, right)]
    return keys


def _meeting(state: int) -> tuple[bytes, bytes, int]:
    seen: dict[int, bytes] = {}
    for number in itertools.count():
        part = hashlib.sha256(str(number).encode()).digest()[:8]
        reached = state
        for byte in part:
            reached = ((reached ^ byte) * _PRIME) & _MASK
        if reached in seen:
            return seen[reached], part, reached
        seen[reached] = part
    raise AssertionError("32 bits are finite")
