"""The reading that each departure must be joined to, computed with pandas' as-of join.

A departure is identified by its position among all departures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate.devkit.demo.departures import Departure
from tidegate.devkit.demo.weather import Reading

NOTHING = -1
"""Number that stands for no reading."""


def expected_readings(stream: Sequence[Departure], readings: Sequence[Reading]) -> npt.NDArray[np.int64]:
    """Return, per departure, the number of the newest reading at its airport up to its scheduled time, or NOTHING."""
    departed = _sorted((d.airport, d.timestamp) for d in stream)
    read = _sorted((r.key, r.timestamp) for r in readings)
    met = pd.merge_asof(departed, read, on="timestamp", by="airport", suffixes=("", "_read"))
    result = np.full(len(stream), NOTHING, np.int64)
    result[met["number"]] = met["number_read"].fillna(NOTHING).astype("int64")
    return result


def _sorted(rows: object) -> pd.DataFrame:
    """Return the rows (airport, timestamp) with their numbers, sorted by time."""
    table = pd.DataFrame(rows, columns=["airport", "timestamp"])
    return table.assign(number=range(len(table))).sort_values("timestamp", kind="stable")
