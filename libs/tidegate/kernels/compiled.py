"""The one place that decorates with numba. May import: the standard library, numba.

`TIDEGATE_NUMBA=off` runs the same source as plain Python: for debugging, and for the law that both agree.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

Kernel = TypeVar("Kernel", bound=Callable[..., object])

NUMBA_ON = os.environ.get("TIDEGATE_NUMBA", "on") != "off"


def compiled(function: Kernel) -> Kernel:
    """The function compiled by numba (cached on disk, without the GIL), or itself where numba is switched off.

    Kernels take and give flat arrays and numbers only. Overflowing uint64 arithmetic must use numpy scalars.
    """
    if not NUMBA_ON:
        return function
    import numba  # type: ignore[import-untyped, unused-ignore]

    return numba.njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return, unused-ignore]
