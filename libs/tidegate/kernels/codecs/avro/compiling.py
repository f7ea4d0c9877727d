"""Compiles how values of a writer's schema are read into the columns of a reader's schema.

It follows the schema resolution of Avro's specification: fields are found by name or alias, others have the reader's
default, and numbers are promoted. What the reader's schema cannot take becomes an instruction that fails, so that only
values which have it are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import orjson

from tidegate.contracts.errors import InvalidValue
from tidegate.kernels.codecs.avro import program as instructions
from tidegate.kernels.codecs.avro.layout import Column
from tidegate.kernels.codecs.avro.program import DEPTH, NO_SLOT, Program
from tidegate.kernels.codecs.avro.schemas import Schema, Type, logical, name_of

_READ: dict[tuple[str, str], int] = {
    ("boolean", "boolean"): instructions.BOOL,
    ("int", "int"): instructions.INT,
    ("int", "long"): instructions.INT,
    ("long", "long"): instructions.LONG,
    ("float", "float"): instructions.FLOAT,
    ("float", "double"): instructions.FLOAT,
    ("double", "double"): instructions.DOUBLE,
    **{(number, real): instructions.AS_DOUBLE for number in ("int", "long") for real in ("float", "double")},
    **{(given, text): instructions.SPAN for given in ("string", "bytes") for text in ("string", "bytes")},
}
"""The instruction that reads what is written as the first type into a column of the second."""


class Compiled(NamedTuple):
    """A program, and of the columns that are JSON text what values are in the writer's schema, by slot."""

    program: Program
    texts: Mapping[int, Type]


class Constants:
    """The bytes of the reader's defaults."""

    def __init__(self) -> None:
        self._bytes = bytearray(b"\0")  # a kernel may look at the first byte

    def add(self, content: bytes) -> tuple[int, int]:
        """Return where the bytes are, as `~position`, and how many there are."""
        position = len(self._bytes)
        self._bytes += content
        return ~position, len(content)

    @property
    def data(self) -> Any:
        """Return the bytes of all constants."""
        return np.frombuffer(bytes(self._bytes), np.uint8)


def compile_reader(
    writer: Schema, layout: Sequence[Column], reader: Mapping[str, Any], constants: Constants
) -> Compiled:
    """Return the program that reads a writer's values into the columns. `reader`: the reader's record.

    Raise InvalidValue if the schema is too deep, or has a type that contains itself.
    """
    if _short(writer.record["name"]) not in _names(reader):
        return refusing()
    compiler = _Compiler(writer, constants)
    compiler.record(writer.record, layout)
    return compiler.compiled()


def refusing() -> Compiled:
    """Return the program for which every value is UNREADABLE."""
    nothing = np.zeros(1, np.int64)
    return Compiled(Program(nothing + instructions.FAIL, nothing, nothing, nothing, nothing), {})


