"""Accesses to arrays in a checked build: runs the calls of the command line, prints the outcome of each as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from tidegate.kernels.compiled import CHECKED, compiled_in_place, words

DATA = np.zeros(16, np.uint8)


@compiled_in_place
def item(data: Any, at: int) -> Any:
    return data[at]


@compiled_in_place
def word(data: Any, at: int) -> Any:
    return words.word_at(data, at)


@compiled_in_place
def copy(data: Any, start: int, at: int, length: int) -> None:
    words.copy_bytes(data, start, data, at, length)


def outcome(name: str, *numbers: int) -> str:
    """Call the function of that name on an array of 16 bytes; return the name of its error, or `done`."""
    try:
        globals()[name](DATA, *numbers)
    except Exception as error:
        return type(error).__name__
    return "done"


if __name__ == "__main__":
    assert CHECKED
    print(json.dumps([outcome(*call) for call in json.loads(sys.argv[1])]))
