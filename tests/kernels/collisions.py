"""Different keys with equal fingerprints."""

from __future__ import annotations

import numpy as np

from tidegate.kernels import hash_index

WORD, LENGTH = 8, 16


def keys_with_equal_fingerprints(count: int = 8) -> list[bytes]:
    """Keys of two words. The first word is mixed into the state that the second is added to: it can undo the first."""
    length = hash_index._SEED ^ LENGTH
    keys, reached = [], int(hash_index.mix(length))
    for first in range(count):
        second = reached ^ int(hash_index.mix(length ^ first))
        keys.append(np.array([first, second], np.int64).tobytes())
    return keys
