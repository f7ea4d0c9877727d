"""Arrow reads objects of any lake as files."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.state.lake import as_files
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("whole", [0, 2**20], ids=["by ranges", "as a whole"])
def test_a_data_file_is_read_by_ranges_or_as_a_whole(
    tmp_path: Path, whole: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_files, "WHOLE_BYTES", whole)
    lake, body = open_lake(Place.of(tmp_path)), io.BytesIO()
    rows = pa.table({"batch": range(1_000), "key": [str(n) for n in range(1_000)]})
    pq.write_table(rows, body, row_group_size=100)
    lake.put("kind=state/a.parquet", body.getvalue())
    files, parquet = as_files.as_files(lake, {"kind=state/a.parquet": len(body.getvalue())}), ds.ParquetFileFormat()
    source = ds.FileSystemDataset([parquet.make_fragment("kind=state/a.parquet", files)], rows.schema, parquet, files)
    assert source.to_table(filter=ds.field("batch") >= 950).equals(rows.slice(950))


@given(st.binary(max_size=50), st.lists(st.tuples(st.integers(0, 60), st.integers(-1, 60)), max_size=5))
def test_ranges_read_like_a_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, reads: list[tuple[int, int]]
) -> None:
    lake = open_lake(Place.of(tmp_path_factory.getbasetemp()))
    lake.put_if_absent("exists", b"")
    lake.put("object", content)
    found, expected = as_files._Ranges(lake, "object", len(content)), io.BytesIO(content)
    for start, length in reads:
        assert (found.seek(start), found.read(length)) == (expected.seek(start), expected.read(length))


def test_a_missing_object_is_a_missing_file(tmp_path: Path) -> None:
    lake = open_lake(Place.of(tmp_path))
    for size in (1, as_files.WHOLE_BYTES + 1):
        with pytest.raises(FileNotFoundError):
            as_files.as_files(lake, {"gone": size}).open_input_file("gone").read()
