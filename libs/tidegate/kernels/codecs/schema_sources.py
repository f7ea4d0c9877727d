"""Where the schemas of writers are found: in a folder, or in a schema registry.

Both are opened by the worker that reads values. A login for a registry is in a file, which the worker reads: the
configuration of an operator, which logs and `tidegate plan` show, has the name of that file alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tidegate.contracts.errors import Unavailable, UserError
from tidegate.contracts.extras import require
from tidegate.kernels.codecs.registry_format import SchemaSource

_NOT_FOUND, _REFUSED = 404, (401, 403)
OPTIONS = ".properties"
"""The end of the names of files with options of a registry's client."""


def source_of(schemas: str, ending: str = ".avsc") -> SchemaSource:
    """Return the schemas of a folder, of a registry's URL, or of a registry that a file of options describes.

    `ending`: of the names of a folder's files.
    """
    if schemas.startswith(("http://", "https://")) or schemas.endswith(OPTIONS):
        return SchemaRegistry(schemas)
    return SchemaFolder(Path(schemas), ending)


class SchemaFolder:
    """A folder with the schema of number N in the file `N.avsc` or `N.proto`. Files may be added at any time."""

    def __init__(self, folder: Path, ending: str) -> None:
        self._folder, self._ending = folder, ending

    def schema(self, number: int) -> str | None:
        """Return the text of the schema; None if it has no file. Raise Unavailable if the folder cannot be read."""
        file = self._folder / f"{number}{self._ending}"
        with _reading(file):
            return file.read_text() if file.exists() or not self._folder.is_dir() else None

    def imports(self, number: int) -> dict[str, str]:
        """Return the files that are no schemas with a number, by their paths in the folder. Raise as `schema` does."""
        with _reading(self._folder):
            files = [file for file in self._folder.rglob(f"*{self._ending}") if not file.stem.isdigit()]
            return {file.relative_to(self._folder).as_posix(): file.read_text() for file in files}


@contextmanager
def _reading(place: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        remedy = "make the folder and its files readable"
        raise Unavailable(f"a schema cannot be read: {error}", value=place, remedy=remedy) from None


class SchemaRegistry:
    """A schema registry with Confluent's HTTP interface, reached by its own client.

    `place`: its URL, or a file with the options of the client, which is read when the first schema is asked for.
    """

    def __init__(self, place: str) -> None:
        self._place = place

    def schema(self, number: int) -> str | None:
        """Return the text of the schema; None if the registry has none of that number.

        Raise Unavailable if the registry cannot be reached, and UserError if it refuses the login.
        """
        with self._asking() as client:
            return str(client.get_schema(number).schema_str)
        return None

    def imports(self, number: int) -> dict[str, str]:
        """Return the references of the schema, and those of these, by their names. Raise as `schema` does."""
        found: dict[str, str] = {}
        with self._asking() as client:
            references = [*client.get_schema(number).references]
            while references:
                each = references.pop()
                if each.name not in found:
                    schema = client.get_version(each.subject, each.version).schema
                    found[each.name] = schema.schema_str
                    references += schema.references
        return found

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """Give the client; what the registry does not have ends the block."""
        from confluent_kafka.schema_registry import SchemaRegistryError
        from httpx2 import HTTPError

        client = self._client
        try:
            yield client
        except SchemaRegistryError as error:
            if error.http_status_code != _NOT_FOUND:
                raise self._failure(error.http_status_code) from None
        except HTTPError as error:
            raise self._unavailable(type(error).__name__) from None

    @cached_property
    def _client(self) -> Any:
        require("confluent_kafka")
        require("httpx2")
        from confluent_kafka.schema_registry import SchemaRegistryClient

        options = _options_in(Path(self._place)) if self._place.endswith(OPTIONS) else {"url": self._place}
        try:
            return SchemaRegistryClient(options)
        except (ValueError, TypeError, OSError) as error:
            remedy = f"correct the options of the registry: {error}"
            raise UserError("the registry's client cannot be made", value=self._place, remedy=remedy) from None

    def _failure(self, status: int) -> UserError | Unavailable:
        if status in _REFUSED:
            remedy = f"write a login that it takes in the file of options, a name that ends with {OPTIONS}"
            return UserError(f"the schema registry refuses the login ({status})", value=self._place, remedy=remedy)
        return self._unavailable(f"status {status}")

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(
            f"the schema registry cannot be read: {what}", value=self._place, remedy="start the registry"
        )


def _options_in(file: Path) -> dict[str, str]:
    """Return the options in lines of the form NAME=VALUE. Raise UserError if the file cannot be read."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        remedy = "make it readable for every worker"
        raise UserError(f"the options of the registry cannot be read: {error}", value=file, remedy=remedy) from None
    given = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in given}
