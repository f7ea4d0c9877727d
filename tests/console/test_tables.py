"""Cells of keys and values: numbers, Avro and Protobuf as views show them, and hexadecimal what is none of that."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.console.logs import SUPPRESSION, application
from tests.kernels.codecs.avro_strategies import written
from tests.kernels.codecs.protobuf_strategies import in_wire_format, message_class
from tidegate.console import tables
from tidegate.console.tables import Cell, cell_of, cells_of
from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.errors import Unavailable
from tidegate.contracts.values import Avro, Protobuf

pytestmark = pytest.mark.fast

EVENT: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "name", "type": "string"},
        {"name": "raw", "type": "bytes"},
    ],
}
PROTO = 'syntax = "proto3"; message Counts { int64 all = 1; string name = 3; }'


def shown_as(folder: Path, form: ShownAs, values: list[bytes | None]) -> list[Cell]:
    """The cells of values in that format."""
    config = application(folder, op=dict(SUPPRESSION)).operators["op"]
    rules = config.shown().model_copy(update={"value_format": form})
    rows = pa.table({"value": pa.array(values, pa.binary())})
    found = [row[0] for row in cells_of(rows, config, rules).rows]
    assert found == [cell_of("value", value, config, rules) for value in values]
    return found


@pytest.mark.parametrize(
    ("form", "packed", "value"),
    [("int16", ">h", -2), ("int32", ">i", -3), ("int64", ">q", -4), ("float32", ">f", 0.5), ("float64", ">d", 0.1)],
)
def test_numbers_are_numbers_and_what_is_none_is_text_or_hexadecimal(
    tmp_path: Path, form: ShownAs, packed: str, value: float
) -> None:
    found = shown_as(tmp_path, form, [struct.pack(packed, value), b"plain", b"\xff", None])
    assert found == [Cell(str(value), "number"), Cell("plain"), Cell("ff", "hex"), Cell("null", "null")]


def test_records_of_avro_are_their_fields_without_characters_that_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(json.dumps(EVENT))
    form, times = Avro(json.dumps(EVENT), str(tmp_path)), (1_357_000_000_000, 2**53)
    values = [written(EVENT, {"at": at, "name": "\u202e<b>", "raw": b"\xff"}, 1) for at in times]
    record, too_late, none, unknown = shown_as(tmp_path, form, [*values, b"junk\xff", b"\0\0\0\0\7\5"])
    assert record == Cell('{"at": "2013-01-01 00:26:40.000", "name": "\\u202e<b>", "raw": "0xff"}')
    assert too_late.form == "hex" and (none.form, unknown.form) == ("hex", "hex")


def test_records_of_protobuf_are_their_fields_and_long_ones_are_cut(tmp_path: Path) -> None:
    (tmp_path / "5.proto").write_text(PROTO)
    messages = [message_class(PROTO, "Counts")(all=-7, name=name) for name in ("a", "a" * 2_000)]
    values = [in_wire_format(message.SerializeToString(), 5, b"\0") for message in messages]
    short, long = shown_as(tmp_path, Protobuf(PROTO, "Counts", str(tmp_path)), values)
    assert short == Cell('{"all": -7, "name": "a"}')
    assert len(long.text) == 1_000 and long.cut is not None and long.cut > 2_000


def test_while_the_registry_is_away_values_are_hexadecimal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_form: ShownAs) -> Any:
        raise Unavailable("the registry does not answer")

    monkeypatch.setattr(tables, "shown", away)
    form = Avro(json.dumps(EVENT), "http://127.0.0.1:1")
    assert [cell.form for cell in shown_as(tmp_path, form, [b"\0\0\0\0\1\5\xff", None])] == ["hex", "null"]
