"""What a lake asks of Google Cloud Storage: the condition of its puts, by a stub that keeps the documented rule."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lake import gcs_stub
from tests.lake.gcs_stub import GcsStub
from tidegate.state.lake import stores
from tidegate.state.lake.opening import open_lake

pytestmark = pytest.mark.fast


@pytest.fixture
def gcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsStub]:
    monkeypatch.setattr(stores, "is_plain_http", lambda _: True)
    with gcs_stub.running(tmp_path) as stub:
        yield stub


def test_a_conditional_put_demands_generation_zero_and_one_of_many_writers_wins(gcs: GcsStub) -> None:
    lake = open_lake(gcs.place("log"))
    with ThreadPoolExecutor(20) as pool:
        won = list(pool.map(lambda writer: lake.put_if_absent("_delta_log/1.json", b"%d" % writer), range(20)))
    assert won.count(True) == 1
    assert lake.get("_delta_log/1.json") == b"%d" % won.index(True)
    assert set(gcs.conditions) == {"0"}


def test_a_put_whose_answer_was_lost_is_settled_by_reading(gcs: GcsStub) -> None:
    lake = open_lake(gcs.place("log"))
    gcs.lose_next_answer = True
    assert lake.put_if_absent("a", b"mine")
    assert not lake.put_if_absent("a", b"other")


def test_objects_are_replaced_listed_read_in_part_and_deleted(gcs: GcsStub) -> None:
    lake = open_lake(gcs.place("log"))
    for key in ("d/a", "d/b", "d/c"):
        lake.put(key, b"first")
        lake.put(key, b"content of " + key.encode())
    assert set(gcs.conditions) == {None}
    assert [found.key for found in lake.list_after("d", "d/a")] == ["d/b", "d/c"]
    assert lake.get_range("d/b", 2, 3) == b"nte"
    assert lake.etag("d/b") is not None
    lake.delete(["d/a", "d/missing", "d/b"])
    assert (lake.get("d/a"), lake.get("d/c")) == (None, b"content of d/c")
