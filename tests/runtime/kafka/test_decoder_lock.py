"""Threads of a process that receive their first messages of a kind at the same time can all read them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.schemas.fields.struct import StructField

from tidegate.runtime.kafka import client  # noqa: F401

pytestmark = pytest.mark.fast

VERSION = 9
"""That no other test reads."""


def test_two_threads_may_read_their_first_message_of_a_kind_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = StructField.emit_decode_from
    written = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name="t")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        min_version=VERSION,
        max_version=VERSION,
        version=VERSION,
    ).encode()

    def slowly(struct: StructField, ctx: Any, *told: Any, **how: Any) -> None:
        time.sleep(0.02 if ctx.lines == ["def _decode(data, pos):"] else 0.0)
        emit(struct, ctx, *told, **how)

    monkeypatch.setattr(StructField, "emit_decode_from", slowly)
    before = MetadataRequest._struct.data_class

    def read(wait_s: float) -> Any:
        time.sleep(wait_s)
        return MetadataRequest.decode(written, version=VERSION).topics[0].name

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(read, (0.0, 0.01))) == ["t", "t"]
    assert MetadataRequest._struct.data_class is before
    assert read(0.0) == "t"
