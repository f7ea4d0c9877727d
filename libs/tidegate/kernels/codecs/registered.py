"""Reads and writes values that name their schemas by numbers, whichever of the formats they have."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tidegate.contracts.values import PRIMITIVES, Avro, AvroOutput, KeyForm, Protobuf, ProtobufOutput, Registered
from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.avro.defaults import check_defaults
from tidegate.kernels.codecs.avro.encoder import AvroEncoder
from tidegate.kernels.codecs.avro.schemas import columns_of as columns_of_record
from tidegate.kernels.codecs.avro.schemas import read_schema
from tidegate.kernels.codecs.port import Decoder, Encoder
from tidegate.kernels.codecs.protobuf.decoder import ProtobufDecoder
from tidegate.kernels.codecs.protobuf.encoder import ProtobufEncoder
from tidegate.kernels.codecs.protobuf.schemas import columns_of as columns_of_message
from tidegate.kernels.codecs.protobuf.schemas import message_of
from tidegate.kernels.codecs.protobuf.schemas import read_schema as read_protobuf
from tidegate.kernels.codecs.schema_sources import source_of


def decoder_of_registered(values: Registered, wanted: pa.Schema) -> Decoder:
    """Return the decoder of these columns, which are those of the values or parts of them."""
    match values:
        case Avro(schema, schemas):
            return AvroDecoder(schema, wanted, source_of(schemas))
        case AvroOutput(schema, number):
            return AvroDecoder(schema, wanted, _Written(number, schema))
        case Protobuf(schema, message, schemas):
            return ProtobufDecoder(schema, message, wanted, source_of(schemas, ".proto"))
        case ProtobufOutput(schema, message, number):
            return ProtobufDecoder(schema, message, wanted, _Written(number, schema))


def encoder_of_registered(values: AvroOutput | ProtobufOutput, columns: pa.Schema) -> Encoder:
    """Return the encoder of these columns. Raise InvalidValue if they are not written as the schema says."""
    if isinstance(values, AvroOutput):
        return AvroEncoder(columns, values.schema, values.number)
    return ProtobufEncoder(columns, values.schema, values.message, values.number)


def key_type(form: KeyForm) -> pa.DataType:
    """Return the type of the column of keys: that of a number, of text, or a struct. Raise as `columns_of` does."""
    return PRIMITIVES[form] if isinstance(form, str) else pa.struct(columns_of(form))


def columns_of(values: Registered) -> pa.Schema:
    """Return the columns of what the schema describes.

    Raise InvalidValue if it is none, has no columns, or has a default that does not fit and may be read.
    """
    if isinstance(values, Avro | AvroOutput):
        schema = read_schema(values.schema)
        if isinstance(values, Avro):
            check_defaults(schema)
        return columns_of_record(schema)
    return columns_of_message(message_of(read_protobuf(values.schema), values.message))


class _Written(NamedTuple):
    """The only schema of what this program writes itself."""

    number: int
    text: str

    def schema(self, number: int) -> str | None:
        """Return the schema's text if it has that number."""
        return self.text if number == self.number else None

    def imports(self, number: int) -> dict[str, str]:
        """Return nothing: the text is that of one file."""
        return {}
