"""Steps that write values in another format."""

from __future__ import annotations

import numpy as np

from tidegate.contracts.flow import Flow, Sifted, Stateless
from tidegate.contracts.values import AvroOutput, Primitive, ProtobufOutput
from tidegate.kernels.codecs.port import Encoder
from tidegate.kernels.codecs.primitives import PrimitiveEncoder
from tidegate.kernels.codecs.registered import encoder_of_registered
from tidegate.operators.pipeline.evaluated.columns import ColumnReader
from tidegate.operators.pipeline.evaluated.compiling import Verdict, readable, retractions, sifted, without_retracted
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.reading import with_doubles
from tidegate.operators.pipeline.rules.steps import Encode


def encoding(step: Encode, place: Place) -> Stateless:
    """Return what the step does with a flow at that place. Rows that cannot be written are rejected."""
    place = with_doubles(place)
    names = place.values.schema.names
    reader, encoder = ColumnReader(place, [(name,) for name in names]), _encoder(step.encode, place)

    def sift(*flows: Flow) -> Sifted:
        [flow] = flows
        at = np.flatnonzero(readable(flow))
        rows = flow.rows if len(at) == len(flow) else flow.rows.take(at)
        read, retracted = reader.read(rows), retractions(place, rows)
        written = encoder.encode(read.columns.select(names))
        verdict = Verdict(retracted)
        verdict.reject_unreadable(read, read.parts)
        verdict.reject((written.code > 0) & ~retracted, written.causes)
        return sifted(flow, at, verdict, without_retracted(written.values, retracted))

    return sift


def _encoder(format: Primitive | AvroOutput | ProtobufOutput, place: Place) -> Encoder:
    if isinstance(format, AvroOutput | ProtobufOutput):
        return encoder_of_registered(format, place.values.schema)
    return PrimitiveEncoder(format)
