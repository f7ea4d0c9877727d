"""Schemas of writers, in a folder that has a file for each."""

from __future__ import annotations

from pathlib import Path

from tidegate.contracts.errors import Unavailable


class SchemaFolder:
    """A folder with the schema of number N in the file `N.avsc`. New files may be added at any time."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def schema(self, number: int) -> str | None:
        """Return the text of the schema; None if it has no file. Raise Unavailable if the folder cannot be read."""
        file = self._folder / f"{number}.avsc"
        try:
            if not file.exists() and self._folder.is_dir():
                return None
            return file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(
                "a schema cannot be read", value=file, remedy=f"mend the file or the folder: {error}"
            ) from None
