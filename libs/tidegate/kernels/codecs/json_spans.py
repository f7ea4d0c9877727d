"""Locates many fields of JSON objects, nested ones too, in one pass over the bytes.

`json_text` decides which bytes are JSON. Of duplicate keys the last one counts, with all that it contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels.codecs.json_text import (
    AFTER,
    DEPTH,
    KEY,
    KEY_OR_END,
    OBJECT,
    VALUE,
    VALUE_OR_END,
    is_named,
    read_after_value,
    read_key,
    read_value,
    space_end,
)
from tidegate.kernels.compiled import compiled_in_place, inlined, wide

FOUND, NULL_VALUE, NO_JSON, NO_OBJECT = range(4)
"""Codes of a value: an object, or why it is none."""
MISSING = -1
"""The length of a field that the value does not have."""

Tree: TypeAlias = Mapping[str, "Tree"]
"""The names of the wanted fields; those of an object have fields of their own. The order is that of the spans."""

_NONE = -1


class Names(NamedTuple):
    """A tree of names as arrays, in depth-first order: place 0 is the value itself, `first` the first name inside it.

    `after` is the place after all that a name contains, and `next` the next name beside it; -1: none.
    """

    text: Array
    start: Array
    length: Array
    first: Array
    next: Array
    after: Array


class Spans(NamedTuple):
    """Where each field's JSON text begins and how long it is, [place in the tree, row]; and a code per row.

    The length is MISSING where there is no such field. Place 0 is the value itself.
    """

    start: Array
    length: Array
    code: Array


class _Path(NamedTuple):
    """What is open around the place that is read, by depth: the bracket, the name of the value, where it began."""

    bracket: Array
    name: Array
    began: Array


def names_of(tree: Tree) -> Names:
    """Return the tree as arrays."""
    texts, first, following, after = [b""], [_NONE], [_NONE], [0]

    def add(inside: Tree, parent: int) -> None:
        last = _NONE
        for name, below in inside.items():
            place = len(texts)
            texts.append(name.encode("utf-8", "surrogatepass"))
            for column in (first, following, after):
                column.append(_NONE)
            (first if last == _NONE else following)[parent if last == _NONE else last] = place
            last = place
            add(below, place)
        after[parent] = len(texts)

    add(tree, 0)
    lengths = np.array([len(text) for text in texts], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    links = (np.array(column, np.int64) for column in (first, following, after))
    return Names(np.frombuffer(b"".join(texts) or b"\0", np.uint8), starts, lengths, *links)


def locate(data: Array, start: Array, length: Array, names: Names) -> Spans:
    """Locate the named fields in each value `data[start : start + length]` (length -1: null)."""
    rows, places = len(start), len(names.first)
    found = Spans(np.zeros((places, rows), np.int64), np.empty((places, rows), np.int64), np.empty(rows, np.int8))
    path = _Path(np.empty(DEPTH, np.uint8), np.empty(DEPTH + 1, np.int64), np.empty(DEPTH + 1, np.int64))
    _locate(data, start, length, names, path, found)
    return found


@compiled_in_place
def _locate(data: Array, starts: Array, lengths: Array, names: Names, path: _Path, found: Spans) -> None:
    for row in range(len(starts)):
        _clear(found, row, wide(0), wide(len(names.first)))
        start, length = wide(starts[row]), wide(lengths[row])
        if length == NULL_LENGTH:
            found.code[row] = NULL_VALUE
        elif not _scan(data, start, start + length, names, path, found, row):
            found.code[row] = NO_JSON
            _clear(found, row, wide(0), wide(len(names.first)))
        else:
            found.code[row] = FOUND if data[found.start[0, row]] == OBJECT else NO_OBJECT


@inlined
def _clear(found: Spans, row: int, first: int, after: int) -> None:
    for place in range(first, after):
        found.length[place, row] = MISSING


@inlined
def _scan(data: Array, start: int, end: int, names: Names, path: _Path, found: Spans, row: int) -> bool:
    """Note the fields of one value; return whether it is JSON."""
    at = space_end(data, start, end)
    depth = wide(0)
    expected = wide(VALUE)
    path.name[0] = 0
    while 0 <= at < end and (depth > 0 or expected != AFTER):  # one iteration per member of an object
        if expected == KEY or expected == KEY_OR_END:
            key, inside = at, depth
            at, depth, expected = read_key(data, at, end, depth, expected)
            if at >= 0 and expected == VALUE:
                path.name[depth] = _named(data, key + 1, names, path.name[depth - 1])
                if path.name[depth] >= 0:
                    _clear(found, row, path.name[depth], names.after[path.name[depth]])
            elif at >= 0 and depth < inside:
                _note(found, row, path, depth, at)
            at = space_end(data, at, end)
        if 0 <= at < end and (expected == VALUE or expected == VALUE_OR_END):
            around = depth
            path.began[depth] = at
            at, depth, expected = read_value(data, at, end, depth, expected, path.bracket)
            if at >= 0 and depth > around:
                path.name[depth] = _NONE
            elif at >= 0:
                _note(found, row, path, depth, at)
            at = space_end(data, at, end)
        if 0 <= at < end and expected == AFTER and depth > 0:
            around = depth
            at, depth, expected = read_after_value(data, at, depth, path.bracket)
            if at >= 0 and depth < around:
                _note(found, row, path, depth, at)
            at = space_end(data, at, end)
    return bool(at == end and depth == 0 and expected == AFTER)


@inlined
def _named(data: Array, key: int, names: Names, around: int) -> Any:
    """Return the place of the name that the key at `key` is, among those inside the name `around`; -1: none."""
    place = names.first[around] if around >= 0 else wide(_NONE)
    while place >= 0 and not is_named(data, key, names.text, names.start[place], names.length[place]):
        place = names.next[place]
    return place


@inlined
def _note(found: Spans, row: int, path: _Path, depth: int, end: int) -> None:
    """Note that the value at this depth ends here, if it has a name."""
    name = path.name[depth]
    if name >= 0:
        found.start[name, row] = path.began[depth]
        found.length[name, row] = end - path.began[depth]
