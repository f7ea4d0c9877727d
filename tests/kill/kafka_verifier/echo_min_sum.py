"""The application that Kafka's verifier expects: it echoes `data`, and keeps the minimum and the sum of each key.

A second operator reads the copies of the records in `repartition`, and keeps the maximum and the count of each key.
"""

from __future__ import annotations

from pathlib import Path

import tidegate as tg

DATA, COPY = "data", "repartition"
READERS = {DATA: "totals", COPY: "copies"}
"""The operator that reads each topic."""
OUTPUTS = ("echo", "min", "sum", COPY, "max", "cnt")


def application(bootstrap: str, folder: Path) -> tg.Application:
    """Return the application with its lake and state in the folder."""
    places = {"lake": folder / "lake", "state": folder / "state"}
    app = tg.Application("verified", kafka=bootstrap, **places, keep_output="forever", control=None, trigger="50ms")
    data = app.stream(DATA, name=READERS[DATA], key=tg.string(), value=tg.int32())
    data.to("echo")
    data.to(COPY)
    all_time = data.select(value="value").window(tg.unlimited())
    _whole(all_time.aggregate(value=tg.min("value"), name="smallest"), "integer").to("min", value=tg.int32())
    _whole(all_time.aggregate(value=tg.sum("value"), name="total"), "bigint").to("sum", value=tg.int64())
    copied = app.stream(COPY, name=READERS[COPY], key=tg.string(), value=tg.int32())
    copies = copied.select(value="value").window(tg.unlimited())
    _whole(copies.aggregate(value=tg.max("value"), name="largest"), "integer").to("max", value=tg.int32())
    copies.aggregate(value=tg.count(), name="number").to("cnt", value=tg.int64())
    return app


def _whole(results: tg.WindowedStream, type_name: str) -> tg.WindowedStream:
    """Return results whose value, a number of JSON, is a whole number of that type."""
    return results.select(value=f"CAST(value AS {type_name})")
