"""The machine of the process that has the turn, as processes are given it: its disk can be full, and loses power."""

from __future__ import annotations

import errno
from pathlib import Path

from tidegate.state.local.machine import THIS_MACHINE
from tidegate.testing.simulation.world import World


class CurrentMachine:
    """The machine of the current process. Its files are real ones; which of their bytes are synced is simulated."""

    def __init__(self, world: World) -> None:
        self._world = world

    def boot_id(self) -> str:
        """Return the boot id of the current process's machine."""
        actor = self._world.stage.current
        return "" if actor is None else str(actor.machine.boot_id)

    def reserve(self, descriptor: int, offset: int, length: int) -> None:
        """Allocate disk space, unless the disk is full."""
        if self._world.chance.happens("disk_full"):
            raise OSError(errno.ENOSPC, "No space left on device")
        THIS_MACHINE.reserve(descriptor, offset, length)

    def sync(self, path: Path) -> None:
        """Keep the file's present bytes across a loss of power."""
        for machine in self._world.machines:
            if machine.has(path):
                self._world.step("before a sync")
                machine.sync(path)

    def write(self, path: Path, data: bytes, offset: int, *, folder: int | None, synced: bool) -> None:
        """Write the data; the process may die before it."""
        self._world.step("before a header")
        THIS_MACHINE.write(path, data, offset, folder=folder, synced=False)
        if synced:
            self.sync(path)
