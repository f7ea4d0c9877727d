"""Places in the user's program, for messages: the file and the line of a call."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

_OURS = __package__ or "tidegate.application"


@dataclass(frozen=True)
class Place:
    """The file and the line of a call; the file may be a cell of a notebook or a prompt, which no folder has.

    `run`: equal for all calls of one run of a program or of a notebook's cell. Each statement at a prompt is a run.
    """

    file: str
    line: int
    run: object = None

    @property
    def folder(self) -> Path:
        """Return the folder of the program, or the working directory for a notebook or a prompt."""
        return Path(self.file).resolve().parent if Path(self.file).is_file() else Path.cwd()

    def __str__(self) -> str:
        name = Path(self.file).name if Path(self.file).is_file() else "<cell>"
        return f"{name}:{self.line}"


def caller() -> Place:
    """Return the place of the innermost call from outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    file = frame.f_code.co_filename
    return Place(file, frame.f_lineno, _run(file))


def _run(file: str) -> object:
    if (notebook := sys.modules.get("IPython")) is not None and (shell := notebook.get_ipython()) is not None:
        return shell.execution_count
    return object() if file.startswith("<") else "program"
