"""The window store against a dict of windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.collisions import SEED, keys_with_equal_fingerprints
from tidegate import WindowStore
from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.kernels.memory import storage

pytestmark = pytest.mark.fast

KEYS = [b"", b"a", b"ab", b"\xff", b"a key of more than eight bytes", *keys_with_equal_fingerprints(2)]
keys = st.sampled_from(KEYS)
starts = st.one_of(st.integers(0, 30), st.sampled_from([0, 7, 100, MAX_TIMESTAMP]))
values = st.sampled_from([b"", b"x", b"a value of more than thirty-two bytes", None])
puts = st.lists(st.tuples(keys, values, starts), max_size=60)
bounds = st.tuples(st.integers(-3, 40), st.integers(-3, 40) | st.just(MAX_TIMESTAMP))
settings = st.builds(
    dict, retention_ms=st.integers(5, 40), window_size_ms=st.integers(0, 5), retain_duplicates=st.booleans()
)


@dataclass
class Oracle:
    """The rules as they are worded: windows by start, key and number of the put."""

    retention_ms: int
    window_size_ms: int
    retain_duplicates: bool
    write_grace_ms: int
    stream_time: int = -1
    windows: dict[tuple[int, bytes, int], bytes] = field(default_factory=dict)
    puts: int = 0

    def put(self, key: bytes, value: bytes | None, start: int) -> bool:
        self.puts += 1
        self.stream_time = max(self.stream_time, start)
        readable = self.stream_time - self.retention_ms
        self.windows = {window: held for window, held in self.windows.items() if window[0] > readable}
        if start <= self.stream_time - self.write_grace_ms:
            return False
        if not self.retain_duplicates:
            self.windows.pop((start, key, 0), None)
        if value is not None:
            self.windows[start, key, self.puts if self.retain_duplicates else 0] = value
        return True

    def rows(self, backward: bool, wanted: Any = lambda key, start: True) -> list[tuple[bytes, int, int, bytes]]:
        found = sorted((window for window in self.windows if wanted(window[1], window[0])), reverse=backward)
        ends = (min(window[0] + self.window_size_ms, MAX_TIMESTAMP) for window in found)
        return [(window[1], window[0], end, self.windows[window]) for window, end in zip(found, ends, strict=True)]


def both(setting: dict[str, Any], grace_ms: int | None) -> tuple[WindowStore, Oracle]:
    grace_ms = None if grace_ms is None else min(grace_ms, setting["retention_ms"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "fresh_seed", lambda: SEED)  # so that keys have equal fingerprints
        store = WindowStore("tested", write_grace_ms=grace_ms, **setting)
    return store, Oracle(**setting, write_grace_ms=setting["retention_ms"] if grace_ms is None else grace_ms)


@given(setting=settings, grace=st.none() | st.integers(0, 40), puts=puts, backward=st.booleans())
def test_every_put_is_accepted_and_kept_as_by_the_oracle(
    setting: dict[str, Any], grace: int | None, puts: list[tuple[bytes, Any, int]], backward: bool
) -> None:
    store, oracle = both(setting, grace)
    for put in puts:
        assert store.put(*put) == oracle.put(*put)
        assert list(store.all(backward=backward)) == oracle.rows(backward)
        assert store.stream_time == oracle.stream_time
        assert len(store) == len(oracle.windows)


@given(setting=settings, puts=puts, key=keys, to=keys | st.none(), bounds=bounds, backward=st.booleans())
def test_reads_have_both_ends_of_their_ranges(
    setting: dict[str, Any],
    puts: list[tuple[bytes, Any, int]],
    key: bytes,
    to: bytes | None,
    bounds: tuple[int, int],
    backward: bool,
) -> None:
    store, oracle = both(setting, None)
    for put in puts:
        store.put(*put)
        oracle.put(*put)
    first, last = bounds

    def expected(wanted: Any) -> Any:
        return oracle.rows(backward, lambda key, start: first <= start <= last and wanted(key))

    assert list(store.fetch(key, first, last, backward=backward)) == expected(lambda found: found == key)
    assert list(store.fetch_all(first, last, backward=backward)) == expected(lambda found: True)
    ranged = expected(lambda found: key <= found and (to is None or found <= to))
    assert list(store.fetch_range(key, to, first, last, backward=backward)) == ranged
    single = None if setting["retain_duplicates"] else oracle.windows.get((first, key, 0))
    assert store.fetch(key, first) == single


@given(setting=settings, puts=puts)
def test_bulk_calls_equal_single_calls(setting: dict[str, Any], puts: list[tuple[bytes, Any, int]]) -> None:
    store, other = both(setting, None)[0], both(setting, None)[0]
    taken = sum(store.put(*put) for put in puts)
    columns = [list(column) for column in zip(*puts, strict=True)] or [[], [], []]
    all_keys, all_starts = pa.array(columns[0], pa.binary()), np.array(columns[2], np.int64)
    assert other.put_many(all_keys, pa.array(columns[1], pa.binary()), all_starts) == taken
    assert list(other.all()) == list(store.all())
    assert other.fetch_many(all_keys, all_starts).to_pylist() == [store.fetch(key, at) for key, _, at in puts]


@given(setting=settings, puts=puts)
def test_nothing_expires_or_changes_under_an_open_iterator(
    setting: dict[str, Any], puts: list[tuple[bytes, Any, int]]
) -> None:
    store, _ = both(setting, None)
    for put in puts:
        store.put(*put)
    expected, snapshot = list(store.all()), store.all()
    store.put(b"a", b"other", 30)
    store.put(b"later", b"x", MAX_TIMESTAMP)
    assert list(snapshot) == expected


def test_expired_windows_release_their_memory() -> None:
    store = WindowStore("tested", retention_ms=1_000, window_size_ms=10)
    many, content = 2_000, pa.array([b"k" * 20] * 2_000)
    for begin in range(0, 200 * many, many):
        store.put_many(content, content, np.arange(begin, begin + many))
    assert len(store) == 1_000
    assert sum(array.nbytes for array in store._storage.arrays().values()) < 1_000_000


@pytest.mark.parametrize(
    ("changed", "where", "cause"),
    [
        ({"name": None}, "name", "without a name"),
        ({"retention_ms": -1}, "retention_ms", "not a duration"),
        ({"window_size_ms": -1}, "window_size_ms", "not a duration"),
        ({"write_grace_ms": -1}, "write_grace_ms", "not a duration"),
        ({"retention_ms": 4}, "retention_ms", "before they end"),
        ({"write_grace_ms": 11}, "write_grace_ms", "cannot be written for longer"),
    ],
)
def test_impossible_arguments_are_refused_by_name(changed: dict[str, Any], where: str, cause: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        WindowStore(**({"name": "tested", "retention_ms": 10, "window_size_ms": 5} | changed))
    assert [problem.where for problem in refused.value.problems] == [where]
    assert cause in str(refused.value)


def test_null_keys_and_negative_starts_are_refused_and_change_nothing() -> None:
    store = WindowStore("tested", retention_ms=10, window_size_ms=5)
    for refused in (
        lambda: store.put(None, b"x", 1),  # type: ignore[arg-type]
        lambda: store.put("a", b"x", 1),  # type: ignore[arg-type]
        lambda: store.put(b"a", b"x", -1),
        lambda: store.fetch(None, 1),  # type: ignore[call-overload]
        lambda: store.put_many(pa.array([b"a", None]), pa.array([b"x", b"x"]), np.array([1, 1])),
        lambda: store.put_many(pa.array([b"a"]), pa.array([b"x"]), np.array([-1])),
    ):
        with pytest.raises(UserError):
            refused()
    assert store.stream_time == -1
    assert list(store.all()) == []
