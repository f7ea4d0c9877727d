"""Arrow columns out of bytes and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.records import Row
from tidegate.kernels.columns import binary_column, is_ascii, records_of
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.suppression.state import LAYOUT

pytestmark = pytest.mark.fast

texts = st.one_of(st.none(), st.binary(max_size=6))
rows = st.builds(
    Row,
    key=texts,
    value=texts,
    timestamp=st.integers(-5, 2**63 - 1),
    offset=st.integers(0, 2**63 - 1),
    headers=st.binary(max_size=4),
    time_only=st.just(False),
    port=st.just(0),
)


def laid_out(texts: list[tuple[bytes | None, bool]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two buffers, and signed positions and lengths of the texts in them; True: in the arena."""
    buffers, starts, lengths = [bytearray(b"--"), bytearray(b"---")], [], []
    for text, in_arena in texts:
        start = len(buffers[in_arena])
        starts.append(~start if in_arena else start)
        lengths.append(-1 if text is None else len(text))
        buffers[in_arena] += text or b""
    data, arena = (np.frombuffer(bytes(buffer), np.uint8) for buffer in buffers)
    return data, arena, np.array(starts, np.int64), np.array(lengths, np.int64)


@given(texts=st.lists(st.tuples(texts, st.booleans()), max_size=20), chunk_bytes=st.integers(1, 30))
def test_a_column_holds_the_texts_of_both_buffers_however_it_is_cut(
    texts: list[tuple[bytes | None, bool]], chunk_bytes: int
) -> None:
    column = binary_column(*laid_out(texts), chunk_bytes=chunk_bytes)
    column.validate(full=True)
    assert column.to_pylist() == [text for text, _ in texts]
    assert all(
        len(chunk) == 1 or len(b"".join(filter(None, chunk.to_pylist()))) <= chunk_bytes for chunk in column.chunks
    )


@given(st.lists(st.none() | st.sampled_from([b"", b"ab", b"\x7f", "é".encode(), b"\xff"])), st.integers(0, 5))
def test_bytes_are_ascii_if_those_of_each_value_are(values: list[bytes | None], first: int) -> None:
    column = pa.array(values, pa.binary())[first:]
    assert is_ascii(column) == all(value.isascii() for value in column.drop_null().to_pylist())


@given(rows=st.lists(rows, min_size=1, max_size=10), start=st.integers(0, 9))
def test_rows_of_a_log_are_records_again(rows: list[Row], start: int) -> None:
    columns = {name: [getattr(row, name) for row in rows] for name in Row._fields if name not in ("time_only", "port")}
    columns["headers"] = [headers or None for headers in columns["headers"]]
    types = {"key": pa.binary(), "value": pa.binary(), "headers": pa.binary()}
    table = pa.table({name: pa.array(column, types.get(name, pa.int64())) for name, column in columns.items()})
    part = table.slice(start).to_batches()
    assert [row for cut in part for row in records_of(cut).rows()] == rows[start:]


def test_growth_keeps_contents_and_fills_with_zeros() -> None:
    storage = MemoryStorage(LAYOUT)
    storage.arrays()["place"][:] = 7
    storage.grow({"slots": 4_096, "index": 8_192})
    assert storage.capacity()["slots"] == 4_096
    assert storage.arrays()["place"].tolist() == [7] * 1_024 + [0] * 3_072
    assert len(storage.arrays()["index"]) == 8_192
    assert len(storage.arrays()["arena"]) == LAYOUT.capacity["arena"]
