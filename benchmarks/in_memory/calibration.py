"""The present speed of the machine: a fixed piece of compiled work that does not depend on Tidegate's code.

It is printed with absolute figures, because the same machine may be twice as slow an hour later.
"""

from __future__ import annotations

import time
from statistics import median

import numba
import numpy as np
import numpy.typing as npt

RECORDS, KEYS, RUNS = 4_000_000, 1_000_000, 5
SAYS = "this machine counts so many keys a second (random access to 8 MB):"


def machine_records_per_s() -> float:
    """Return the keys counted per second on one core, median of 5 runs."""
    keys = np.random.default_rng(1).integers(0, KEYS, RECORDS)
    counts = np.zeros(KEYS, np.int64)
    _count(keys, counts)
    seconds = []
    for _ in range(RUNS):
        started = time.perf_counter()
        _count(keys, counts)
        seconds.append(time.perf_counter() - started)
    return RECORDS / median(seconds)


@numba.njit(cache=True)  # type: ignore[untyped-decorator, unused-ignore]
def _count(keys: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
    for key in keys:
        scattered = key * np.int64(2_654_435_761) % len(counts)
        counts[scattered] += 1
