"""Parts of kernels are compiled without the code that a call by Python needs, a third of the work.

numba wraps each function that it compiles for calls by Python and by C. Most functions here are called by kernels
alone.
"""

from __future__ import annotations

from typing import Any


def hand_calls_over(part: Any, called: Any) -> None:
    """Let calls of `part` by Python run `called`: the same function, compiled so that Python can call it.

    The code of the part stays with its dispatcher for kernels, and out of the dispatcher's table of calls: a call by
    Python would jump to a wrapper that is not there. `part.called` is `called`.
    """

    def keep_for_kernels(code: Any) -> None:
        part.overloads[tuple(code.signature.args)] = code

    def compile_for_call(*args: Any) -> Any:
        entry = called._compile_for_args(*args)
        for code in called.overloads.values():
            part._insert([each._code for each in code.signature.args], code.entry_point, code.objectmode)
        return entry

    part.add_overload = keep_for_kernels
    part._compile_for_args = compile_for_call
    part.called = called
