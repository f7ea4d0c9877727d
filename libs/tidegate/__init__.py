"""Tidegate: event-time state for Spark and Delta Lake.

    from tidegate import SuppressionConfig      the operators' configuration types
    from tidegate import SuppressionRules       the same without topics, for streaming DataFrames
    from tidegate import VersionedTable         a versioned table of its own, without a service
    from tidegate import WindowStore            a window store of its own, without a service
    import tidegate.spark                       operators on streaming DataFrames, views
    import tidegate.testing.driver              an operator, driven record by record

Names are imported when they are used, so that `import tidegate` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

_NAMES = {
    **dict.fromkeys(("SuppressionConfig", "SuppressionRules"), "tidegate.operators.suppression"),
    **dict.fromkeys(("TableHistoryConfig", "TableHistoryRules"), "tidegate.operators.table_history"),
    **dict.fromkeys(("StreamTableJoinConfig", "StreamTableJoinRules"), "tidegate.operators.stream_table_join"),
    **dict.fromkeys(("WindowConfig", "WindowRules"), "tidegate.operators.windowed_aggregation"),
    "VersionedTable": "tidegate.versioned_table",
    "WindowStore": "tidegate.window_store",
}


def __getattr__(name: str) -> object:
    if name not in _NAMES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    return getattr(import_module(_NAMES[name]), name)
