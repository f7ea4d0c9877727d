"""Reads Avro values into typed Arrow columns. Each value names the schema with which it was written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.operator import Array
from tidegate.kernels.codecs.avro.compiling import Compiled, Constants, compile_reader, refusing
from tidegate.kernels.codecs.avro.defaults import without_defaults
from tidegate.kernels.codecs.avro.layout import Column, every, layout_of
from tidegate.kernels.codecs.avro.program import MALFORMED, run
from tidegate.kernels.codecs.avro.reading import Reading
from tidegate.kernels.codecs.avro.schemas import Schema, read_schema
from tidegate.kernels.codecs.avro.texts import json_text, self_contained
from tidegate.kernels.codecs.port import CODE, Decoded
from tidegate.kernels.codecs.registry_format import REASONS, UNREAD, SchemaSource, next_schema
from tidegate.kernels.codecs.slots import Slots, unfilled_slots


class _Writer(NamedTuple):
    """How values of one writer's schema are read. `fault`: why none can be."""

    schema: Schema | None
    compiled: Compiled
    fault: str = ""

    def reasons(self, number: int) -> list[str]:
        """Return why a value may be refused, in the order of the codes."""
        if self.fault:
            return [f"value: schema {number} {self.fault}"]
        return [f"value: schema {number} has what the reader's schema lacks", f"value: not Avro of schema {number}"]


class AvroDecoder:
    """Reads the wanted columns of the reader's schema, or parts of them.

    Schemas of writers are asked for when they first come.
    """

    def __init__(self, reader: str, wanted: pa.Schema, source: SchemaSource) -> None:
        self._reader = read_schema(reader)
        self._columns = layout_of(self._reader, wanted)
        self.schema = pa.schema([column.field for column in self._columns])
        self._count = self._columns[-1].after if self._columns else 0
        self._source, self._constants = source, Constants()
        self._writers: dict[int, _Writer] = {}

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        rows = len(start)
        found, code, reasons = unfilled_slots(self._count, rows), np.full(rows, UNREAD, CODE), [*REASONS]
        texts = {column.slot: np.full(rows, None) for column in self._texts()}
        while (number := next_schema(data, start, length, code)) >= 0:
            writer, unread, first = self._writer(number), code == UNREAD, len(reasons)
            reasons += writer.reasons(number)
            run(data, start, length, number, writer.compiled.program, found, code, first)
            _write_texts(data, found, writer, unread & (code == 0), code, first, texts)
        found.clear(code != 0)
        reading = Reading(data, self._constants.data, found, texts, code, reasons)
        columns = [reading.column(column) for column in self._columns]
        if code.any():
            columns = [pc.if_else(pa.array(code == 0), column, pa.scalar(None, column.type)) for column in columns]
        return Decoded(columns, code, reasons)

    def _texts(self) -> Iterator[Column]:
        return (column for column in every(self._columns) if column.is_text)

    def _writer(self, number: int) -> _Writer:
        if number in self._writers:
            return self._writers[number]
        text = self._source.schema(number)
        if text is None:
            return _Writer(None, refusing(), "is unknown")  # until somebody adds it
        self._writers[number] = self._read(number, text)
        return self._writers[number]

    def _read(self, number: int, text: str) -> _Writer:
        try:
            schema = self._schema(number, text)
            return _Writer(schema, compile_reader(schema, self._columns, self._reader.record, self._constants))
        except InvalidValue as problem:
            return _Writer(None, refusing(), f"cannot be read: {problem.cause}")

    def _schema(self, number: int, text: str) -> Schema:
        """Return the schema; only one that cannot be read alone is read with others."""
        own = without_defaults(text)
        try:
            return read_schema(own)
        except InvalidValue:
            imports = self._source.imports(number)
            if not imports:
                raise
            return read_schema(own, tuple(sorted(map(without_defaults, imports.values()))))


def _write_texts(
    data: Array, found: Slots, writer: _Writer, read: Array, code: Array, first: int, texts: Mapping[int, Array]
) -> None:
    """Write the JSON texts of values that have no columns of their own, one by one. `read`: the rows of the writer."""
    for slot, type in writer.compiled.texts.items():
        assert writer.schema is not None, "a program that refuses all values has no texts"
        schema = self_contained(type, writer.schema)
        written = (found.length[slot] >= 0) & (found.number[slot] >= 0)  # others are null, or the reader's default
        for row in np.flatnonzero(read & written).tolist():
            start = found.number[slot, row]
            try:
                texts[slot][row] = json_text(data[start : start + found.length[slot, row]].tobytes(), schema)
            except ValueError:
                code[row] = first + MALFORMED
