"""The code of the how-to is run, block by block, as a reader would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tidegate.runtime.kafka.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROOT = Path(__file__).resolve().parents[3]
HOW_TO = ROOT / "docs" / "how-to" / "spark-streams.md"


def emitted(lake: Path, name: str) -> list[tuple[bytes, str]]:
    """(key, cause) of an operator's emissions."""
    rows = DeltaTable(str(lake / name)).to_pyarrow_table(filters=[("kind", "=", "emission")]).sort_by("seq")
    return [(row["key"], row["cause"]) for row in rows.to_pylist()]


def test_every_block_of_the_how_to_runs(broker, tmp_path):
    create_topic({"bootstrap.servers": broker.bootstrap}, "flight_status", 1, {})
    blocks = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    program = tmp_path / "how_to.py"
    program.write_text("\n".join(blocks).replace("127.0.0.1:9092", broker.bootstrap))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    ran = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    expected = [(b"UA1545", "time"), (b"AA1141", "time")]
    assert emitted(tmp_path / "lake", "departure_updates") == expected
    assert emitted(tmp_path / "lake", "updates_by_connector") == expected
    assert DeltaTable(str(tmp_path / "emitted")).to_pyarrow_table().num_rows == 2
    assert "null key" in ran.stdout
    newest = [json.loads(row["value"]) for row in DeltaTable(str(tmp_path / "emitted")).to_pyarrow_table().to_pylist()]
    assert sorted(newest, key=lambda each: each["flight"]) == [
        {"flight": "AA1141", "status": "boarding"},
        {"flight": "UA1545", "status": "departed"},
    ]
    [valid] = re.findall(r"^UA1545 .*boarding", ran.stdout, re.MULTILINE)
    assert valid
