"""Spark SQL views of deduplication."""

from __future__ import annotations

from typing import Any

from tidegate.operators.deduplicate.config import DeduplicateRules
from tidegate.operators.views import as_time, create_view, shown_columns, window_columns, window_names

CAUSES = {"first": "no record of the key near it in time was remembered, so it is no duplicate"}
"""The rule behind each cause of an emission."""


def register(spark: Any, name: str, config: DeduplicateRules) -> list[str]:
    """Create the view `<name>_remembered` of the first records that are remembered. Return its name.

    Columns: partition, key, window_start and window_end (where the input is windowed), event_time, offset.
    """
    key, _ = shown_columns(config)
    slot = f"partition, key{window_columns(config)}, timestamp"
    shown = ", ".join(["partition", f"{key} AS key", *window_names(config), f"{as_time('timestamp')} AS event_time"])
    return [
        create_view(
            spark,
            f"{name}_remembered",
            f"""SELECT {shown}, offset FROM (
                    SELECT *, row_number() OVER (PARTITION BY {slot} ORDER BY batch DESC, seq DESC) AS age
                    FROM {name}_log WHERE kind = 'state'
                ) WHERE age = 1 AND op = 'put'""",
        )
    ]
