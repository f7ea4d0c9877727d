"""A session of Spark Connect reads logs by the format `tidegate`; operators start in a driver alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate as tg
from tests.runtime.stream.test_driver import Stream
from tidegate.contracts.records import Row

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]


def test_a_connect_session_reads_a_log_and_starts_no_operator(tmp_path: Path) -> None:
    rules = tg.SuppressionRules(until={"time_limit": "1h"}, key_format="string", value_format="string")
    stream = Stream(rules, tmp_path).start()
    stream.batch([Row(key, value, 5, 0) for key, value in ((b"JFK", b"1"), (b"LGA", b"2"), (b"JFK", b"3"))])
    log = str(tmp_path / "lake" / "updates")
    reader = [sys.executable, "-m", "tests.runtime.spark.connect_reader", str(tmp_path / "another"), log, "state"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    found = subprocess.run(reader, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {
        "rows": [["JFK", "3"], ["LGA", "2"]],
        "refused": "the DataFrame is of a session of Spark Connect",
    }
    assert not (tmp_path / "another").exists()
