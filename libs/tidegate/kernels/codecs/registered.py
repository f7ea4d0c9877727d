"""Reads values that name their schemas by numbers, whichever of the formats they have."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tidegate.contracts.values import Avro, AvroOutput, Protobuf
from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.avro.schemas import columns_of, read_schema
from tidegate.kernels.codecs.port import Decoder
from tidegate.kernels.codecs.protobuf.decoder import ProtobufDecoder
from tidegate.kernels.codecs.protobuf.schemas import columns_of as columns_of_message
from tidegate.kernels.codecs.protobuf.schemas import message_of
from tidegate.kernels.codecs.protobuf.schemas import read_schema as read_protobuf
from tidegate.kernels.codecs.schema_sources import source_of


def decoder_of_registered(values: Avro | AvroOutput | Protobuf, wanted: Collection[str] | None = None) -> Decoder:
    """Return the decoder of these fields; None: of all."""
    match values:
        case Avro(schema, schemas):
            return AvroDecoder(schema, _names(schema) if wanted is None else wanted, source_of(schemas))
        case AvroOutput(schema, number):
            return AvroDecoder(schema, _names(schema) if wanted is None else wanted, _Written(number, schema))
        case Protobuf(schema, message, schemas):
            named = columns_of_message(message_of(read_protobuf(schema), message)).names if wanted is None else wanted
            return ProtobufDecoder(schema, message, named, source_of(schemas, ".proto"))


def _names(schema: str) -> list[str]:
    return list(columns_of(read_schema(schema)).names)


class _Written(NamedTuple):
    """The only schema of what this program writes itself."""

    number: int
    text: str

    def schema(self, number: int) -> str | None:
        """Return the schema's text if it has that number."""
        return self.text if number == self.number else None
