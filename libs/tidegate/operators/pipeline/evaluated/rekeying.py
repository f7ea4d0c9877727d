"""Steps that give rows another key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from tidegate.contracts.flow import Flow, Sifted, Stateless
from tidegate.contracts.records import Int64s, Records
from tidegate.expressions.layers import Layer, evaluate_layers
from tidegate.kernels.codecs.primitives import PrimitiveEncoder
from tidegate.kernels.columns import binary_parts
from tidegate.operators.pipeline.evaluated.columns import ColumnReader
from tidegate.operators.pipeline.evaluated.compiling import Verdict, cannot_be_evaluated, readable, sifted
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.reading import behind, expressions_of
from tidegate.operators.pipeline.rules.steps import SelectKey

NULL_KEY = "its new key is null"


def rekeying(step: SelectKey, place: Place) -> Stateless:
    """Return what the step does with a flow at that place. Rows without a new key are rejected."""
    layer = Layer(expressions_of(step, place))
    [expression] = layer.expressions.values()
    key = behind(step, place).key
    assert isinstance(key, str), "a new key has the format of one of Kafka's serializers"
    reader, encoder = ColumnReader(place, expression.paths), PrimitiveEncoder(key)
    cause = cannot_be_evaluated([expression])

    def sift(*flows: Flow) -> Sifted:
        [flow] = flows
        at = np.flatnonzero(readable(flow))
        read = reader.read(flow.rows if len(at) == len(flow) else flow.rows.take(at))
        [evaluated] = evaluate_layers([layer], read.columns).layers
        [keys] = evaluated.values
        written = encoder.encode(pa.record_batch([keys], ["key"]))
        verdict = Verdict(np.zeros(len(at), np.bool_))
        verdict.reject_unreadable(read, read.parts)
        verdict.reject(evaluated.failed, lambda rows: [cause] * len(rows))
        # rule: new-key-is-not-null
        verdict.reject(keys.is_null().to_numpy(zero_copy_only=False), lambda rows: [NULL_KEY] * len(rows))
        verdict.reject(written.code > 0, written.causes)
        return sifted(replace(flow, rows=_with_keys(flow.rows, at, written.values)), at, verdict, None)

    return sift


def _with_keys(rows: Records, at: Int64s, keys: pa.Array) -> Records:
    """Return the rows with other keys at these places."""
    data, starts, lengths = binary_parts(keys)
    key_start, key_length = rows.key_start.copy(), rows.key_length.copy()
    key_start[at], key_length[at] = starts + len(rows.data), lengths
    return replace(rows, data=np.concatenate([rows.data, data]), key_start=key_start, key_length=key_length)
