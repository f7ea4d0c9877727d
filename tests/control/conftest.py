"""A control database of each kind, created for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.server import Server
from tidegate.control.address import Address
from tidegate.control.database import Database

KINDS = [pytest.param("sqlite", marks=pytest.mark.fast), pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server."""
    running = Server()
    yield running
    running.remove()


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    """Where a database without tables is: a SQLite file, or one of the PostgreSQL server."""
    if request.param == "sqlite":
        return Address(f"sqlite:///{tmp_path}/control.db")
    server: Server = request.getfixturevalue("server")
    return Address(server.url(server.create()))


@pytest.fixture
def database(address: Address) -> Database:
    """The database at the address."""
    return Database(address)
