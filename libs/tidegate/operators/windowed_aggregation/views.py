"""Spark SQL views of windowed aggregations."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.views import as_time, create_view, register_emissions, shown_columns
from tidegate.operators.windowed_aggregation.config import Session, WindowedAggregationRules
from tidegate.operators.windowed_aggregation.elements.recording import WINDOW
from tidegate.operators.windowed_aggregation.window_times import CLOSED

_SLOT = "partition, key, window_start, window_end"

CAUSES = {
    "update": "a record has changed the result of the window, and every change is emitted",
    "on_time": "stream time has reached the end of the window: this is its first result",
    "window_close": "stream time has passed the end of the window and its grace: this result is final",
    "merged": "the session has become a part of another one, so its result is taken back",
    "flush": "a flush emitted all pending results",
    "idle": "the input was idle, so stream time was advanced until the result was due",
}
"""The rule behind each cause of an emission."""


def register(spark: Any, name: str, config: WindowedAggregationRules) -> list[str]:
    """Create the view `<name>_windows` of all windows with their newest value, and whether it is final.

    Columns: partition, key, window_start, window_end (times; a session ends at its last record), value (JSON text),
    final. Windows that are no longer in the state are shown with their last result, as long as the log keeps it.
    `<name>_emissions` has the bounds as times, too.

    If windows keep their elements, the value is the last result, null before the first one, and the view
    `<name>_elements` shows the elements. Return the names of the views.
    """
    shown = _shown(config)
    of_windows = f"AND arrival = {WINDOW}" if config.keeps_elements else ""
    held = _newest(f"{name}_log", "state", of_windows)
    emitted = _newest(f"{name}_log", "emission")
    windows = create_view(
        spark,
        f"{name}_windows",
        f"""WITH held AS ({held}), emitted AS ({emitted})
            SELECT {shown}, CAST(value AS STRING) AS value, phase = {CLOSED} AS final FROM held WHERE op = 'put'
            UNION ALL
            SELECT {shown}, CAST(value AS STRING) AS value, true AS final
            FROM emitted LEFT ANTI JOIN (SELECT * FROM held WHERE op = 'put') USING ({_SLOT})
            WHERE value IS NOT NULL""",
    )
    register_emissions(
        spark, name, config, *(f"{as_time(bound)} AS {bound}" for bound in ("window_start", "window_end"))
    )
    return [windows, _register_elements(spark, name, config)] if config.keeps_elements else [windows]


def _register_elements(spark: Any, name: str, config: WindowedAggregationRules) -> str:
    """Create the view `<name>_elements` of what each window holds, with event time and offset. Return its name."""
    _, value = shown_columns(config)
    held = _newest(f"{name}_log", "state", f"AND arrival > {WINDOW}", f"{_SLOT}, arrival")
    if isinstance(config.window, Session):
        held = _with_sessions(held, _newest(f"{name}_log", "state", f"AND arrival = {WINDOW}"))
    return create_view(
        spark,
        f"{name}_elements",
        f"""SELECT {_shown(config)}, {value} AS value, {as_time("timestamp")} AS event_time, arrival AS offset
            FROM ({held}) WHERE op = 'put'""",
    )


def _with_sessions(elements: str, sessions: str) -> str:
    """Return the SQL query of the elements with the bounds of their sessions, in place of their times."""
    return f"""SELECT element.* EXCEPT (window_start, window_end), session.window_start, session.window_end
        FROM ({elements}) AS element JOIN ({sessions}) AS session
        ON session.op = 'put' AND session.phase <> {CLOSED}
        AND element.partition = session.partition AND element.key = session.key
        AND element.timestamp BETWEEN session.window_start AND session.window_end"""


def _shown(config: WindowedAggregationRules) -> str:
    """Return the columns that identify a window, formatted for users."""
    key, _ = shown_columns(config)
    return f"partition, {key} AS key, {as_time('window_start')} AS window_start, {as_time('window_end')} AS window_end"


def _newest(log: str, kind: str, condition: str = "", slot: str = _SLOT) -> str:
    """Return the SQL query of the newest row of the kind per slot, among rows that meet the condition."""
    age = f"row_number() OVER (PARTITION BY {slot} ORDER BY batch DESC, seq DESC)"
    return f"SELECT * FROM (SELECT *, {age} AS age FROM {log} WHERE kind = '{kind}' {condition}) WHERE age = 1"


def held(rows: pa.Table, config: WindowedAggregationRules) -> pa.Table:
    """Return the windows among the newest rows of slots, and whether each is `final`; elements are left out."""
    windows = rows.filter(pc.equal(rows["arrival"], WINDOW)) if config.keeps_elements else rows
    return windows.append_column("final", pc.equal(windows["phase"], CLOSED))
