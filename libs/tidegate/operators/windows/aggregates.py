"""Aggregates as words of 64 bits per window: how numbers are added, merged and told.

May import: numpy, pyarrow, contracts, kernels.

A count is one word. A number that is summed has three: the sum of its whole numbers while it fits, the sum of the
others and of what no longer fitted (which stays within the range of doubles), and how many of those there were. The
smallest and the largest have three: a whole number, another number, and which of them it is. A mean has a sum and a
count. All words of a window that has no record yet are 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined

COUNT, SUM, MIN, MAX, AVG = range(5)
NAMES = ("count", "sum", "min", "max", "avg")
_WIDTHS = (1, 3, 3, 3, 4)

_NOTHING, _WHOLE, _DOUBLE = range(3)
_LARGEST = 2**63 - 1
_SMALLEST = -(2**63)
_LARGEST_DOUBLE = float(np.finfo(np.float64).max)


class Plan(NamedTuple):
    """Per aggregate: what it is, the number that it reads (a row of Numbers), and its first word."""

    kind: Array
    number: Array
    word: Array


class Numbers(NamedTuple):
    """The numbers that a batch's records have, [number, row]: as whole numbers, as doubles, and which it is."""

    whole: Array
    double: Array
    is_double: Array


class Words(NamedTuple):
    """All windows' words, one window after the other, as int64 and as float64 over the same memory."""

    whole: Array
    double: Array


def plan(kinds: list[int], numbers: list[int]) -> Plan:
    """The plan of those aggregates."""
    words = np.cumsum([0, *(_WIDTHS[kind] for kind in kinds)])
    return Plan(np.array(kinds, np.int64), np.array(numbers, np.int64), words.astype(np.int64))


def width(plan: Plan) -> int:
    """How many words a window has."""
    return int(plan.word[-1])


@inlined
def clear(words: Words, base: int, plan: Plan) -> None:
    """The window has no record."""
    for word in range(plan.word[-1]):
        words.whole[base + word] = 0


@inlined
def add(words: Words, base: int, plan: Plan, numbers: Numbers, row: int) -> None:
    """The window whose words begin at `base` has the row's record."""
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
        if kind in (SUM, AVG):
            _add_number(words, word, whole, double, which)
        else:
            _keep(words, word, kind, whole, double, which)
        if kind == AVG:
            words.whole[word + 3] += 1


@inlined
def merge(words: Words, base: int, other: int, plan: Plan) -> None:
    """The window whose words begin at `base` has the records of the other one, too."""
    for at in range(len(plan.kind)):
        word = base + plan.word[at]
        source = other + plan.word[at]
        kind = plan.kind[at]
        if kind == COUNT:
            words.whole[word] += words.whole[source]
        elif kind in (SUM, AVG):
            _add_number(words, word, words.whole[source], words.double[source + 1], _WHOLE)
            if words.whole[source + 2] != 0:
                _add_number(words, word, words.whole[source], words.double[source + 1], _DOUBLE)
                words.whole[word + 2] += words.whole[source + 2] - 1
        elif words.whole[source + 2] != _NOTHING:
            _keep(words, word, kind, words.whole[source], words.double[source + 1], words.whole[source + 2])
        if kind == AVG:
            words.whole[word + 3] += words.whole[source + 3]


@inlined
def _add_number(words: Words, word: int, whole: int, double: float, which: int) -> None:
    if which == _WHOLE:
        held = words.whole[word]
        if (whole > 0 and held > _LARGEST - whole) or (whole < 0 and held < _SMALLEST - whole):
            words.double[word + 1] += np.float64(held)
            words.whole[word + 2] += 1
            held = 0
        words.whole[word] = held + whole
    else:
        total = words.double[word + 1] + double
        words.double[word + 1] = min(max(total, -_LARGEST_DOUBLE), _LARGEST_DOUBLE)
        words.whole[word + 2] += 1


@inlined
def _keep(words: Words, word: int, kind: int, whole: int, double: float, which: int) -> None:
    """The smaller (larger) one of the number held and the other is held; of equal ones the first."""
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


def results(plan: Plan, words: Array) -> pa.Array:
    """What some windows' words ([window, word]) amount to, as JSON: a number, or an object of several."""
    return as_json(texts(plan, words))


def texts(plan: Plan, words: Array) -> dict[str, pa.Array]:
    """What each aggregate of the words amounts to, as JSON by its name; null where there is no record to tell of."""
    return {
        NAMES[int(kind)]: _texts(int(kind), words[:, first:]) for kind, first in zip(plan.kind, plan.word, strict=False)
    }


def as_json(texts: Mapping[str, pa.Array]) -> pa.Array:
    """One text as it is, or an object of several."""
    whole = {name: text.cast(pa.binary()) for name, text in texts.items()}
    if len(whole) == 1:
        return next(iter(whole.values()))
    parts: list[Any] = []
    for sign, (name, text) in zip("{" + "," * len(whole), whole.items(), strict=False):
        parts += [f'{sign}"{name}":'.encode(), text]
    return pc.binary_join_element_wise(*parts, b"}", b"")


def _texts(kind: int, words: Array) -> pa.Array:
    if kind == COUNT:
        return pa.array(words[:, 0]).cast(pa.string())
    whole, double, others = words[:, 0], np.ascontiguousarray(words[:, 1]).view(np.float64), words[:, 2]
    if kind in (MIN, MAX):
        return _unless(others == _NOTHING, _either(whole, double, others == _DOUBLE))
    total = np.clip(whole + double, -_LARGEST_DOUBLE, _LARGEST_DOUBLE)
    if kind == AVG:
        counts = words[:, 3]
        mean = np.where(others == 0, whole, total) / np.maximum(counts, 1)
        return _unless(counts == 0, pa.array(mean).cast(pa.string()))
    return _either(whole, total, others != 0)


def _unless(nothing: Array, text: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(nothing), "null", text) if nothing.any() else text


def _either(whole: Array, double: Array, is_double: Array) -> pa.Array:
    return pc.if_else(pa.array(is_double), pa.array(double).cast(pa.string()), pa.array(whole).cast(pa.string()))
