"""Aggregates as words of 64 bits per window: how numbers are added and merged, and results are written as JSON.

All words of a window without a record are 0. A count has one word: the count. A min or max has three: a whole number, a
double, and which of the two it is. A sum has three, and an avg four: a sum and a count.

The first word of a sum is the sum of the whole numbers modulo 2**64. The second is the sum of the other numbers, as a
double that is kept within the range of doubles. The third holds two counters: the low half counts the other numbers and
saturates; the high half, signed, counts how often the first word overflowed. So the sum of whole numbers is exact
within +-2**94; it takes 2**31 of the largest whole numbers to get there. A sum beyond that is moved to the double, and
counts as one of the other numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

COUNT, SUM, MIN, MAX, AVG = range(5)
KINDS = ("count", "sum", "min", "max", "avg")
_WIDTHS = (1, 3, 3, 3, 4)

_NOTHING, _WHOLE, _DOUBLE = range(3)
_LARGEST = 2**63 - 1
_SMALLEST = -(2**63)
_EXACT = 2**53
"""Whole numbers below it are exact as doubles, so a quotient of two is the nearest double."""
_CARRY = 2**32
_MOST_CARRIES = 2**30
_LARGEST_DOUBLE = float(np.finfo(np.float64).max)


class Plan(NamedTuple):
    """Per aggregate: its kind, the number that it reads (a row of Numbers), and its first word."""

    kind: Array
    number: Array
    word: Array


class Numbers(NamedTuple):
    """The numbers of a batch's records, [number, row]: as whole numbers, as doubles, and which of the two each is."""

    whole: Array
    double: Array
    is_double: Array


class Words(NamedTuple):
    """The words of all windows, one window after the other, as int64 and as float64 over the same memory."""

    whole: Array
    double: Array


def plan(kinds: list[int], numbers: list[int]) -> Plan:
    """Return the plan of aggregates of those kinds, which read those numbers."""
    words = np.cumsum([0, *(_WIDTHS[kind] for kind in kinds)])
    return Plan(np.array(kinds, np.int64), np.array(numbers, np.int64), words.astype(np.int64))


def width(plan: Plan) -> int:
    """Return the number of words per window."""
    return int(plan.word[-1])


@inlined
def clear(words: Words, base: int, plan: Plan) -> None:
    """Reset the window's words to those of a window without a record."""
    for word in range(plan.word[-1]):
        words.whole[base + word] = 0


@inlined
def add(words: Words, base: int, plan: Plan, numbers: Numbers, row: int) -> None:
    """Add the row's record to the window whose words begin at `base`."""
    for at in range(len(plan.kind)):
        word = base + plan.word[at]
        kind = plan.kind[at]
        if kind == COUNT:
            words.whole[word] += 1
            continue
        number = plan.number[at]
        whole = numbers.whole[number, row]
        double = numbers.double[number, row]
        which = _DOUBLE if numbers.is_double[number, row] else _WHOLE
        if kind in (SUM, AVG) and which == _WHOLE:
            _add_whole(words, word, whole, wide(0))
        elif kind in (SUM, AVG):
            _add_double(words, word, double, wide(1))
        else:
            _keep(words, word, kind, whole, double, which)
        if kind == AVG:
            words.whole[word + 3] += 1


@inlined
def merge(words: Words, base: int, other: int, plan: Plan) -> None:
    """Add the records of the window whose words begin at `other` to the window whose words begin at `base`."""
    for at in range(len(plan.kind)):
        word = base + plan.word[at]
        source = other + plan.word[at]
        kind = plan.kind[at]
        if kind == COUNT:
            words.whole[word] += words.whole[source]
        elif kind in (SUM, AVG):
            _add_whole(words, word, words.whole[source], _carries(words.whole[source + 2]))
            if _others(words.whole[source + 2]) != 0:
                _add_double(words, word, words.double[source + 1], _others(words.whole[source + 2]))
        elif words.whole[source + 2] != _NOTHING:
            _keep(words, word, kind, words.whole[source], words.double[source + 1], words.whole[source + 2])
        if kind == AVG:
            words.whole[word + 3] += words.whole[source + 3]


@inlined
def _add_whole(words: Words, word: int, whole: int, carries: int) -> None:
    """Add a whole number, and `carries` times 2**64, to the sum."""
    held = words.whole[word]
    if whole > 0 and held > _LARGEST - whole:  # held + whole - 2**64, without an overflow of int64
        words.whole[word] = (held + _SMALLEST) + (whole + _SMALLEST)
        carries += 1
    elif whole < 0 and held < _SMALLEST - whole:  # held + whole + 2**64
        words.whole[word] = (held - _SMALLEST) + (whole - _SMALLEST)
        carries -= 1
    else:
        words.whole[word] = held + whole
    if carries != 0:
        _carry(words, word, carries)


