"""The seams below the environment at which simulated clocks and files replace real ones.

All other code is the code that runs in a service. Patching fails at once if a seam no longer exists.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tidegate.contracts import kill_points
from tidegate.runtime import clock
from tidegate.runtime.batch_loop import claim
from tidegate.state import decisions, disk, leases
from tidegate.state.delta_log import data_files, log_entries, operator_log, snapshot
from tidegate.state.local import header, local_state, recovery
from tidegate.state.upkeep import compaction
from tidegate.testing.simulation.lake import Lake
from tidegate.testing.simulation.world import World

_sleep, _monotonic, _reserve, _write_header = time.sleep, time.monotonic, os.posix_fallocate, header.HeaderFile.write
_write_lease = leases.write

_BATCHES_BETWEEN_COMPACTIONS = 6
_SEED = b"known in a story"
"""Fixed hash seed of every state, so that runs are repeatable.

The real seed comes from the random table id, and the positions of keys decide whether a torn index is detected.
"""
_DIRECTOR = threading.main_thread().ident


@contextmanager
def substituted(world: World, lake: Lake) -> Iterator[None]:
    """Replace this process's lake, disk, clocks, boot id and kill points by those of the world."""
    calls = SimulatedSystemCalls(world)
    replaced: list[tuple[Any, str, Any]] = [
        (clock, "now_ms", world.clock.now_ms),
        (time, "monotonic", calls.monotonic),
        (time, "sleep", calls.sleep),
        (claim, "traces_in_database", lambda _address, key: ["a batch"] if world.oracles[key.operator].newest else []),
        (decisions, "MAX_BATCHES", _BATCHES_BETWEEN_COMPACTIONS),
        (operator_log, "DeltaTable", lake),
        (operator_log, "put_entry", lake.put),
        (operator_log, "read_files", lake.read),
        (compaction, "read_files", lake.read),
        (recovery, "read_files", lake.read),
        (log_entries, "read_actions", lake.entry),
        (snapshot, "read_actions", lake.entry),
        (data_files, "_write_parquet", lake.write),
        (disk, "sync", calls.sync),
        (os, "posix_fallocate", calls.reserve),
        (header.HeaderFile, "write", lambda file, new, *, synced: calls.write_header(file, new, synced)),
        (local_state, "_BOOT_ID", calls),
        (local_state, "seed_of", lambda _table_id: _SEED),
        (leases, "write", calls.write_lease),
    ]
    with ExitStack() as stack:
        for owner, name, substitute in replaced:
            stack.enter_context(patch.object(owner, name, substitute))
        stack.enter_context(patch.dict(local_state._KEPT, clear=True))
        stack.enter_context(kill_points.watched(world.step))
        yield


class SimulatedSystemCalls:
    """Clocks and disks of the simulated processes. Other threads get the real ones."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        """Replacement for `time.monotonic`."""
        return self._world.clock.monotonic() if self._simulated() else _monotonic()

    def sleep(self, seconds: float) -> None:
        """Replacement for `time.sleep`."""
        if self._simulated():
            self._world.sleep(seconds)
        else:
            _sleep(seconds)

    def read_text(self) -> str:
        """Return the boot id of the current process's machine, in place of the file that has the real one."""
        actor = self._world.stage.current
        return "" if actor is None else str(actor.machine.boot_id)

    def sync(self, path: Path) -> None:
        """Replacement for `disk.sync`, for local states only: files of the lake survive a loss of power anyway."""
        for machine in self._world.machines:
            if machine.has(path):
                self._world.step("before a sync")
                machine.sync(path)

    def write_header(self, file: Any, new: Any, synced: bool) -> None:
        """Replacement for `HeaderFile.write`."""
        self._world.step("before a header")
        _write_header(file, new, synced=False)
        if synced:
            self.sync(file.path)

    def write_lease(self, log: Path, reader: str, lease: Any) -> None:
        """Replacement for `leases.write`."""
        self._world.step("before a lease")
        if self._world.chance.happens("lost_lease"):
            raise OSError(errno.EIO, "Input/output error")
        _write_lease(log, reader, lease)
        self._world.step("after a lease")

    def reserve(self, descriptor: int, offset: int, length: int) -> None:
        """Replacement for `os.posix_fallocate`."""
        if self._simulated() and self._world.chance.happens("disk_full"):
            raise OSError(errno.ENOSPC, "No space left on device")
        _reserve(descriptor, offset, length)

    def _simulated(self) -> bool:
        return self._world.stage.is_turn_of_this_thread() or threading.get_ident() == _DIRECTOR
