"""Reads Protobuf values into typed Arrow columns. Each value names its schema, and its message type there.

Fields are found by their numbers, so the reader's message type alone says how values are read. The writer's schema says
whether they may be read so: a number that has another type there would give wrong values in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.port import CODE, Decoded
from tidegate.kernels.codecs.protobuf.compiling import compile_reader
from tidegate.kernels.codecs.protobuf.layout import every, layout_of
from tidegate.kernels.codecs.protobuf.program import run
from tidegate.kernels.codecs.protobuf.reading import Reading, json_texts
from tidegate.kernels.codecs.protobuf.schemas import conflict, message_at, message_of, read_schema
from tidegate.kernels.codecs.registry_format import PREFIX, REASONS, FileSource, grouped, read_prefixes
from tidegate.kernels.codecs.slots import slots
from tidegate.kernels.codecs.varints import read_varint, zigzag
from tidegate.kernels.compiled import compiled_in_place, wide

_DIGITS, _DEEPEST = 10, 6
"""The bits of each index of a message type, and how many of them: they are put together in one number."""
_NO_MESSAGE = len(REASONS) + 1


class ProtobufDecoder:
    """Reads the wanted columns of the reader's message type, or parts of them.

    Schemas of writers are asked for when they first come.
    """

    def __init__(self, reader: str, message: str, wanted: pa.Schema, source: FileSource) -> None:
        self._message, self.schema = message_of(read_schema(reader), message), wanted
        self._columns = layout_of(self._message, wanted)
        self._texts = [column for column in every(self._columns) if column.is_text]
        self._program = compile_reader(self._message, self._columns)
        self._source = source
        self._faults: dict[tuple[int, int], str] = {}

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        rows = len(start)
        found, code = slots(max((column.after for column in self._columns), default=0), rows), np.zeros(rows, CODE)
        numbers, paths, begin = np.empty(rows, np.int64), np.zeros(rows, np.int64), start.astype(np.int64)
        read_prefixes(data, start, length, numbers, code)
        _read_paths(data, begin, start + length, paths, code)
        reasons = [*REASONS, "value: names no message of its schema"]
        texts = {column.slot: np.full(rows, None) for column in self._texts}
        wrong = np.zeros(rows, np.bool_)
        for number, path, chosen in _writers(numbers, paths, code):
            fault = self._fault(number, path)
            reasons.append(f"value: schema {number} {fault}" if fault else f"value: not Protobuf of schema {number}")
            wrong[chosen] = True
            if not fault:
                run(data, begin, start + length, chosen, self._program, found, wrong)
                self._write_texts(data, begin, start + length, chosen, texts, wrong)
            code[chosen[wrong[chosen]]] = len(reasons)
        found.length[:, code != 0] = -1
        reading = Reading(data, found, texts, code, reasons)
        by_name = {column.field.name: reading.column(column) for column in self._columns}
        columns = [by_name[name] for name in self.schema.names]
        if code.any():
            columns = [pc.if_else(pa.array(code == 0), column, pa.scalar(None, column.type)) for column in columns]
        return Decoded(columns, code, reasons)

    def _fault(self, number: int, path: int) -> str:
        """Return why values of that schema and message type cannot be read; empty if they can."""
        if (number, path) not in self._faults:
            text = self._source.schema(number)
            if text is None:
                return "is unknown"  # until somebody adds it
            self._faults[number, path] = self._found_in(text, self._source.imports(number), _indexes(path))
        return self._faults[number, path]

    def _found_in(self, text: str, imports: Mapping[str, str], path: list[int]) -> str:
        try:
            written = message_at(read_schema(text, tuple(sorted(imports.items()))), path)
        except InvalidValue as problem:
            return f"cannot be read: {problem.cause}"
        if written is None or written.full_name != self._message.full_name:
            return f"has {'no message there' if written is None else written.full_name}, not {self._message.full_name}"
        different = conflict(written, self._message, pa.struct(self.schema))
        return "" if different is None else f"cannot be read: {different}"

    def _write_texts(
        self, data: Array, begin: Array, end: Array, rows: Array, texts: dict[int, Array], wrong: Array
    ) -> None:
        """Write the JSON texts of what has no columns of its own, one value after the other."""
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        message = GetMessageClass(self._message)
        for row in rows[~wrong[rows]].tolist() if self._texts else ():
            try:
                value = message.FromString(data[begin[row] : end[row]].tobytes())
                for column, text in zip(self._texts, json_texts(value, self._texts), strict=True):
                    texts[column.slot][row] = text
            except (DecodeError, ValueError):
                wrong[row] = True


def _writers(numbers: Array, paths: Array, code: Array) -> Iterator[tuple[int, int, Array]]:
    """Yield each schema and message type that values name, and the rows that name them."""
    for number, rows in grouped(numbers, np.flatnonzero(code == 0)):
        for path, chosen in grouped(paths, rows):
            yield number, path, chosen


def _indexes(path: int) -> list[int]:
    """Return the indexes that lead to a message type, the outermost first."""
    found = []
    while path:
        found.append(path % 2**_DIGITS - 1)
        path >>= _DIGITS
    return found[::-1]


@compiled_in_place
def _read_paths(data: Array, begin: Array, end: Array, paths: Array, code: Array) -> None:
    """Read the indexes of each value's message type behind its prefix, and move `begin` behind them.

    No indexes are that of the first message type.
    """
    for row in range(len(begin)):
        if code[row] == 0:
            bits, at = read_varint(data, wide(begin[row]) + PREFIX, wide(end[row]))
            count, path = zigzag(bits), wide(1 if bits == 0 else 0)
            if not 0 <= count <= _DEEPEST:
                at = wide(-1)
            while at >= 0 and count > 0:
                bits, at = read_varint(data, at, wide(end[row]))
                index = zigzag(bits)
                if not 0 <= index < 2**_DIGITS - 1:
                    at = wide(-1)
                path = (path << _DIGITS) | (index + 1)
                count -= 1
            begin[row], paths[row] = at, path
            if at < 0:
                code[row] = _NO_MESSAGE
