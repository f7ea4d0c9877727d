"""Access to the bytes of flat arrays, eight at a time or in blocks.

This is the only module that generates code, because numba has no unaligned load, block copy or prefetch. Each function
comes first in plain Python, which is what runs with `TIDEGATE_NUMBA=off`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import CHECKED, NUMBA_ON, inlined

WORD = 8


def word_at(data: Array, at: int) -> Any:
    """Return the eight bytes from `at` on as a little-endian int64. They must all be inside the array."""
    return np.int64(int.from_bytes(data[at : at + WORD].tobytes(), "little", signed=True))


def product(left: int, right: int) -> Any:
    """Return the product modulo 2**64, as an int64."""
    return np.int64((int(left) * int(right) + 2**63) % 2**64 - 2**63)


def folded(left: int, right: int) -> Any:
    """Return the two halves of the unsigned 128-bit product, XORed with each other, as an int64."""
    whole = (int(left) % 2**64) * (int(right) % 2**64)
    return np.int64(((whole ^ (whole >> 64)) + 2**63) % 2**64 - 2**63)


def first_byte(word: int) -> Any:
    """Return which byte of the word, which is not 0, is the first that is not 0; the lowest byte is number 0."""
    return np.int64(((int(word) & -int(word)).bit_length() - 1) // WORD)


def copy_bytes(source: Array, start: int, target: Array, at: int, length: int) -> None:
    """Copy `length` bytes (>= 0) from the source to the target. The two must not overlap."""
    target[at : at + length] = source[start : start + length]


def prefetch(data: Array, at: int) -> None:
    """Start loading the item at that position, if there is one, into the cache. The array may be strided."""


if NUMBA_ON:
    from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
    from numba.core import cgutils, types  # type: ignore[import-untyped, unused-ignore]
    from numba.extending import intrinsic  # type: ignore[import-untyped, unused-ignore]

    def _address(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
        return builder.gep(context.make_array(kind)(context, builder, array).data, [at])

    def _item(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
        whole = context.make_array(kind)(context, builder, array)
        (stride,) = cgutils.unpack_tuple(builder, whole.strides)
        return builder.add(builder.ptrtoint(whole.data, stride.type), builder.mul(at, stride))

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def word_at(typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = _address(context, builder, signature.args[0], *arguments)
            return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

        return types.int64(data, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def product(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.mul(*arguments)

        return types.int64(types.int64, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def folded(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, double = ir.IntType(64), ir.IntType(128)
            whole = builder.mul(*(builder.zext(argument, double) for argument in arguments))
            upper = builder.trunc(builder.lshr(whole, ir.Constant(double, 64)), word)
            return builder.xor(builder.trunc(whole, word), upper)

        return types.int64(types.int64, types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def first_byte(typing: Any, word: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            bit = builder.cttz(*arguments, ir.Constant(ir.IntType(1), 1))
            return builder.lshr(bit, ir.Constant(bit.type, 3))  # eight bits a byte

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def copy_bytes(typing: Any, source: Any, start: Any, target: Any, at: Any, length: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            of, start, into, at, length = arguments
            source = _address(context, builder, signature.args[0], of, start)
            target = _address(context, builder, signature.args[2], into, at)
            cgutils.raw_memcpy(builder, target, source, length, 1)
            return context.get_dummy_value()

        number = types.int64
        return types.void(source, number, target, number, number), generate

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def prefetch(typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            address = builder.inttoptr(_item(context, builder, signature.args[0], *arguments), byte)
            builder.call(fetch, [address, *(number(word) for word in (0, 3, 1))])  # for reading, to be kept, data cache
            return context.get_dummy_value()

        return types.void(data, types.int64), generate


if CHECKED:
    load_word, copy_block = word_at, copy_bytes

    @inlined
    def word_at(data: Array, at: int) -> Any:
        if not 0 <= at <= len(data) - WORD:
            raise IndexError("a word outside of its array")
        return load_word(data, at)

    @inlined
    def copy_bytes(source: Array, start: int, target: Array, at: int, length: int) -> None:
        if length != 0 and not (0 <= start <= len(source) - length and 0 <= at <= len(target) - length and length > 0):
            raise IndexError("a block outside of its array")
        copy_block(source, start, target, at, length)
