"""Plays histories without numba: reads pickled (config, history, cuts, clock) from stdin, writes traces to stdout."""

from __future__ import annotations

import pickle
import sys

from tidegate.kernels.compiled import NUMBA_ON
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Partition


def main() -> None:
    """Serves until stdin ends."""
    assert not NUMBA_ON
    while True:
        try:
            config, history, cuts, clock_ms = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        trace = Partition(operator_for(config), clock_ms).play_all(history, cuts)
        pickle.dump(trace.as_dict(), sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
