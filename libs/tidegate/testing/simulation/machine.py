"""A machine: its run, its folder of local states, and what of that would survive a loss of power."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

PAGE = 4_096


class Machine:
    """A folder, and the bytes that were synced of each file in it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self._boots = 0
        self._synced: dict[Path, bytes] = {}
        self._prefix = f"{folder}/"
        folder.mkdir()

    @property
    def boot_id(self) -> str:
        """The id of the machine's present run."""
        return f"{self.name}-{self._boots}"

    def has(self, path: Path) -> bool:
        """True for what lies in the machine's folder."""
        return str(path).startswith(self._prefix)

    def sync(self, path: Path) -> None:
        """The file's bytes survive a loss of power from now on."""
        if path.is_file():
            self._synced[path] = path.read_bytes()

    def lose_power(self, generator: Random) -> None:
        """A new run; of each file every page is as it was synced or as it was written last; some files are gone.

        Folders are named after random table ids: the order in which files are torn must not follow from them.
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
        """Nothing is left of the local states."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()


def _tear(path: Path, synced: bytes, generator: Random) -> None:
    """Each page is the synced or the written one; in place, as a mapping of the file sees it."""
    written = path.read_bytes()
    share = generator.choice([0.0, 0.5, 1.0])
    with path.open("r+b") as file:
        for start in range(0, len(written), PAGE):
            if generator.random() < share:
                file.seek(start)
                file.write(synced[start : start + PAGE].ljust(len(written[start : start + PAGE]), b"\0"))