class _Compiler:
    def __init__(self, writer: Schema, constants: Constants) -> None:
        self._writer, self._constants = writer, constants
        self._program: list[list[int]] = []
        self._table: list[int] = []
        self._texts: dict[int, Type] = {}
        self._depth = 0
        self._around: list[str] = []

    def compiled(self) -> Compiled:
        """Return what has been compiled."""
        code, slot, argument, target = np.array(self._program, np.int64).reshape(-1, 4).T.copy()
        table = np.array([*self._table, 0], np.int64)
        return Compiled(Program(code, slot, argument, target, table), self._texts)

    def record(self, written: Mapping[str, Any], columns: Sequence[Column]) -> None:
        """Read a record's fields into the columns, and skip the others."""
        found = _found_as({field["name"] for field in written["fields"]}, columns)
        with self._inside(written):
            for field in written["fields"]:
                if field["name"] in found:
                    self._read(field["type"], found[field["name"]])
                else:
                    self._skip(field["type"])
        read = {column.slot for column in found.values()}
        for column in columns:
            if column.slot not in read:
                self._default(column, column.default)

    def _emit(self, code: int, slot: int = NO_SLOT, argument: int = 0, target: int = 0) -> None:
        self._program.append([code, slot, argument, target])

    @contextmanager
    def _inside(self, named: Mapping[str, Any]) -> Iterator[None]:
        if named["name"] in self._around:
            raise InvalidValue(f"type {named['name']} contains itself", "write values without such a type")
        self._around.append(named["name"])
        yield
        self._around.pop()

    @contextmanager
    def _deeper(self) -> Iterator[int]:
        if self._depth == DEPTH:
            raise InvalidValue(f"arrays and maps are nested {DEPTH} deep", "write values that are less deep")
        self._depth += 1
        yield self._depth - 1
        self._depth -= 1

    def _branches(self, union: Sequence[Type]) -> Iterator[Type]:
        """Yield the types of a union; what is emitted for each is what its branch does.

        Null comes first, because the branch that comes last needs no jump.
        """
        first = len(self._table)
        self._table += [0] * len(union)
        self._emit(instructions.UNION, argument=len(union), target=first)
        order = sorted(range(len(union)), key=lambda at: name_of(self._writer.resolved(union[at])) != "null")
        jumps = []
        for at in order:
            if at != order[0]:
                jumps.append(len(self._program))
                self._emit(instructions.JUMP)
            self._table[first + at] = len(self._program)
            yield union[at]
        for jump in jumps:
            self._program[jump][3] = len(self._program)

    def _read(self, type: Type, column: Column) -> None:
        if column.is_text:
            return self._text(type, column)
        written = self._writer.resolved(type)
        if isinstance(written, list):
            for each in self._branches(written):
                self._read(each, column)
        elif name_of(written) == "null":
            self._null(column)
        else:
            self._value(written, column)
        return None

    def _null(self, column: Column) -> None:
        if column.nullable:
            self._emit(instructions.NULL, column.slot, column.after)
        else:
            self._emit(instructions.FAIL)

    def _value(self, written: Type, column: Column) -> None:
        """Read a value that is no union and not null."""
        kinds = name_of(written), name_of(column.type)
        if not _means_the_same(written, column.type):
            self._emit(instructions.FAIL)
        elif kinds in _READ:
            self._emit(_READ[kinds], column.slot)
        elif isinstance(written, Mapping) and isinstance(column.type, Mapping) and _alike(written, column.type):
            self._named(written, column)
        else:
            self._emit(instructions.FAIL)

    def _named(self, written: Mapping[str, Any], column: Column) -> None:
        """Read a value of a type that has a name, which is that of the reader's."""
        assert isinstance(column.type, Mapping)
        if name_of(written) == "fixed":
            self._emit(instructions.FIXED, column.slot, written["size"])
        elif name_of(written) == "enum":
            first = len(self._table)
            self._table += _symbols(written["symbols"], column.type)
            self._emit(instructions.ENUM, column.slot, len(written["symbols"]), first)
        else:
            self._emit(instructions.PRESENT, column.slot)
            self.record(written, column.inside)

    def _text(self, type: Type, column: Column) -> None:
        """Note where the value is, of which JSON text is made later."""
        if self._texts.setdefault(column.slot, type) != type:
            raise InvalidValue(f"several types have a field {column.field.name}", "write values of one type")
        with self._deeper() as depth:
            self._emit(instructions.BEGIN, argument=depth)
            self._skip(type)
            self._emit(instructions.END, column.slot, depth)

    def _default(self, column: Column, default: tuple[Any] | None) -> None:
        """Fill the column with the reader's default; without one, values cannot be read."""
        if default is None:
            self._emit(instructions.FAIL)
        elif column.is_text:
            self._constant(column, *self._constants.add(orjson.dumps(default[0])))
        elif default[0] is None:
            self._null(column)
        elif column.inside:
            self._emit(instructions.PRESENT, column.slot)
            for each in column.inside:
                name = each.field.name
                self._default(each, (default[0][name],) if name in default[0] else each.default)
        else:
            self._constant(column, *self._scalar(column, default[0]))

    def _scalar(self, column: Column, value: Any) -> tuple[int, int]:
        match name_of(column.type):
            case "string":
                return self._constants.add(value.encode())
            case "bytes" | "fixed":
                return self._constants.add(value.encode("latin-1"))
            case "enum":
                assert isinstance(column.type, Mapping)
                return column.type["symbols"].index(value), 0
            case "float" | "double":
                return int(np.array(float(value), np.float64).view(np.int64)), 0
        return int(value), 0

    def _constant(self, column: Column, number: int, length: int) -> None:
        self._emit(instructions.CONSTANT, column.slot, target=len(self._table))
        self._table += [number, length]

    def _skip(self, type: Type) -> None:
        written = self._writer.resolved(type)
        if isinstance(written, list):
            for each in self._branches(written):
                self._skip(each)
            return
        kind = name_of(written)
        if kind in ("array", "map"):
            assert isinstance(written, Mapping)
            self._items(written)
        elif kind in ("record", "error"):
            assert isinstance(written, Mapping)
            with self._inside(written):
                for field in written["fields"]:
                    self._skip(field["type"])
        elif kind == "fixed":
            assert isinstance(written, Mapping)
            self._emit(instructions.FIXED, argument=written["size"])
        elif kind == "enum":
            assert isinstance(written, Mapping)
            self._emit(instructions.ENUM, argument=len(written["symbols"]))
        elif kind != "null":
            self._emit(_READ[kind, kind])

    def _items(self, written: Mapping[str, Any]) -> None:
        """Skip the items of an array, or the names and values of a map."""
        empty = name_of(written) == "array" and self._takes_no_bytes(written["items"])
        with self._deeper() as depth:
            self._emit(instructions.BEGIN, argument=depth)
            block = len(self._program)
            self._emit(instructions.BLOCK, int(empty), depth)
            if name_of(written) == "map":
                self._emit(instructions.SPAN)
            self._skip(written["values"] if name_of(written) == "map" else written["items"])
            self._emit(instructions.JUMP, target=block)
            self._program[block][3] = len(self._program)

    def _takes_no_bytes(self, type: Type) -> bool:
        written = self._writer.resolved(type)
        if not isinstance(written, Mapping):
            return written == "null"
        if name_of(written) in ("record", "error"):
            with self._inside(written):
                return all(self._takes_no_bytes(field["type"]) for field in written["fields"])
        return name_of(written) == "null" or written.get("size") == 0


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _names(wanted: Mapping[str, Any]) -> set[str]:
    """Return the names that a type of the reader may have in a writer's schema."""
    return {_short(name) for name in (wanted["name"], *wanted.get("aliases", ()))} if "name" in wanted else set()


def _found_as(written: Collection[str], columns: Sequence[Column]) -> dict[str, Column]:
    """Return the columns by the names that they have in a writer's record: their own comes before their aliases."""
    names = [(next((name for name in column.names if name in written), None), column) for column in columns]
    return {name: column for name, column in names if name is not None}


def _alike(written: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether values of one type with a name are values of the other."""
    same = name_of(written) == name_of(wanted) and "name" in written and _short(written["name"]) in _names(wanted)
    return same and written.get("size") == wanted.get("size")


def _means_the_same(written: Type, wanted: Type) -> bool:
    """Return whether the logical types allow to read the one as the other."""
    given, taken = logical(written), logical(wanted)
    if given is None or taken is None:
        return True
    scales = [each.get("scale", 0) for each in (written, wanted) if isinstance(each, Mapping)]
    return given == taken and (given != "decimal" or scales[0] == scales[1])


def _symbols(written: Sequence[str], wanted: Mapping[str, Any]) -> list[int]:
    """Return for each symbol its place among the reader's, or that of the reader's default; -1: there is none."""
    places = {symbol: place for place, symbol in enumerate(wanted["symbols"])}
    default = places.get(wanted.get("default", ""), -1)
    return [places.get(symbol, default) for symbol in written]
