"""The storage of one step within the storage of its pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from zlib import crc32

from tidegate.contracts.operator import SEED, Array, ArraySpec, Layout, Storage

Found = TypeVar("Found")

RECEIVED = "received"
"""The array with the number of rows that each stateful step has received, in the order of the steps."""
CHECKS = "checks"
"""The array with a checksum of where each of these steps stands, to tell damage."""


def layout_of(layouts: Mapping[str, Layout]) -> Layout:
    """Return the layout of a pipeline whose stateful steps have these layouts, by name.

    The arrays and dimensions of a step are named `<step>.<name>`. All steps share one secret seed. The version is a
    hash of the steps' names, kinds and versions: another list of steps is another state.
    """
    arrays = [ArraySpec(name, "int64", "fixed", len(layouts)) for name in (RECEIVED, CHECKS)]
    if any(SEED in layout.arrays for layout in layouts.values()):
        arrays.append(SEED)
    for name, layout in layouts.items():
        own = (spec for spec in layout.arrays if spec != SEED)
        arrays += [ArraySpec(f"{name}.{s.name}", s.dtype, f"{name}.{s.dimension}", s.factor) for s in own]
    capacity = {f"{name}.{of}": size for name, layout in layouts.items() for of, size in layout.capacity.items()}
    version = crc32(repr([(name, layout.kind, layout.version) for name, layout in layouts.items()]).encode())
    return Layout("pipeline", version, tuple(arrays), {"fixed": 1} | capacity)


class Prefixed:
    """The Storage of one step: the arrays and dimensions that begin with its name."""

    def __init__(self, storage: Storage, step: str, grown: list[str]) -> None:
        self._storage = storage
        self._prefix = f"{step}."
        self._grown = grown

    def arrays(self) -> Mapping[str, Array]:
        """Return the step's arrays, with the shared seed."""
        arrays = self._storage.arrays()
        return self._own(arrays) | {name: arrays[name] for name in (SEED.name,) if name in arrays}

    def capacity(self) -> Mapping[str, int]:
        """Return the capacity of each of the step's dimensions."""
        return self._own(self._storage.capacity())

    def grow(self, capacity: Mapping[str, int]) -> None:
        """Grow dimensions of the step, and note it: growth makes the arrays of all steps stale."""
        self._grown.append(self._prefix)
        self._storage.grow({self._prefix + name: size for name, size in capacity.items()})

    def _own(self, named: Mapping[str, Found]) -> dict[str, Found]:
        start = len(self._prefix)
        return {name[start:]: found for name, found in named.items() if name.startswith(self._prefix)}
