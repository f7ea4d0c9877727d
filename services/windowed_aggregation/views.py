"""What people query of windows in Spark SQL."""

from __future__ import annotations

from typing import Any

from tidegate.operators.windowed_aggregation import WindowRules
from tidegate.operators.windowed_aggregation.elements.step import WINDOW
from tidegate.operators.windowed_aggregation.spans import CLOSED
from tidegate.runtime.spark.views import as_time, create_view, register_emissions, shown_columns

_SLOT = "partition, key, window_start, window_end"


def register(spark: Any, name: str, config: WindowRules) -> list[str]:
    """The view `<name>_windows` shows every window with its newest value, and whether that is final; gives its name.

    Columns: partition, key, window_start, window_end (times; a session's end is its last record's), value (JSON text),
    final.
    Windows that the state no longer holds are shown by their last result, as long as the log keeps it. The bounds are
    in `<name>_emissions`, too, as times. Where windows keep their elements, a value is that of the last result, null
    before the first one, and the view `<name>_elements` shows the elements.
    """
    shown = _shown(config)
    of_windows = f"AND arrival = {WINDOW}" if config.keeps_elements else ""
    held = _newest(f"{name}_log", "state", of_windows)
    told = _newest(f"{name}_log", "emission")
    windows = create_view(
        spark,
        f"{name}_windows",
        f"""WITH held AS ({held}), told AS ({told})
            SELECT {shown}, CAST(value AS STRING) AS value, phase = {CLOSED} AS final FROM held WHERE op = 'put'
            UNION ALL
            SELECT {shown}, CAST(value AS STRING) AS value, true AS final
            FROM told LEFT ANTI JOIN (SELECT * FROM held WHERE op = 'put') USING ({_SLOT})
            WHERE value IS NOT NULL""",
    )
    register_emissions(
        spark, name, config, *(f"{as_time(bound)} AS {bound}" for bound in ("window_start", "window_end"))
    )
    return [windows, _register_elements(spark, name, config)] if config.keeps_elements else [windows]


def _register_elements(spark: Any, name: str, config: WindowRules) -> str:
    """The view `<name>_elements` shows what each window holds, with its time and offset; gives its name."""
    _, value = shown_columns(config)
    held = _newest(f"{name}_log", "state", f"AND arrival > {WINDOW}", f"{_SLOT}, arrival")
    return create_view(
        spark,
        f"{name}_elements",
        f"""SELECT {_shown(config)}, {value} AS value, {as_time("timestamp")} AS event_time, arrival AS offset
            FROM ({held}) WHERE op = 'put'""",
    )


def _shown(config: WindowRules) -> str:
    """What says which window it is, for people."""
    key, _ = shown_columns(config)
    return f"partition, {key} AS key, {as_time('window_start')} AS window_start, {as_time('window_end')} AS window_end"


def _newest(log: str, kind: str, condition: str = "", slot: str = _SLOT) -> str:
    """The newest row of the kind, where the condition holds, for each slot."""
    age = f"row_number() OVER (PARTITION BY {slot} ORDER BY batch DESC, seq DESC)"
    return f"SELECT * FROM (SELECT *, {age} AS age FROM {log} WHERE kind = '{kind}' {condition}) WHERE age = 1"
