"""A simulated machine: its boot id, its folder of local states, and what survives a loss of power."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

PAGE = 4_096


class Machine:
    """A folder, and the synced bytes of each file in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._boots = 0
        self._synced: dict[Path, bytes] = {}
        self._prefix = f"{folder}/"
        folder.mkdir()

    @property
    def boot_id(self) -> str:
        """The boot id, which changes when the machine restarts."""
        return f"{self.name}-{self._boots}"

    def has(self, path: Path) -> bool:
        """Return True if the path is in the machine's folder."""
        return str(path).startswith(self._prefix)

    def sync(self, path: Path) -> None:
        """Keep the file's present bytes across a loss of power, as fsync does."""
        if path.is_file():
            self._synced[path] = path.read_bytes()

    def lose_power(self, generator: Random) -> None:
        """Restart the machine. Each page of a file is as synced or as last written; some never-synced files are gone.

        Files are torn in the order of their names, because folders have random table ids as names and runs must be
        repeatable.
        """
        self._boots += 1
        files = (path for path in self.folder.rglob("*") if path.is_file() and path.stat().st_size)
        for path in sorted(files, key=lambda path: (path.name, path)):
            synced = self._synced.get(path)
            if synced is None and generator.random() < 0.2:
                path.unlink()
                continue
            _tear(path, synced or b"", generator)

    def lose_folder(self) -> None:
        """Delete all local states."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()


def _tear(path: Path, synced: bytes, generator: Random) -> None:
    """Replace some pages by their synced content, in place, so that memory maps of the file see it."""
    written = path.read_bytes()
    share = generator.choice([0.0, 0.5, 1.0])
    with path.open("r+b") as file:
        for start in range(0, len(written), PAGE):
            if generator.random() < share:
                file.seek(start)
                file.write(synced[start : start + PAGE].ljust(len(written[start : start + PAGE]), b"\0"))
