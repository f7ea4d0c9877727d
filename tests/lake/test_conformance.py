"""Every lake keeps the rules of the port: one suite for a folder, a real S3 server and the emulator of Azure."""

from __future__ import annotations

import itertools
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lake.azure_server import AzureServer
from tests.lake.s3_server import S3Server
from tidegate.contracts.errors import StateError
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake

WRITERS = 50
NUMBERS = itertools.count()


@pytest.fixture(params=["folder", "s3", pytest.param("azure", marks=pytest.mark.azure)])
def lake(request: pytest.FixtureRequest, tmp_path) -> Lake:
    if request.param == "folder":
        (tmp_path / "log").mkdir()
        return open_lake(Place.of(tmp_path / "log"))
    server: S3Server | AzureServer = request.getfixturevalue(request.param)
    return open_lake(server.place(f"conformance-{os.getpid()}-{next(NUMBERS)}"))


def created(lake: Lake, *keys: str) -> None:
    for key in keys:
        assert lake.put_if_absent(key, f"the content of {key}".encode())


def race(lake: Lake, key: str, pool: ThreadPoolExecutor) -> None:
    """Fifty writers put one key at once; one of them wins, and its bytes are there."""
    won = list(pool.map(lambda writer: lake.put_if_absent(key, b"writer %d" % writer), range(WRITERS)))
    assert won.count(True) == 1
    assert lake.get(key) == b"writer %d" % won.index(True)


def test_one_of_fifty_writers_of_a_key_wins(lake: Lake) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(30):
            race(lake, f"_delta_log/{number:020d}.json", pool)


@pytest.mark.kill
def test_one_of_fifty_writers_wins_in_a_thousand_rounds(lake: Lake) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        for number in range(1000):
            race(lake, f"_delta_log/{number:020d}.json", pool)


def test_a_put_of_the_same_bytes_has_won_already(lake: Lake) -> None:
    assert lake.put_if_absent("a", b"mine")
    assert lake.put_if_absent("a", b"mine")
    assert not lake.put_if_absent("a", b"other")
    assert lake.get("a") == b"mine"


def test_a_missing_object_has_no_content_no_range_and_no_etag(lake: Lake) -> None:
    created(lake, "b")
    assert lake.get("a") is None
    assert lake.get_range("a", 0, 10) is None
    assert lake.get_range("a", 0, 0) is None
    assert lake.etag("a") is None
    assert list(lake.list_after("a")) == []


def test_a_put_replaces_the_whole_object(lake: Lake) -> None:
    created(lake, "x")
    lake.put("a", b"0123456789")
    lake.put("a", b"abc")
    assert lake.get("a") == b"abc"


def test_the_etag_is_that_of_the_put_and_of_the_listing_and_changes_with_the_content(lake: Lake) -> None:
    created(lake, "x")
    first = lake.put("a", b"one")
    assert lake.etag("a") == first
    assert next(lake.list_after("")).etag == first
    assert lake.put("a", b"other") != first
    assert lake.etag("a") != first


@pytest.mark.parametrize("size", [0, 1, 8 * 2**20, 8 * 2**20 + 1, 20 * 2**20 + 7])
def test_an_object_of_any_size_is_read_as_it_was_written(lake: Lake, size: int) -> None:
    content = os.urandom(size)
    created(lake, "x")
    lake.put("a", content)
    assert lake.get("a") == content
    assert lake.put_if_absent("b", content)
    assert lake.get("b") == content


def test_ranges_end_with_the_object(lake: Lake) -> None:
    content = os.urandom(20 * 2**20)
    created(lake, "x")
    lake.put("a", content)
    edges = [0, 1, 8 * 2**20 - 1, 8 * 2**20, len(content) - 1, len(content), len(content) + 5]
    for start, length in itertools.product(edges, [0, 1, 8 * 2**20, 8 * 2**20 + 1, 19 * 2**20]):
        assert lake.get_range("a", start, length) == content[start : start + length], (start, length)


def test_a_listing_has_the_keys_below_a_folder_in_their_order(lake: Lake) -> None:
    names = ["d/a", "d/a.x", "d/a-b", "d/a0/c", "d/b/1/2", "d/Z", "d/_x", "da/1", "e"]
    created(lake, *names)
    below = sorted(name for name in names if name.startswith("d/"))
    assert [found.key for found in lake.list_after("d")] == below
    for after in [*names, "d", "d/zz", "c", "f"]:
        expected = [name for name in below if name > after]
        assert [found.key for found in lake.list_after("d", after)] == expected, after


def test_a_listing_tells_sizes_and_times_of_the_stores_clock(lake: Lake) -> None:
    created(lake, "d/a", "d/b")
    found = list(lake.list_after("d"))
    assert [each.size for each in found] == [len(b"the content of d/a")] * 2
    assert found[1].written_ms - found[0].written_ms < 60_000


def test_a_listing_goes_on_after_a_thousand_keys(lake: Lake) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: lake.put_if_absent(f"d/{number:05d}", b"x"), range(1203)))
    assert [found.key for found in lake.list_after("d")] == [f"d/{number:05d}" for number in range(1203)]
    assert len(list(lake.list_after("d", "d/00100"))) == 1102
    lake.delete(found.key for found in list(lake.list_after("d")))
    assert list(lake.list_after("d")) == []


def test_deleting_what_is_not_there_is_no_error(lake: Lake) -> None:
    created(lake, "a", "d/b", "d/c")
    lake.delete(["a", "nothing", "d/b", "d/nothing"])
    lake.delete(["nothing"])
    lake.delete([])
    assert lake.get("a") is None
    assert [found.key for found in lake.list_after("")] == ["d/c"]


KEYS = ["", "/", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", ".", "..", "a\nb", "a\0b", "a b", "ä", "a\\b", "a%2Fb"]


@pytest.mark.parametrize("key", KEYS)
def test_only_plain_names_are_keys(lake: Lake, key: str) -> None:
    created(lake, "a")
    calls = [
        lambda: lake.put_if_absent(key, b"x"),
        lambda: lake.put(key, b"x"),
        lambda: lake.get(key),
        lambda: lake.get_range(key, 0, 1),
        lambda: lake.etag(key),
        lambda: lake.delete([key]),
        *([lambda: next(lake.list_after(key))] if key else []),
    ]
    for call in calls:
        with pytest.raises(StateError, match="no name of an object"):
            call()
    assert [found.key for found in lake.list_after("")] == ["a"]


def test_a_lake_travels_as_its_place(lake: Lake) -> None:
    created(lake, "a")
    other = pickle.loads(pickle.dumps(lake))
    assert other.place == lake.place
    assert other.get("a") == b"the content of a"
