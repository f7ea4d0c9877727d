"""A filter on a field of Avro values before a suppression, compared with the suppression alone, which reads no value.

4 partitions, 4 million records, 10,000 keys, on the same topic; timed like the suppression service, in turns. Values
are in the wire format of a schema registry, with the schema in a folder, and have the fields of `codecs`. The filter
reads one of them and drops nothing.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.in_memory.codecs import COLUMNS, SCHEMA, TEXT
from benchmarks.load import RECORDS, Numbers, key_names
from benchmarks.suppression import OPERATOR, alternating, loaded, ratio, service_s
from tidegate.kernels.codecs.avro.encoder import AvroEncoder

NUMBER = 17


def measure(say: Any, records: int = RECORDS) -> dict[str, float]:
    """Return the records per second of both, and the median ratio of the filtered to that alone."""
    with loaded(say, records, _values) as (bootstrap, folder):
        sides = {"filtered": _filtered(folder), "alone": OPERATOR}
        runs = {name: partial(service_s, bootstrap, folder, config, records=records) for name, config in sides.items()}
        for run in runs.values():
            run()  # warm-up: compiles kernels and grows states
        rates = alternating(runs, say, records)
    return {
        "filtered_records_per_s": median(rates["filtered"]),
        "alone_records_per_s": median(rates["alone"]),
        "filter_ratio": ratio(rates["filtered"], rates["alone"]),
    }


def _filtered(folder: Path) -> dict[str, Any]:
    """Write the schema into a folder, and return a pipeline of a filter and the suppression."""
    schemas = folder / "schemas"
    schemas.mkdir()
    (schemas / f"{NUMBER}.avsc").write_text(TEXT)
    value = {"avro": {"schema": SCHEMA, "schemas": str(schemas)}}
    return {"kind": "pipeline", "value": value, "steps": [{"filter": "amount >= 0"}, {"name": "updates", **OPERATOR}]}


def _values(number: Numbers, key: Numbers) -> pa.Array:
    notes = pc.binary_join_element_wise("payment number ", pa.array(number).cast(pa.string()), "")
    rows = [key_names(key), pa.array(number * 0.25), pa.array(number % 1_000), notes]
    return AvroEncoder(COLUMNS, TEXT, NUMBER).encode(pa.record_batch(rows, COLUMNS)).values
