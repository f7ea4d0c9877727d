"""The decorators that compile kernels with numba. Kernels are compiled by them alone.

`TIDEGATE_NUMBA=off` runs the same source as plain Python: for debugging, and to test that both give the same results.
`NUMBA_BOUNDSCHECK=1`, numba's own switch, makes every access outside of an array an IndexError: slower, for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

Kernel = TypeVar("Kernel", bound=Callable[..., object])

NUMBA_ON = os.environ.get("TIDEGATE_NUMBA", "on") != "off"

CHECKED = NUMBA_ON and os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0"
"""True if kernels check the bounds of their arrays."""

if NUMBA_ON:
    import numba  # type: ignore[import-untyped, unused-ignore]

    from tidegate.kernels.compiled.cache import KernelCache
    from tidegate.kernels.compiled.parts import hand_calls_over


def compiled(function: Kernel) -> Kernel:
    """Compile the function with numba (cached on disk, without the GIL), or return it unchanged if numba is off.

    Kernels take and return only flat arrays and numbers. Overflowing uint64 arithmetic must use numpy scalars.
    """
    return _compile(function)


def compiled_in_place(function: Kernel) -> Kernel:
    """Compile as `compiled` does, for a kernel that works in the arrays given to it and makes none, not even slices.

    It does not count references: counting them for the many arrays of a state costs ten times the work itself.
    """
    return _compile(function, _nrt=False)


def inlined(function: Kernel) -> Kernel:
    """Compile a part of `compiled_in_place` kernels. It is inlined into each of them, so its arguments cost nothing.

    Python may call it, too: its first call compiles the function once more, with what such a call needs.
    """
    if not NUMBA_ON:
        return function
    part = _compile(function, "-part", _nrt=False, forceinline=True, no_cpython_wrapper=True)
    hand_calls_over(part, _compile(function, _nrt=False))
    return part


def _compile(function: Kernel, suffix: str = "", **options: Any) -> Kernel:
    if not NUMBA_ON:
        return function
    kernel = numba.njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    kernel._cache = KernelCache(function, suffix=f"{'-checked' if CHECKED else ''}{suffix}")
    return kernel  # type: ignore[no-any-return, unused-ignore]


@inlined
def wide(number: Any) -> Any:
    """Return the number as int64, so that a kernel is compiled once, whatever the width of the array it comes from."""
    return np.int64(number)
