"""The log's entries and checkpoints, which Tidegate writes itself, as DuckDB and delta-rs read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.lakes import lake_at
from tests.state.logs import aged_log
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.place import Place

pytestmark = pytest.mark.fast

COLUMNS = ["kind", "partition", "batch", "seq", "key", "topic"]
QUERY = f"SELECT {', '.join(COLUMNS)} FROM log"


def plain(found) -> list[tuple]:
    """The rows in an order of their own, bytes as bytes."""
    return sorted(tuple(bytes(v) if isinstance(v, bytearray) else v for v in row) for row in found)


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its Delta extension."""
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension"))
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        yield connection


def by_duckdb(database: duckdb.DuckDBPyConnection, path: Path, version: int) -> list[tuple]:
    return plain(database.sql(QUERY.replace("log", f"delta_scan('{path}', version={version})")).fetchall())


def by_delta_rs(path: Path, version: int) -> list[tuple]:
    return plain(
        row.values() for row in DeltaTable(path, version=version).to_pyarrow_table(columns=COLUMNS).to_pylist()
    )


def by_tidegate(path: Path | Place, version: int) -> list[tuple]:
    at = LogVersion.at(lake_at(path), version)
    read = pa.concat_tables(at.read(kind) for kind in ("meta", "state", "emission"))
    return plain(row.values() for row in read.select(COLUMNS).to_pylist())


def test_every_version_of_the_window_reads_the_same_in_duckdb_and_delta_rs(tmp_path, monkeypatch, database):
    log = aged_log(tmp_path, monkeypatch)
    for version in range(10, log.version + 1):
        expected = by_tidegate(log.place.folder, version)
        assert len(expected) > 10
        assert by_delta_rs(log.place.folder, version) == expected
        assert by_duckdb(database, log.place.folder, version) == expected
