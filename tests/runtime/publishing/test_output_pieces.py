"""Output is sent in pieces whose sizes columns and encoder can represent."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidegate.contracts.config.operator_config import Output
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.publishing import encoding
from tidegate.runtime.publishing.encoding import Destination, PartitionOutput, Rows, open_output, prepare_output
from tidegate.runtime.publishing.topics import Outlets, OutputRoute

pytestmark = pytest.mark.fast

NONE = pa.table({name: pa.array([], pa.binary()) for name in ("key", "value", "headers")})


def emissions(sizes: list[int]) -> pa.Table:
    """Return emissions with values of those sizes."""
    return pa.table(
        {
            "key": pa.array([b"k%d" % at for at in range(len(sizes))], pa.binary()),
            "value": pa.array([bytes([at]) * size for at, size in enumerate(sizes)], pa.binary()),
            "headers": pa.nulls(len(sizes), pa.binary()),
            "timestamp": pa.array(range(len(sizes)), pa.int64()),
            "cause": pa.array(["flush"] * len(sizes)),
        }
    )


def sent(monkeypatch: pytest.MonkeyPatch, rows: pa.Table, piece_bytes: int) -> list[tuple[int, list[bytes]]]:
    """Return the pieces that are sent: the number of the first row, and the values."""
    found: list[tuple[int, list[bytes]]] = []

    def note(producer: Producer, topic: str, partition: int, pieces: Any, **_: Any) -> Any:
        for columns, stamp in pieces:
            found.append((stamp.seq[0], columns.value.to_pylist()))
            assert len(stamp.cause_codes) == len(columns.timestamp)
            yield None

    monkeypatch.setattr(encoding, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(encoding, "encoded", note)
    monkeypatch.setattr(encoding, "produce", lambda client, producer, queues, **_: [list(queue) for queue in queues])
    to = Destination(
        route=OutputRoute(
            operator="o",
            input="i",
            group="g",
            outlets=Outlets(outputs=(Output("out"),), dead_letters=None),
            limits={"out": 2**20},
            times_in_values=False,
        ),
        partition=0,
        batch=1,
    )
    producer: Any = None
    prepared = prepare_output([PartitionOutput(producer, to, Rows(rows, NONE, NONE))])
    assert prepared is not None
    open_output(producer, prepared, 1.0)
    return found


def test_output_is_sent_in_pieces_with_consecutive_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = emissions([10, 10, 50, 1, 1, 100])
    found = sent(monkeypatch, rows, 40)
    assert [first for first, _ in found] == [0, 2, 3, 5]
    assert [value for _, values in found for value in values] == rows["value"].to_pylist()
    assert sent(monkeypatch, rows, 10**6) == [(0, rows["value"].to_pylist())]


def test_the_chunks_of_columns_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = emissions([10, 10, 50, 1, 1, 100])
    chunked = pa.concat_tables([rows.slice(0, 1), rows.slice(1, 3), rows.slice(4)])
    assert sent(monkeypatch, chunked, 40) == sent(monkeypatch, rows, 40)
