"""Different keys with equal fingerprints."""

from __future__ import annotations

import numpy as np

from tidegate.kernels.compiled import compiled
from tidegate.kernels.compiled.words import folded

LENGTH = 16
SEED = b"known in tests.."
"""Where keys are to collide the storage must have this one: without it nobody can choose them."""

SEED_WORDS = np.frombuffer(SEED, np.int64)


@compiled
def _folded(left: int, right: int) -> int:
    return folded(left, right)


def keys_with_equal_fingerprints(count: int = 8, seed: bytes = SEED) -> list[bytes]:
    """Return keys of two words: the first is mixed into the state that the second is added to, and can undo it."""
    words = np.frombuffer(seed, np.int64)
    factor, length = int(words[1] | 1), int(words[0]) ^ LENGTH
    keys, reached = [], int(_folded(length, factor))
    for first in range(count):
        second = reached ^ int(_folded(length ^ first, factor))
        keys.append(np.array([first, second], np.int64).tobytes())
    return keys
