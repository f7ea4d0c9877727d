"""Scenarios recorded from other engines, where they lie beside the checkout; too many for the fast suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.testing.conformance import run_files

FOLDER = Path(__file__).parents[2].parent / "shared" / "conformance"
FILES = [FOLDER / f"{name}.jsonl.gz" for name in ("suppress", "suppress_tables", "suppress_model", "probes")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_recorded_scenarios_of_other_engines_pass(file: Path) -> None:
    if not file.exists():
        pytest.skip("the recorded scenarios are not part of this repository")
    [result] = run_files([file], "suppress")
    assert result.differences == ()
    assert result.passed > 0
