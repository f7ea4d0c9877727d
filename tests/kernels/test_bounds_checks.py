"""numba's bounds checking, under which the laws run in a build of its own (`make checked`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.fast

INSIDE = [("item", 15), ("word", 8), ("copy", 4, 0, 12), ("copy", 99, 99, 0)]
OUTSIDE = [
    ("item", 16),
    ("item", -17),
    ("word", 9),
    ("word", -1),
    ("copy", 5, 0, 12),
    ("copy", 0, 5, 12),
    ("copy", -1, 0, 2),
    ("copy", 0, 0, -1),
]


@pytest.mark.process
def test_a_checked_build_raises_an_error_only_for_accesses_outside_of_an_array() -> None:
    environment = os.environ | {
        "TIDEGATE_NUMBA": "on",
        "NUMBA_BOUNDSCHECK": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "tests.kernels.checked_worker", json.dumps(INSIDE + OUTSIDE)]
    found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    assert json.loads(found) == ["done"] * len(INSIDE) + ["IndexError"] * len(OUTSIDE)
