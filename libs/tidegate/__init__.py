"""Event-time state for Spark and Delta Lake.

    import tidegate as tg                       an application of operators: tg.Application, and its verbs
    from tidegate import SuppressionConfig      the configuration of each kind of operator
    from tidegate import SuppressionRules       the same without topics, for streaming DataFrames
    from tidegate import VersionedTable         a versioned table of its own, without a service
    from tidegate import read_log               rows of an operator log, for DuckDB or Polars
    from tidegate import CommittedWindows       windows of an operator log, by key and time
    from tidegate import WindowStore            a window store of its own, without a service
    import tidegate.spark                       operators on streaming DataFrames, views
    import tidegate.testing.driver              an operator, driven record by record

Names are imported when they are first used, so that `import tidegate` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING
from warnings import warn

if TYPE_CHECKING:
    from tidegate.application.aggregates import Aggregate, avg, collect, count, first, last, max, min, sum
    from tidegate.application.application import Application
    from tidegate.application.evictors import Evictor, evict, near_last, newest, recent
    from tidegate.application.formats import (
        Format,
        avro,
        batch_function,
        bytes_,
        float32,
        float64,
        int16,
        int32,
        int64,
        json,
        kafka_windows,
        protobuf,
        string,
        time_windows,
        timestamp,
        uuid,
    )
    from tidegate.application.limits import max_bytes, max_keys, time_limit, window_close
    from tidegate.application.streams.rekeyed import Rekeyed
    from tidegate.application.streams.stream import Stream, WindowedStream, WindowResults
    from tidegate.application.streams.table import Table
    from tidegate.application.streams.windowed import Windowed
    from tidegate.application.windows import hopping, session, tumbling, unlimited
    from tidegate.expressions.column import Column, col
    from tidegate.operators.deduplicate import DeduplicateConfig, DeduplicateRules
    from tidegate.operators.options.user_functions import BatchFunction
    from tidegate.operators.pipeline import PipelineConfig, PipelineRules
    from tidegate.operators.stream_stream_join import StreamStreamJoinConfig, StreamStreamJoinRules
    from tidegate.operators.stream_table_join import StreamTableJoinConfig, StreamTableJoinRules
    from tidegate.operators.suppression import SuppressionConfig, SuppressionRules
    from tidegate.operators.table_history import TableHistoryConfig, TableHistoryRules
    from tidegate.operators.table_history.versioned_table import VersionedTable
    from tidegate.operators.windowed_aggregation import WindowedAggregationConfig, WindowedAggregationRules
    from tidegate.runtime.task.log_rows import read_log
    from tidegate.state.committed_windows import CommittedWindows
    from tidegate.window_store import WindowStore

__all__ = [
    "Aggregate",
    "Application",
    "BatchFunction",
    "Column",
    "CommittedWindows",
    "DeduplicateConfig",
    "DeduplicateRules",
    "Evictor",
    "Format",
    "PipelineConfig",
    "PipelineRules",
    "Rekeyed",
    "Stream",
    "StreamStreamJoinConfig",
    "StreamStreamJoinRules",
    "StreamTableJoinConfig",
    "StreamTableJoinRules",
    "SuppressionConfig",
    "SuppressionRules",
    "Table",
    "TableHistoryConfig",
    "TableHistoryRules",
    "VersionedTable",
    "WindowResults",
    "WindowStore",
    "Windowed",
    "WindowedAggregationConfig",
    "WindowedAggregationRules",
    "WindowedStream",
    "avg",
    "avro",
    "batch_function",
    "bytes_",
    "col",
    "collect",
    "count",
    "evict",
    "first",
    "float32",
    "float64",
    "hopping",
    "int16",
    "int32",
    "int64",
    "json",
    "kafka_windows",
    "last",
    "max",
    "max_bytes",
    "max_keys",
    "min",
    "near_last",
    "newest",
    "protobuf",
    "read_log",
    "recent",
    "session",
    "string",
    "sum",
    "time_limit",
    "time_windows",
    "timestamp",
    "tumbling",
    "unlimited",
    "uuid",
    "window_close",
]

_NAMES = {
    "tidegate.application.aggregates": ("Aggregate", "avg", "collect", "count", "first", "last", "max", "min", "sum"),
    "tidegate.application.application": ("Application",),
    "tidegate.application.evictors": ("Evictor", "evict", "near_last", "newest", "recent"),
    "tidegate.application.formats": (
        "Format",
        "avro",
        "batch_function",
        "bytes_",
        "float32",
        "float64",
        "int16",
        "int32",
        "int64",
        "json",
        "kafka_windows",
        "protobuf",
        "string",
        "time_windows",
        "timestamp",
        "uuid",
    ),
    "tidegate.operators.options.user_functions": ("BatchFunction",),
    "tidegate.expressions.column": ("Column", "col"),
    "tidegate.application.limits": ("max_bytes", "max_keys", "time_limit", "window_close"),
    "tidegate.application.streams.rekeyed": ("Rekeyed",),
    "tidegate.application.streams.stream": ("Stream", "WindowedStream", "WindowResults"),
    "tidegate.application.streams.table": ("Table",),
    "tidegate.application.streams.windowed": ("Windowed",),
    "tidegate.application.windows": ("hopping", "session", "tumbling", "unlimited"),
    "tidegate.operators.deduplicate": ("DeduplicateConfig", "DeduplicateRules"),
    "tidegate.operators.pipeline": ("PipelineConfig", "PipelineRules"),
    "tidegate.operators.stream_stream_join": ("StreamStreamJoinConfig", "StreamStreamJoinRules"),
    "tidegate.operators.stream_table_join": ("StreamTableJoinConfig", "StreamTableJoinRules"),
    "tidegate.operators.suppression": ("SuppressionConfig", "SuppressionRules"),
    "tidegate.operators.table_history": ("TableHistoryConfig", "TableHistoryRules"),
    "tidegate.operators.windowed_aggregation": ("WindowedAggregationConfig", "WindowedAggregationRules"),
    "tidegate.operators.table_history.versioned_table": ("VersionedTable",),
    "tidegate.runtime.task.log_rows": ("read_log",),
    "tidegate.state.committed_windows": ("CommittedWindows",),
    "tidegate.window_store": ("WindowStore",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

_RENAMED = {"WindowConfig": "WindowedAggregationConfig", "WindowRules": "WindowedAggregationRules"}
"""Deprecated names, and the names that replace them."""


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        warn(f"{name} is deprecated; import {_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _MODULES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
