"""`tidegate setup` compiles every kernel that a service may run, so that no first recovery waits for a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tidegate.operators.registry import kinds
from tidegate.testing.exercise import configurations

pytestmark = pytest.mark.fast

LEFT_OUT = {
    "kernels.row_checksums._add": "of `tidegate rescale`",
    "kernels.row_checksums._hash_all": "of `tidegate rescale`",
    "kernels.record_format.partitioner._hash_all": "of `tidegate rescale`",
    "kernels.record_format.varint.read_big_endian": "tiny: Python calls it alone at a marker of an aborted transaction",
    "kernels.window_store.entries_of": "of WindowStore, which programs use and no service",
    "kernels.window_store.fetch_many": "of WindowStore",
    "kernels.window_store.first_and_end": "of WindowStore",
    "kernels.window_store.put_many": "of WindowStore",
}
"""Kernels that are compiled when they are first called, and why."""


@pytest.mark.process
def test_setup_compiles_every_kernel_that_a_service_may_run() -> None:
    as_services_run = {"TIDEGATE_NUMBA": "on", "NUMBA_BOUNDSCHECK": "0"}
    environment = os.environ | as_services_run | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.kernels.uncalled_kernels"]
    found = json.loads(subprocess.run(command, env=environment, stdout=-1, check=True).stdout)
    assert set(found["uncalled"]) == set(LEFT_OUT)
    own = {kind for kind in kinds() if kind != "pipeline"}  # whose kernels are those of its steps
    assert {f"operators.{kind}.step.replay" for kind in own} <= set(found["called"])


def test_every_kind_has_configurations_that_setup_compiles_for() -> None:
    assert {config.kind for config in configurations()} == set(kinds())
