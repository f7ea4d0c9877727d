"""A program to be killed: `python -m tests.runtime.stream.program FOLDER` runs the operator on the table in FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.runtime.stream.conftest import Place
from tidegate.runtime.spark.session import start_session

KEYS = 40


def made(count: int) -> list[list[dict[str, Any]]]:
    """So many pieces of an input: every key once in each, 4 ms later."""
    return [
        [
            {"id": f"key {key}", "payload": b"%d" % piece, "at": 4 * piece + key % 3, "number": KEYS * piece + key}
            for key in range(KEYS)
        ]
        for piece in range(count)
    ]


if __name__ == "__main__":
    Place(start_session("killed", "local[2]"), Path(sys.argv[1])).run()
