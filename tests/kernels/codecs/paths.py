"""Paths of fields in typed columns, and the parts of rows to which they lead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st


def some(columns: pa.Schema) -> st.SearchStrategy[list[str]]:
    """Some paths of the columns, each as names with dots between them."""
    return st.lists(st.sampled_from([*_paths(columns, "")]), unique=True, min_size=1)


def _paths(fields: Iterable[pa.Field], before: str) -> Iterator[str]:
    for field in fields:
        yield before + field.name
        if pa.types.is_struct(field.type):
            yield from _paths(field.type, f"{before}{field.name}.")


def part(row: Any, fields: Iterable[pa.Field]) -> Any:
    """What a whole row has in these columns, or parts of columns."""
    if row is None:
        return None
    return {f.name: part(row[f.name], f.type) if pa.types.is_struct(f.type) else row[f.name] for f in fields}
