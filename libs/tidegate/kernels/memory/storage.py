"""A storage in process memory, for arrays that need not outlast the process."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from tidegate.contracts.operator import SEED, Array, Layout

RESERVED = 2
"""How many times the length that an array needs is reserved when it grows: unwritten memory takes no space."""


def fresh_seed() -> bytes:
    """Return a random secret that no other storage has."""
    return os.urandom(SEED.factor * np.dtype(SEED.dtype).itemsize)


class MemoryStorage:
    """A Storage in process memory: for the per-record driver, the tests and anything that is not worth a file.

    `seed`: the secret of its hash; by default a new one.
    """

    def __init__(self, layout: Layout, seed: bytes | None = None) -> None:
        self._layout = layout
        self._capacity = dict(layout.capacity)
        self._arrays = {spec.name: np.zeros(self._length(spec.name), spec.dtype) for spec in layout.arrays}
        self._memory = dict(self._arrays)
        if SEED in layout.arrays:
            self._arrays[SEED.name][:] = np.frombuffer(seed or fresh_seed(), SEED.dtype)

    def arrays(self) -> Mapping[str, Array]:
        """Return the current arrays."""
        return self._arrays

    def capacity(self) -> Mapping[str, int]:
        """Return the current capacity of each dimension."""
        return self._capacity

    def grow(self, capacity: Mapping[str, int]) -> None:
        """Grow every given dimension to at least that capacity. Contents stay at the front, the rest is zero."""
        for dimension, wanted in capacity.items():
            self._capacity[dimension] = max(wanted, self._capacity[dimension])
        for name, old in self._arrays.items():
            length = self._length(name)
            if length > len(self._memory[name]):
                self._memory[name] = np.zeros(RESERVED * length, old.dtype)
                self._memory[name][: len(old)] = old
            self._arrays[name] = self._memory[name][:length]

    def copy(self) -> MemoryStorage:
        """Return an equal storage that shares nothing with this one."""
        twin = MemoryStorage(self._layout)
        twin._capacity = dict(self._capacity)
        twin._arrays = {name: array.copy() for name, array in self._arrays.items()}
        twin._memory = dict(twin._arrays)
        return twin

    def _length(self, name: str) -> int:
        spec = next(spec for spec in self._layout.arrays if spec.name == name)
        return spec.factor * self._capacity[spec.dimension]