@inlined
def _carry(words: Words, word: int, carries: int) -> None:
    """Add `carries` times 2**64 to the sum; if the count of carries grows too large, move the sum to the double."""
    total = _carries(words.whole[word + 2]) + carries
    if abs(total) > _MOST_CARRIES:
        _add_double(words, word, np.float64(words.whole[word]) + total * 2.0**64, wide(1))
        words.whole[word] = 0
        total = wide(0)
    words.whole[word + 2] = total * _CARRY + _others(words.whole[word + 2])


@inlined
def _add_double(words: Words, word: int, double: float, others: int) -> None:
    """Add a double, which is the sum of `others` other numbers, to the sum."""
    total = words.double[word + 1] + double
    words.double[word + 1] = min(max(total, -_LARGEST_DOUBLE), _LARGEST_DOUBLE)
    count = _others(words.whole[word + 2])
    words.whole[word + 2] += min(count + others, _CARRY - 1) - count


@inlined
def _carries(word: int) -> Any:
    return word >> 32


@inlined
def _others(word: int) -> Any:
    return word & (_CARRY - 1)


@inlined
def _keep(words: Words, word: int, kind: int, whole: int, double: float, which: int) -> None:
    """Replace the held number if the given one is smaller (MIN) or larger (MAX); of equal ones the first stays."""
    held = words.whole[word + 2]
    if held == _NOTHING or _precedes(words, word, held, kind, whole, double, which):
        words.whole[word] = whole
        words.double[word + 1] = double
        words.whole[word + 2] = which


@inlined
def _precedes(words: Words, word: int, held: int, kind: int, whole: int, double: float, which: int) -> Any:
    if held == _WHOLE and which == _WHOLE:
        return whole < words.whole[word] if kind == MIN else whole > words.whole[word]
    mine = np.float64(words.whole[word]) if held == _WHOLE else words.double[word + 1]
    other = np.float64(whole) if which == _WHOLE else double
    return other < mine if kind == MIN else other > mine


class Writing(NamedTuple):
    """How results are written: the names of the plan's aggregates, and those of all results in order.

    `is_object`: whether they are JSON objects; otherwise the only result is a bare value.
    """

    plan: Plan
    planned: tuple[str, ...]
    names: tuple[str, ...]
    is_object: bool

    def results(self, words: Array) -> pa.Array:
        """Return the results of windows as JSON, given their words [window, word]."""
        return self.as_json(self.texts(words))

    def texts(self, words: Array) -> dict[str, pa.Array]:
        """Return the plan's results by name, as JSON; null for a min, max or avg without a record."""
        planned = zip(self.planned, self.plan.kind, self.plan.word, strict=False)
        return {name: _texts(int(kind), words[:, first:]) for name, kind, first in planned}

    def as_json(self, texts: Mapping[str, pa.Array]) -> pa.Array:
        """Return the texts, by the names of the results, as JSON."""
        if not self.is_object:
            return texts[self.names[0]].cast(pa.binary())
        parts: list[Any] = []
        for sign, name in zip("{" + "," * len(self.names), self.names, strict=False):
            parts += [f"{sign}{json.dumps(name, ensure_ascii=False)}:".encode(), texts[name].cast(pa.binary())]
        return pc.binary_join_element_wise(*parts, b"}", b"")


def _texts(kind: int, words: Array) -> pa.Array:
    if kind == COUNT:
        return pa.array(words[:, 0]).cast(pa.string())
    whole, double, others = words[:, 0], np.ascontiguousarray(words[:, 1]).view(np.float64), words[:, 2]
    if kind in (MIN, MAX):
        return _unless(others == _NOTHING, _either(whole, double, others == _DOUBLE))
    carries, others = others >> 32, others & (_CARRY - 1)
    sums = _sums(whole, carries)
    total = np.clip(np.array(sums, np.float64) + double, -_LARGEST_DOUBLE, _LARGEST_DOUBLE)
    if kind == AVG:
        counts = np.maximum(words[:, 3], 1)
        mean = np.array(sums / counts.astype(sums.dtype), np.float64)
        return _unless(words[:, 3] == 0, pa.array(np.where(others == 0, mean, total / counts)).cast(pa.string()))
    text = pa.array(sums).cast(pa.string()) if sums.dtype == np.int64 else pa.array(map(str, sums), pa.string())
    return pc.if_else(pa.array(others != 0), pa.array(total).cast(pa.string()), text)


def _sums(whole: Array, carries: Array) -> Array:
    """Return the sums of whole numbers: as int64 where arithmetic with doubles is exact, otherwise as Python
    integers."""
    if carries.any() or np.any(np.abs(whole // 2) >= _EXACT // 2):
        exact: Array = whole.astype(object) + carries.astype(object) * 2**64
        return exact
    return whole


def _unless(nothing: Array, text: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(nothing), "null", text) if nothing.any() else text


def _either(whole: Array, double: Array, is_double: Array) -> pa.Array:
    return pc.if_else(pa.array(is_double), pa.array(double).cast(pa.string()), pa.array(whole).cast(pa.string()))
