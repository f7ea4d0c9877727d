"""Parts of kernels: they are compiled without the code for calls by Python, and Python can call them nevertheless."""

from __future__ import annotations

from typing import Any

import numba  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest

from tidegate.kernels.compiled import compiled_in_place, inlined

pytestmark = pytest.mark.fast


@inlined
def _twice(number: Any) -> Any:
    return number * 2


@compiled_in_place
def _sum_of_doubles(numbers: Any) -> Any:
    total = np.int64(0)
    for number in numbers:
        total += _twice(number)
    return total


def test_python_and_kernels_call_a_part_in_any_order() -> None:
    assert _twice(4) == 8
    assert _sum_of_doubles(np.arange(5)) == 20
    assert _twice(5) == 10
    assert _twice(0.25) == 0.5


def test_the_code_of_a_part_for_kernels_has_no_wrapper_for_python() -> None:
    part: Any = _twice
    part.compile((numba.int64,))
    part(1)
    assert [_has_wrapper(code) for code in part.overloads.values()] == [False] * len(part.overloads) != []
    assert {_has_wrapper(code) for code in part.called.overloads.values()} == {True}


def _has_wrapper(code: Any) -> bool:
    return bool(code.library.get_pointer_to_function(code.fndesc.llvm_cpython_wrapper_name))
