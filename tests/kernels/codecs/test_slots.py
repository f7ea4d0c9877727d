"""Slots whose content is arbitrary before a value is read: nothing of it is in a column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs import avro_strategies as avro
from tests.kernels.codecs import protobuf_strategies as protobuf
from tests.kernels.codecs.damage import damaged
from tests.kernels.codecs.test_avro import evolved, reading
from tidegate.kernels.codecs.avro import decoder as avro_decoder
from tidegate.kernels.codecs.protobuf import decoder as protobuf_decoder
from tidegate.kernels.codecs.slots import Slots, slots

pytestmark = pytest.mark.fast


def read_with_slots_of(content: int, decoder: Any, read: Callable[[], list[Any]]) -> list[Any]:
    """What is read in slots that are full of a number before."""

    def full(count: int, rows: int) -> Slots:
        made = slots(count, rows)
        made.number[:], made.length[:] = content, content
        return made

    with patch.object(decoder, "unfilled_slots", full):
        return read()


@given(st.data(), avro.schemas())
def test_a_program_of_avro_fills_every_slot(data: st.DataObject, schema: dict[str, Any]) -> None:
    reader = data.draw(evolved(schema))
    drawn = [avro.written(schema, data.draw(avro.values(schema))) for _ in range(3)]
    values = [*drawn, damaged(drawn[0], data.draw(st.randoms())), None]
    found = [
        read_with_slots_of(each, avro_decoder, lambda: avro.decoded(reading(reader, {17: schema}), [*values]))
        for each in (-1, 3)
    ]
    assert repr(found[0]) == repr(found[1])


@given(st.data(), protobuf.schemas())
def test_what_a_message_lacks_is_null_or_its_default(data: st.DataObject, schema: str) -> None:
    drawn = [data.draw(protobuf.bodies(schema)) for _ in range(3)]
    values = [protobuf.in_wire_format(each) for each in (*drawn, damaged(drawn[0], data.draw(st.randoms())))]
    found = [
        read_with_slots_of(each, protobuf_decoder, lambda: protobuf.decoded(protobuf.reading(schema), [*values, None]))
        for each in (-1, 3)
    ]
    assert repr(found[0]) == repr(found[1])
