"""An exercise of operators' states: everything that a service asks of a state, so that every kernel is called.

`tidegate setup` compiles the kernels with it. Results are not looked at: that is what scenarios and laws are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pyarrow as pa

from tidegate.contracts.config.base import read
from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.naming import HEADER_WINDOW_END, HEADER_WINDOW_START
from tidegate.contracts.operator import Layout
from tidegate.contracts.records import Row
from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.avro.encoder import AvroEncoder
from tidegate.kernels.codecs.json_columns import JsonDecoder
from tidegate.kernels.codecs.protobuf.decoder import ProtobufDecoder
from tidegate.kernels.codecs.protobuf.encoder import ProtobufEncoder
from tidegate.kernels.columns import binary_parts
from tidegate.kernels.record_format.named_headers import find_headers, names_of
from tidegate.kernels.record_format.record_headers import decode_headers, encode_headers
from tidegate.kernels.window_keys import kafka_keys
from tidegate.operators.registry import kind_of, kinds, kinds_where, operator_for, test_part
from tidegate.operators.testing.laws import Advance, Flush, Hold, Partition, Step, Table
from tidegate.testing.memory_log import MemoryLog

_CLOCK_MS = 1_000
_BATCH, _KEYS = 128, 96
_PART_OF_CAPACITY = 64
"""States begin with this fraction of their capacity, so that so few records make every array grow."""


def exercise_kind(kind: str) -> None:
    """Exercise states of the kind."""
    for config in configurations():
        if config.kind == kind:
            exercise(config)


def exercise_common() -> None:
    """Exercise what reads headers of records and writes windowed keys, for all kinds."""
    headers = _headers(0, windowed=True)
    decode_headers(headers)
    find_headers(*binary_parts(pa.array([headers])), names_of([HEADER_WINDOW_START]))
    _exercise_typed_values()
    kafka_keys(pa.array([b"key"]), np.zeros(1, np.int64), None)


def _exercise_typed_values() -> None:
    """Read a field of each type that a schema of values may have."""
    types = {"n": pa.int64(), "d": pa.float64(), "b": pa.bool_(), "text": pa.string(), "any": pa.large_string()}
    values = [b'{"n":1,"d":1.5,"b":true,"text":"a\\u00e9","any":[1]}', b'{"d":0.12345678901234567}', None]
    JsonDecoder(pa.schema(types)).columns(*binary_parts(pa.array(values, pa.binary())))
    if find_spec("fastavro") is not None:
        _exercise_avro()
    if find_spec("grpc_tools") is not None:
        _exercise_protobuf()


_NUMBER = '{"name": "n", "type": "long"}'
_DECIMAL = '{"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}'


class _OneSchema:
    """A schema registry with one schema, of which `value` is a value."""

    text = f'{{"type": "record", "name": "r", "fields": [{_NUMBER}, {_DECIMAL}]}}'
    value = b"\0\0\0\0\1" + b"\4" + b"\2\5"

    def schema(self, number: int) -> str:
        """Return the schema."""
        return self.text

    def imports(self, number: int) -> dict[str, str]:
        """Return nothing: the schema imports no other."""
        return {}


def _exercise_avro() -> None:
    """Read a record of Avro, and write one."""
    registry = _OneSchema()
    reader = AvroDecoder(registry.text, pa.schema({"n": pa.int64(), "d": pa.decimal128(9, 2)}), registry)
    reader.columns(*binary_parts(pa.array([registry.value])))
    columns = pa.record_batch({"n": pa.array([1])})
    AvroEncoder(columns.schema, f'{{"type": "record", "name": "r", "fields": [{_NUMBER}]}}', 1).encode(columns)


class _OneMessage(_OneSchema):
    """A schema registry with one schema of Protobuf, of whose first message type `value` is a value."""

    text = 'syntax = "proto3"; message R { int64 n = 1; double d = 2; }'
    value = b"\0\0\0\0\1\0" + b"\x08\2"


def _exercise_protobuf() -> None:
    """Read a message of Protobuf, and write it."""
    registry = _OneMessage()
    reader = ProtobufDecoder(registry.text, "R", pa.schema({"n": pa.int64(), "d": pa.float64()}), registry)
    columns = pa.record_batch(reader.columns(*binary_parts(pa.array([registry.value]))).columns, reader.schema)
    ProtobufEncoder(columns.schema, registry.text, "R", 1).encode(columns)


def configurations() -> Iterator[OperatorRules]:
    """Yield the configurations of all kinds: those of simulated services, and others that run other kernels."""
    for kind in kinds():
        part = test_part(kind, "simulation")
        for options in (*part.SIMULATED.values(), *part.EXERCISED):
            yield read(kind_of(kind).config, {"input": "records"} | options)


def exercise(config: OperatorRules) -> None:
    """Ask everything of a state: batches, undoing one, idle time, a flush, both kinds of restart, and a check."""
    partition = Partition(operator_for(config), _CLOCK_MS, _scaled(operator_for(config).layout))
    log = MemoryLog(partition.operator.slot)
    for step in _steps(config):
        before = partition.state.stream_time
        partition.state.restore(partition.attempt(step).undo, before)
        log.commit(partition.play(step))
        partition.operator.damage(partition.storage)
        partition.reopen(partition.storage)
        partition.rebuild(log.rows())


def _scaled(layout: Layout) -> Layout:
    """Return the layout with small capacities.

    Not the smallest: numpy knows another form of an array of one item, for which kernels would be compiled once more.
    """
    return replace(layout, capacity={name: max(1, size // _PART_OF_CAPACITY) for name, size in layout.capacity.items()})


def _steps(config: OperatorRules) -> list[Step]:
    windowed = isinstance(config, KeyRules) and config.windowed
    table: list[Step] = [_table(windowed)] if config.reads() else []
    readers: list[Step] = [Hold(0)] if kind_of(config.kind).is_table else []
    batches = [_records(number, windowed) for number in range(3)]
    return [*table, *readers, *batches, Advance(_BATCH // 4), _records(3, windowed), Flush(), Advance(10 * _BATCH)]


def _table(windowed: bool) -> Table:
    """Return a table that a stream with or without windows can read."""
    [kind] = kinds_where("is_table")
    options = test_part(kind, "simulation").TABLE_OF_JOIN | {"windows": "headers" if windowed else "none"}
    config = read(kind_of(kind).config, {"input": "table"} | options)
    return Table(config, tuple(_records(0, windowed)[: _BATCH // 4]))


def _records(batch: int, windowed: bool) -> list[Row]:
    """Return a batch of records of two inputs: keys come again, values become longer, some are late or invalid."""
    return [_record(batch, number, windowed) for number in range(batch * _BATCH, (batch + 1) * _BATCH)]


def _record(batch: int, number: int, windowed: bool) -> Row:
    timestamp = number if number % 7 else number // 2
    value = b'{"n":%d,"d":%d.5,"text":"%s"}' % (number, number, b"x" * (32 << batch))
    return Row(
        key=None if number % 31 == 0 else b"key-%07d" % (number % _KEYS),
        value=None if number % 17 == 0 else value,
        timestamp=timestamp if number % 29 else -1,
        offset=number,
        headers=_headers(timestamp, windowed=windowed) if number % 23 else b"",
        port=number % 2,
    )


def _headers(timestamp: int, *, windowed: bool) -> bytes:
    start = timestamp // 8 * 8
    names = (HEADER_WINDOW_START, HEADER_WINDOW_END) if windowed else ("a", "b")
    return encode_headers((name.encode(), b"%d" % bound) for name, bound in zip(names, (start, start + 8), strict=True))
