"""Locates many fields of JSON objects, nested ones too, in one pass over the bytes.

`json_text` decides which bytes are JSON. Of duplicate keys the last one counts, with all that it contains.

A value is scalars, and gaps around them: keys, white space and all other signs. Most values of a topic have the gaps of
the value before. Then only their scalars are read: what is JSON with these gaps is JSON with any other scalars there,
and its fields are between the same gaps.
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
    scalar_end,
    space_end,
)
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import WORD, word_at
from tidegate.kernels.hash_index import same_bytes

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


class Path(NamedTuple):
    """What is open around the place that is read, by depth: the bracket, the name of the value, and where it began.

    `gap`: the gap in which it began.
    """

    bracket: Array
    name: Array
    began: Array
    gap: Array


class Shape(NamedTuple):
    """The gaps of the value that was read last, and where between them its fields are.

    Gap i is `data[begin[i] : end[i]]`. Scalar i is behind it, up to `begin[i + 1]`. `gaps`: how many there are, as an
    array of one; 0 if the value was not JSON. The field of a name begins `head` bytes behind the beginning of gap
    `first`, which is MISSING if there is none, and ends `tail` bytes behind that of gap `last`.
    """

    gaps: Array
    begin: Array
    end: Array
    first: Array
    head: Array
    last: Array
    tail: Array


SCALARS = 1024
"""How many scalars of a value may differ from those of the value before; what is behind them is one gap."""
_ALL = -1


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
    _locate(data, start, length, names, *scratch_of(names), found)
    return found


def scratch_of(names: Names) -> tuple[Path, Shape]:
    """Return what `find` works with, without the shape of a value."""
    path = Path(np.empty(DEPTH, np.uint8), *(np.empty(DEPTH + 1, np.int64) for _ in Path._fields[1:]))
    sizes = (1, *[SCALARS + 1] * 2, *[len(names.first)] * 4)
    return path, Shape(*(np.zeros(size, np.int64) for size in sizes))


@compiled_in_place
def _locate(data: Array, starts: Array, lengths: Array, names: Names, path: Path, shape: Shape, found: Spans) -> None:
    for row in range(len(starts)):
        start, end = wide(starts[row]), wide(starts[row]) + wide(lengths[row])
        if lengths[row] == NULL_LENGTH:
            found.code[row] = NULL_VALUE
            _fill(found, row, shape, False)
            continue
        code = find(data, start, end, names, path, shape)
        _fill(found, row, shape, code != NO_JSON)
        found.code[row] = code


@inlined
def find(data: Array, start: int, end: int, names: Names, path: Path, shape: Shape) -> Any:
    """Find the shape of the value `data[start:end]`; return its code.

    `shape` has that of the value before, and `path` is scratch.
    """
    known = _follow(data, start, end, shape)
    if known != _ALL and not _scan(data, start, end, names, path, shape, known):
        return wide(NO_JSON)
    return wide(FOUND if data[field_start(shape, 0)] == OBJECT else NO_OBJECT)


@inlined
def field_start(shape: Shape, place: int) -> Any:
    """Return where a field begins that is there."""
    return shape.begin[shape.first[place]] + shape.head[place]


@inlined
def field_end(shape: Shape, place: int) -> Any:
    """Return where a field ends that is there."""
    return shape.begin[shape.last[place]] + shape.tail[place]


@inlined
def _fill(found: Spans, row: int, shape: Shape, is_json: bool) -> None:
    """Write where the fields of the value are that has this shape."""
    for place in range(len(shape.first)):
        found.length[place, row] = MISSING
        if is_json and shape.first[place] != MISSING:
            found.start[place, row] = field_start(shape, place)
            found.length[place, row] = field_end(shape, place) - field_start(shape, place)


@inlined
def _follow(data: Array, start: int, end: int, shape: Shape) -> Any:
    """Move the shape to this value, if it has that shape; return _ALL if so.

    Otherwise, return how many scalars are where the shape has them. These have been moved.
    """
    at = start
    for gap in range(shape.gaps[0]):
        begin, length = wide(shape.begin[gap]), wide(shape.end[gap] - shape.begin[gap])
        shape.begin[gap] = at
        if length > end - at or not _are_equal(data, begin, at, length):
            return wide(gap)
        at += length
        shape.end[gap] = at
        if gap + 1 < shape.gaps[0]:
            at = scalar_end(data, at, end) if at < end else wide(-1)
            if at < 0:
                return wide(gap)
    return wide(_ALL if at == end and shape.gaps[0] > 0 else max(shape.gaps[0] - 1, 0))


@inlined
def _are_equal(data: Array, left: int, right: int, length: int) -> bool:
    """Return whether the `length` bytes at both positions are equal."""
    if length >= WORD:
        return same_bytes(data, left, data, right, length)
    if max(left, right) + WORD <= len(data):  # the words may reach beyond the values, but not beyond the bytes
        return bool((word_at(data, left) ^ word_at(data, right)) & ((1 << 8 * length) - 1) == 0)
    for at in range(length):
        if data[left + at] != data[right + at]:
            return False
    return True


@inlined
def _scan(data: Array, start: int, end: int, names: Names, path: Path, shape: Shape, known: int) -> bool:
    """Find the shape of one value; return whether it is JSON.

    The first `known` scalars are where the shape has them already.
    """
    at = space_end(data, start, end)
    depth, scalars, expected = wide(0), wide(0), wide(VALUE)
    path.name[0] = 0
    shape.begin[0] = start
    _clear(shape, 0, len(shape.first))
    while 0 <= at < end and (depth > 0 or expected != AFTER):  # one iteration per member of an object
        if expected == KEY or expected == KEY_OR_END:
            key, inside = at, depth
            at, depth, expected = read_key(data, at, end, depth, expected)
            if at >= 0 and expected == VALUE:
                path.name[depth] = _named(data, key + 1, names, path.name[depth - 1])
                if path.name[depth] >= 0:
                    _clear(shape, path.name[depth], names.after[path.name[depth]])
            elif at >= 0 and depth < inside:
                _note(shape, path, depth, at, scalars)
            at = space_end(data, at, end)
        if 0 <= at < end and (expected == VALUE or expected == VALUE_OR_END):
            around, began = depth, at
            path.began[depth], path.gap[depth] = at, scalars
            if scalars < known and at == shape.end[scalars]:
                at, expected = wide(shape.begin[scalars + 1]), wide(AFTER)
            else:
                at, depth, expected = read_value(data, at, end, depth, expected, path.bracket)
            if at >= 0 and depth == around and scalars < SCALARS:
                shape.end[scalars] = began
                scalars += 1
                shape.begin[scalars] = at
            if at >= 0 and depth > around:
                path.name[depth] = _NONE
            elif at >= 0:
                _note(shape, path, depth, at, scalars)
            at = space_end(data, at, end)
        if 0 <= at < end and expected == AFTER and depth > 0:
            around = depth
            at, depth, expected = read_after_value(data, at, depth, path.bracket)
            if at >= 0 and depth < around:
                _note(shape, path, depth, at, scalars)
            at = space_end(data, at, end)
    is_json = at == end and depth == 0 and expected == AFTER
    shape.end[scalars] = end
    shape.gaps[0] = scalars + 1 if is_json else 0
    return bool(is_json)


@inlined
def _clear(shape: Shape, first: int, after: int) -> None:
    for place in range(first, after):
        shape.first[place] = MISSING


@inlined
def _named(data: Array, key: int, names: Names, around: int) -> Any:
    """Return the place of the name that the key at `key` is, among those inside the name `around`; -1: none."""
    place = names.first[around] if around >= 0 else wide(_NONE)
    while place >= 0 and not is_named(data, key, names.text, names.start[place], names.length[place]):
        place = names.next[place]
    return place


@inlined
def _note(shape: Shape, path: Path, depth: int, end: int, gap: int) -> None:
    """Note that the value at this depth ends here, in that gap, if it has a name."""
    name = path.name[depth]
    if name >= 0:
        first = path.gap[depth]
        shape.first[name], shape.head[name] = first, path.began[depth] - shape.begin[first]
        shape.last[name], shape.tail[name] = gap, end - shape.begin[gap]
