"""Compute the values of windows that fired, from their elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels.columns import assemble, binary_column
from tidegate.kernels.compiled import compiled_in_place, inlined
from tidegate.kernels.compiled.words import WORD, copy_bytes
from tidegate.operators.json_values import json_fields
from tidegate.operators.json_values.json_fields import Path
from tidegate.operators.windowed_aggregation import aggregates
from tidegate.operators.windowed_aggregation.aggregates import Numbers, Plan, Words, Writing
from tidegate.operators.windowed_aggregation.config import Aggregates, JsonField
from tidegate.operators.windowed_aggregation.config.aggregates import OF_ELEMENTS
from tidegate.operators.windowed_aggregation.elements.store import Elements

_NULL = np.frombuffer(b"null", np.uint8)
_OPEN, _COMMA, _CLOSE = b"[,]"


@dataclass(frozen=True)
class Lists:
    """Elements by window: those of window w are slots[offsets[w] : offsets[w + 1]]."""

    slots: Array
    offsets: Array

    def without(self, gone: Array) -> Lists:
        """Return the lists without the elements for which `gone` is true."""
        kept = np.concatenate([[0], np.cumsum(~gone)])
        return Lists(self.slots[~gone], kept[self.offsets])


class Texts(NamedTuple):
    """A JSON text per element: at `start` in `data` if that is >= 0, else at `~start` in `arena`."""

    data: Array
    arena: Array
    start: Array
    length: Array


def values(elements: Elements, lists: Lists) -> pa.Array:
    """Return the values of the listed elements as one binary array. Raises UserError if they are too large for one."""
    start, length = places_of(elements, lists.slots)
    found = binary_column(_NULL, elements.payloads.arena.data, ~start, length)
    if found.num_chunks > 1:
        raise UserError(
            "a window's elements are more than a function can get", value="2 GiB", remedy="evict more, or shorten it"
        )
    return found.chunk(0) if found.num_chunks else pa.array([], pa.binary())


def results(elements: Elements, lists: Lists, writing: Writing, config: Aggregates) -> pa.Array:
    """Return the results of the aggregates, as JSON."""
    found = _numeric(elements, lists, writing) if writing.planned else {}
    for name, kind, source in config.entries:
        if kind in OF_ELEMENTS:
            texts = (
                _fields(elements, lists.slots, source.names) if isinstance(source, JsonField) else _all(elements, lists)
            )
            found[name] = _collected(texts, lists) if kind == "collect" else _one(texts, lists, kind == "last")
    return writing.as_json(found)


def _numeric(elements: Elements, lists: Lists, writing: Writing) -> dict[str, pa.Array]:
    plan, shape = writing.plan, (-1, elements.width)
    whole, double = (
        np.ascontiguousarray(amounts.reshape(shape)[lists.slots].T) if elements.width else np.zeros((0, 0), kind)
        for amounts, kind in ((elements.whole, np.int64), (elements.double, np.float64))
    )
    doubles = elements.is_double.reshape(shape)[lists.slots].T if elements.width else np.zeros((0, 0))
    words = np.zeros((len(lists.offsets) - 1, aggregates.width(plan)), np.int64)
    flat = words.reshape(-1)
    numbers = Numbers(whole, double, np.ascontiguousarray(doubles).astype(np.bool_))
    _add_up(numbers, lists.offsets, plan, Words(flat, flat.view(np.float64)))
    return writing.texts(words)


@compiled_in_place
def _add_up(numbers: Numbers, offsets: Array, plan: Plan, words: Words) -> None:
    """Add the numbers of each window's elements to the window's words."""
    for window in range(len(offsets) - 1):
        for row in range(offsets[window], offsets[window + 1]):
            aggregates.add(words, window * plan.word[-1], plan, numbers, row)


def places_of(elements: Elements, slots: Array) -> tuple[Array, Array]:
    """Return where the elements' values are in the arena, and their lengths (-1: null)."""
    stored = elements.payloads
    return stored.block[slots].astype(np.int64) * WORD, stored.value_length[slots].astype(np.int64)


def _all(elements: Elements, lists: Lists) -> Texts:
    """Return the values themselves, which are JSON or null."""
    start, length = places_of(elements, lists.slots)
    missing = length == NULL_LENGTH
    return Texts(
        _NULL, elements.payloads.arena.data, np.where(missing, 0, ~start), np.where(missing, len(_NULL), length)
    )


def _fields(elements: Elements, slots: Array, field: Path) -> Texts:
    """Return the text of a field in each value, as it is written; each value is a JSON object that has the field."""
    [found] = json_fields.locate(elements.payloads.arena.data, *places_of(elements, slots), [field])
    return Texts(_NULL, found.data, ~found.start, found.length)


def _one(texts: Texts, lists: Lists, last: bool) -> pa.ChunkedArray:
    """Return the first or the last text of each list; null for an empty list."""
    empty = lists.offsets[:-1] == lists.offsets[1:]
    at = np.where(empty, 0, lists.offsets[1:] - 1 if last else lists.offsets[:-1])
    if not len(texts.start):
        return pa.chunked_array([pa.array([b"null"] * len(at), pa.binary())])
    found = binary_column(texts.data, texts.arena, texts.start[at], texts.length[at])
    return pa.chunked_array([pa.array(np.where(empty, b"null", found.to_numpy(zero_copy_only=False)))])


def _collected(texts: Texts, lists: Lists) -> pa.ChunkedArray:
    """Return all texts of each list, as a JSON array."""
    before = np.concatenate([[0], np.cumsum(texts.length)])[lists.offsets]
    lengths = np.diff(before) + 2 + np.maximum(np.diff(lists.offsets) - 1, 0)

    def write(rows: slice, content: Array) -> None:
        _write_lists(texts, lists.offsets, rows.start, rows.stop, content)

    return assemble(lengths, write)


@compiled_in_place
def _write_lists(texts: Texts, offsets: Array, first: int, last: int, content: Array) -> None:
    at = 0
    for window in range(first, last):
        content[at] = _OPEN
        at += 1
        for row in range(offsets[window], offsets[window + 1]):
            if row > offsets[window]:
                content[at] = _COMMA
                at += 1
            at = _write(texts, row, content, at)
        content[at] = _CLOSE
        at += 1


@inlined
def _write(texts: Texts, row: int, content: Array, at: int) -> int:
    if texts.start[row] >= 0:
        copy_bytes(texts.data, texts.start[row], content, at, texts.length[row])
    else:
        copy_bytes(texts.arena, ~texts.start[row], content, at, texts.length[row])
    return at + int(texts.length[row])
