"""Scenarios recorded from other engines, where they lie beside the checkout; too many for the fast suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.testing.conformance import run_files

FOLDER = Path(__file__).parents[3].parent / "shared" / "conformance"
SCENARIOS = [
    *(("suppress", file) for file in ("suppress", "suppress_tables", "suppress_model", "probes")),
    *(("versioned_table", file) for file in ("versioned_table", "probes")),
    *(("stream_table_join", file) for file in ("stream_table_join", "probes")),
    *(("window_store", file) for file in ("window_store", "probes")),
    *(("windowed_count", file) for file in ("windowed_count", "probes")),
    *(("suppress_final", file) for file in ("suppress_final", "probes")),
    *(("evicting_window", file) for file in ("evicting_window", "evicting_probes")),
]


@pytest.mark.parametrize(("operator", "file"), SCENARIOS)
def test_recorded_scenarios_of_other_engines_pass(operator: str, file: str) -> None:
    path = FOLDER / f"{file}.jsonl.gz"
    if not path.exists():
        pytest.skip("the recorded scenarios are not part of this repository")
    [result] = run_files([path], operator)
    assert result.differences == ()
    assert result.passed > 0
