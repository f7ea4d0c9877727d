"""Event-time state for Spark and Delta Lake.

    from tidegate import SuppressionConfig      the configuration of each kind of operator
    from tidegate import SuppressionRules       the same without topics, for streaming DataFrames
    from tidegate import VersionedTable         a versioned table of its own, without a service
    from tidegate import WindowStore            a window store of its own, without a service
    import tidegate.spark                       operators on streaming DataFrames, views
    import tidegate.testing.driver              an operator, driven record by record

Names are imported when they are first used, so that `import tidegate` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.operators.stream_table_join import StreamTableJoinConfig, StreamTableJoinRules
    from tidegate.operators.suppression import SuppressionConfig, SuppressionRules
    from tidegate.operators.table_history import TableHistoryConfig, TableHistoryRules
    from tidegate.operators.windowed_aggregation import WindowConfig, WindowRules
    from tidegate.versioned_table import VersionedTable
    from tidegate.window_store import WindowStore

__all__ = [
    "StreamTableJoinConfig",
    "StreamTableJoinRules",
    "SuppressionConfig",
    "SuppressionRules",
    "TableHistoryConfig",
    "TableHistoryRules",
    "VersionedTable",
    "WindowConfig",
    "WindowRules",
    "WindowStore",
]

_MODULES = {
    "StreamTableJoin": "tidegate.operators.stream_table_join",
    "Suppression": "tidegate.operators.suppression",
    "TableHistory": "tidegate.operators.table_history",
    "Window": "tidegate.operators.windowed_aggregation",
    "VersionedTable": "tidegate.versioned_table",
    "WindowStore": "tidegate.window_store",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    module = _MODULES.get(name) or _MODULES[name.removesuffix("Config").removesuffix("Rules")]
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
