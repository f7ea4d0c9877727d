"""Reads the id of a streaming query from its Spark checkpoint folder."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.contracts.errors import StateError


def query_id(checkpoint: Path) -> str | None:
    """Return the id of the query that the folder belongs to; None if no query has used it.

    Raises StateError if the folder's metadata cannot be read.
    """
    file = checkpoint / "metadata"
    try:
        found: str = json.loads(file.read_text())["id"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        remedy = "restore the folder from a copy, or give the operator a new name to start from the beginning"
        raise StateError("Spark's checkpoint folder does not name its query", value=file, remedy=remedy) from None
    return found
