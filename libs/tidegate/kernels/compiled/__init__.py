"""The one place that decorates with numba.

`TIDEGATE_NUMBA=off` runs the same source as plain Python: for debugging, and for the law that both agree.
`NUMBA_BOUNDSCHECK=1`, numba's own switch, makes every access outside of an array an IndexError: slower, for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

Kernel = TypeVar("Kernel", bound=Callable[..., object])

NUMBA_ON = os.environ.get("TIDEGATE_NUMBA", "on") != "off"

CHECKED = NUMBA_ON and os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0"
"""True where kernels look at their arrays' bounds."""

if NUMBA_ON:
    import numba  # type: ignore[import-untyped, unused-ignore]

    if CHECKED:  # numba's cache does not tell kernels with checks from those without
        numba.config.CACHE_DIR = str(Path(numba.config.CACHE_DIR or Path(__file__).parent / "__pycache__") / "checked")


def compiled(function: Kernel) -> Kernel:
    """The function compiled by numba (cached on disk, without the GIL), or itself where numba is switched off.

    Kernels take and give flat arrays and numbers only. Overflowing uint64 arithmetic must use numpy scalars.
    """
    return _compile(function)


def compiled_in_place(function: Kernel) -> Kernel:
    """As `compiled`, for a kernel that works in the arrays that it is given and makes none, slices included.

    It counts no references: counting them for the many arrays of a state costs ten times the work itself.
    """
    return _compile(function, _nrt=False)


def inlined(function: Kernel) -> Kernel:
    """A part of kernels that are `compiled_in_place`: it becomes part of each, so its arguments cost nothing."""
    return _compile(function, _nrt=False, forceinline=True)


def _compile(function: Kernel, **options: Any) -> Kernel:
    if not NUMBA_ON:
        return function
    return numba.njit(cache=True, nogil=True, **options)(function)  # type: ignore[no-any-return, unused-ignore]


@inlined
def wide(number: Any) -> Any:
    """The number as int64, so that a kernel is compiled once, whatever the width of the array it comes from."""
    return np.int64(number)
