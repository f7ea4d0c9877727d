"""Receiving of responses: whatever pieces they come in, they are those that kafka-python receives by itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import KafkaError
from kafka.protocol import parser
from kafka.protocol.frame import KafkaBytes

from tests.hypothesis_profile import sized
from tidegate.runtime.kafka import client  # noqa: F401
from tidegate.runtime.kafka.receiving import PIECE_BYTES, ResponseBytes, receive

pytestmark = pytest.mark.fast

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The end of a connection that receives, and that of a broker."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@sized(60)
@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=4), st.lists(st.none() | st.integers(0, 50)))
def test_a_response_in_pieces_is_read_as_kafka_python_reads_it(
    content: bytes, cuts: list[int], reads: list[int | None]
) -> None:
    bounds = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    ours, theirs = ResponseBytes(len(content)), KafkaBytes(len(content))
    for buffer in (ours, theirs):
        for start, end in pairwise(bounds):
            buffer.write(content[start:end])
            assert buffer.tell() == end
        buffer.seek(0)
    assert len(ours) == len(theirs)
    assert [bytes(ours.read(size)) for size in reads] == [theirs.read(size) for size in reads]
    assert ours.tell() == theirs.tell()


def test_kafka_python_keeps_responses_in_it() -> None:
    assert parser.KafkaBytes is ResponseBytes


def test_all_that_has_arrived_is_received_at_once(ends: Ends) -> None:
    ours, theirs = ends
    theirs.setblocking(False)
    sent = theirs.send(bytes(3 * PIECE_BYTES))
    assert receive(ours) == (bytes(sent), None)
    assert receive(ours) == (b"", None)


def test_what_arrived_before_the_end_of_a_connection_comes_before_the_error(ends: Ends) -> None:
    ours, theirs = ends
    theirs.send(b"no such user")
    theirs.close()
    assert receive(ours) == (b"no such user", None)
    received, error = receive(ours)
    assert received == b""
    assert isinstance(error, KafkaError)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_connection_that_this_end_has_closed_is_an_error(ends: Ends, is_known: bool) -> None:
    ours, _ = ends
    ours.close()
    received, error = receive(None if is_known else ours)
    assert received == b""
    assert isinstance(error, KafkaError)
