"""Reads Protobuf values into typed Arrow columns. Each value names its schema, and its message type there.

Fields are found by their numbers, so the reader's message type alone says how values are read. The writer's schema says
whether they may be read so: a number that has another type there would give wrong values in silence.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.port import CODE, Decoded
from tidegate.kernels.codecs.protobuf.compiling import compile_reader
from tidegate.kernels.codecs.protobuf.layout import every, layout_of
from tidegate.kernels.codecs.protobuf.message_paths import NONE, REASONS, indexes_of, next_message
from tidegate.kernels.codecs.protobuf.program import Named, run
from tidegate.kernels.codecs.protobuf.reading import NoJson, Reading, json_texts
from tidegate.kernels.codecs.protobuf.schemas import conflict, message_at, message_of, read_schema
from tidegate.kernels.codecs.registry_format import UNREAD, SchemaSource
from tidegate.kernels.codecs.slots import unfilled_slots


class ProtobufDecoder:
    """Reads the wanted columns of the reader's message type, or parts of them.

    Schemas of writers are asked for when they first come.
    """

    def __init__(self, reader: str, message: str, wanted: pa.Schema, source: SchemaSource) -> None:
        self._message, self.schema = message_of(read_schema(reader), message), wanted
        self._columns = layout_of(self._message, wanted)
        self._texts = [column for column in every(self._columns) if column.is_text]
        self._reasons = [*REASONS, *(f"value: {'.'.join(column.path)} has no JSON" for column in self._texts)]
        self._count = self._columns[-1].after if self._columns else 0
        self._program = compile_reader(self._message, self._columns)
        self._source = source
        self._faults: dict[tuple[int, int], str] = {}

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        rows = len(start)
        found, code, begin = unfilled_slots(self._count, rows), np.full(rows, UNREAD, CODE), np.empty(rows, np.int64)
        texts, reasons = {column.slot: np.full(rows, None) for column in self._texts}, [*self._reasons]
        while (named := next_message(data, start, length, code)) != NONE:
            fault, unread, number = self._fault(*named), code == UNREAD, named[0]
            reasons.append(f"value: schema {number} {fault}" if fault else f"value: not Protobuf of schema {number}")
            run(data, start, length, Named(*named, not fault, len(reasons)), self._program, found, begin, code)
            if self._texts:
                read = np.flatnonzero(unread & (code == 0))
                code[read] = self._write_texts(data, begin[read], (start + length)[read], read, len(reasons), texts)
        found.clear(code != 0)
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
            self._faults[number, path] = self._found_in(text, self._source.imports(number), indexes_of(path))
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
        self, data: Array, begin: Array, end: Array, rows: Array, malformed: int, texts: Mapping[int, Array]
    ) -> list[int]:
        """Write the JSON texts of what has no columns of its own, one value after the other; return a code for each."""
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        message, paths = GetMessageClass(self._message), [column.path for column in self._texts]
        codes = []
        for row, first, behind in zip(rows.tolist(), begin.tolist(), end.tolist(), strict=True):
            try:
                found = json_texts(message.FromString(data[first:behind].tobytes()), paths)
                for column, text in zip(self._texts, found, strict=True):
                    texts[column.slot][row] = text
                codes.append(0)
            except NoJson as problem:
                codes.append(len(REASONS) + 1 + problem.place)
            except (DecodeError, ValueError):
                codes.append(malformed)
        return codes
