"""The versioned table for use without a service."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tidegate import VersionedTable
from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.contracts.records import Row
from tidegate.operators.table_history import TableHistoryRules
from tidegate.operators.table_history.reading import Version
from tidegate.operators.table_history.reference import Reference
from tidegate.operators.table_history.versioned_table import PutResult

pytestmark = pytest.mark.fast

times = st.integers(0, 30)
keys = st.sampled_from([b"", b"a", b"a key of more than eight bytes"])
writes = st.lists(st.tuples(keys, st.sampled_from([b"x", b"", None]), times), max_size=30)


def table(retention_ms: int = 100) -> VersionedTable:
    return VersionedTable("table", history_retention_ms=retention_ms)


@many
@given(writes=writes, retention_ms=times, data=st.data())
def test_reads_are_those_of_the_reference(
    writes: list[tuple[bytes, bytes | None, int]], retention_ms: int, data: st.DataObject
) -> None:
    under_test = table(retention_ms)
    reference = Reference(TableHistoryRules(history_retention=f"{retention_ms}ms"))
    for at, write in enumerate(writes):
        late = len(reference.late)
        reference.process(Row(*write, at), 0)
        assert under_test.put(*write).accepted == (len(reference.late) == late)
    assert under_test.stream_time == reference.stream_time
    for key in (b"", b"a", b"a key of more than eight bytes", b"another"):
        found = [under_test.get(key), *(under_test.get(key, as_of) for as_of in range(-1, 32))]
        expected = [reference.get(key), *(reference.get(key, as_of) for as_of in range(-1, 32))]
        assert [pair(version) for version in found] == [pair(row) for row in expected]
        first, last = data.draw(times), data.draw(times)
        rows = reference.get_range(key, first, last)
        assert [pair(version) for version in under_test.get_range(key, first, last, True)] == [pair(r) for r in rows]
        assert under_test.get_range(key, first, last) == under_test.get_range(key, first, last, True)[::-1]


def pair(version: Version | Row | None) -> tuple[bytes | None, int] | None:
    """Value and valid_from, of either."""
    if version is None:
        return None
    return version.value, version.timestamp if isinstance(version, Row) else version.valid_from


def test_a_version_is_valid_until_the_next_one_of_its_key_tombstones_included() -> None:
    """a: 10 ---- 20 ---- tombstone at 30
    b: 15 -----------------------------
    """
    under_test = table()
    assert under_test.put(b"a", b"1", 10) == PutResult(accepted=True, valid_to=None)
    assert under_test.put(b"a", None, 30) == PutResult(accepted=True, valid_to=None)
    assert under_test.put(b"b", b"2", 15) == PutResult(accepted=True, valid_to=None)
    assert under_test.put(b"a", b"3", 20) == PutResult(accepted=True, valid_to=30)
    assert under_test.get(b"a", 19) == Version(b"1", 10, 20)
    assert under_test.get_range(b"a") == [Version(b"3", 20, 30), Version(b"1", 10, 20)]
    assert under_test.get_range(b"a", 20, 29) == [Version(b"3", 20, 30)]
    assert under_test.get_range(b"a", 30) == []
    assert (under_test.get(b"a"), under_test.get(b"b")) == (None, Version(b"2", 15, None))


def test_a_tombstone_and_a_put_of_the_same_time_replace_each_other() -> None:
    under_test = table()
    under_test.put(b"a", b"1", 10)
    under_test.put(b"a", None, 10)
    assert under_test.get(b"a", 10) is None
    under_test.put(b"a", b"2", 10)
    assert under_test.get(b"a", 10) == Version(b"2", 10, None)


def test_a_write_at_the_retention_is_accepted_and_one_before_it_changes_nothing() -> None:
    under_test = table(10)
    under_test.put(b"a", b"new", 20)
    assert under_test.put(b"a", b"old", 9) == PutResult(accepted=False, valid_to=None)
    assert under_test.put(b"a", b"old", 10) == PutResult(accepted=True, valid_to=20)
    assert under_test.delete(b"a", 9) is None
    assert under_test.stream_time == 20


def test_a_delete_returns_the_version_that_was_valid() -> None:
    under_test = table(10)
    under_test.put(b"a", b"1", 1)
    under_test.put(b"a", b"2", 5)
    assert under_test.delete(b"a", 3) == Version(b"1", 1, 5)
    assert under_test.delete(b"a", 3) is None
    assert under_test.get(b"a", 4) is None
    assert under_test.get(b"a") == Version(b"2", 5, None)


def test_all_problems_of_a_table_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError, match="2 problems"):
        VersionedTable("", history_retention_ms=-1)
    with pytest.raises(ConfigurationError, match="not a duration"):
        VersionedTable("tested", history_retention_ms="1d")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not null"):
        table().put(None, b"x", 1)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not negative"):
        table().put(b"a", b"x", -1)
    with pytest.raises(UserError, match="not negative"):
        table().delete(b"a", -1)
    with pytest.raises(UserError, match="not null"):
        table().get("text")  # type: ignore[arg-type]
