"""Damage to a local state's own files."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.state.test_local_state import HEADER
from tidegate.state.local.header import SLOT_BYTES, HeaderFile

changes = st.lists(st.tuples(st.integers(0, 2 * SLOT_BYTES - 1), st.binary(min_size=1, max_size=16)), max_size=6)


@given(batches=st.integers(1, 5), changes=changes, length=st.none() | st.integers(0, 2 * SLOT_BYTES))
def test_a_damaged_header_reads_as_an_earlier_one_or_none(
    batches: int, changes: list[tuple[int, bytes]], length: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = HeaderFile(Path(folder) / "header")
        for batch in range(batches):
            file.write(replace(HEADER, batch=batch), synced=False)
        content = bytearray(file.path.read_bytes())
        for at, word in changes:
            content[at : at + len(word)] = word[: max(0, len(content) - at)]
        file.path.write_bytes(content[:length])
        found = HeaderFile(file.path).read()
        assert found is None or found in [replace(HEADER, batch=batch) for batch in range(max(0, batches - 2), batches)]
