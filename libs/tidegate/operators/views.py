"""Creates the SQL views that every operator has.

The views are temporary and named after the operator: `<operator>_log` is the raw log; the others show its outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

import pyarrow as pa

from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.log_schema import ORIGIN

TIME = pa.timestamp("ms")
"""The type of columns of times in what a kind's `held` returns."""

_AS_TEXT = "CAST({0} AS STRING)"
_TEXTS: dict[ShownAs, str] = {"bytes": "{0}", "string": _AS_TEXT, "json": _AS_TEXT}
_COUNTS = "late_and_rejected_counts"
_DEPRECATED = {"refused_counts": _COUNTS}
"""Former names of views, without that of the operator, and the present ones."""
_LAST_MS = 2**63 // 1_000
_YEAR_2_MS, _YEAR_9999_MS = -62_104_060_800_000, 253_370_764_800_000
"""Between these bounds Python can represent the time in every time zone."""


def register_log(spark: Any, name: str, url: str, version: int | None) -> None:
    """Create the view `<name>_log` of the operator log at the url, as of the Delta version if one is given."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    reader.load(url).createOrReplaceTempView(f"{name}_log")


def register_outputs(spark: Any, name: str, config: OperatorRules) -> list[str]:
    """Create the views over `<name>_log` that all operators have; return their names.

    They are `<name>_emissions`, `<name>_late`, `<name>_rejected`, `<name>_late_and_rejected_counts`, and its deprecated
    name `<name>_refused_counts`. For a late or rejected record, `topic` and `offset` are where it was read; `timestamp`
    (ms) and `event_time` its time; `bound` (ms) and `bound_time` the time that it missed; `lateness` (ms) how far
    stream time was ahead of it. `event_time` and `bound_time` are null before 0002-01-01 and after 9999-01-01.
    """
    return [
        register_emissions(spark, name, config),
        *register_refused(spark, name, config),
        *_register_counts(spark, name),
    ]


def register_refused(spark: Any, name: str, config: OperatorRules, *more: str) -> list[str]:
    """Create the views `<name>_late` and `<name>_rejected`, with `more` columns; return their names.

    Of several input topics, `origin_topic` and `origin_offset` say where a record was read.
    """
    if isinstance(config, OperatorConfig) and len(config.inputs) > 1:
        more = (*more, *(column.name for column in ORIGIN))
    times = [f"{_as_calendar_time('timestamp')} AS event_time", f"{_as_calendar_time('bound')} AS bound_time"]
    own = {"late": ("topic", "lateness", "bound"), "rejected": ("topic", "bound")}
    shown = as_received(config)
    return [
        _register(spark, f"{name}_{kind}", name, shown, kind, ", ".join([*columns, *times, *more]))
        for kind, columns in own.items()
    ]


def _register_counts(spark: Any, name: str) -> list[str]:
    """Create the view of how many late and rejected records the log has, by kind and cause; return its names.

    A record that several branches of a pipeline have refused is one record, in several rows.
    """
    times = ", ".join(f"{end}({_as_calendar_time('timestamp')}) AS {end}_event_time" for end in ("min", "max"))
    counts = f"""SELECT kind, cause, count(DISTINCT struct(partition, topic, offset)) AS records, {times},
                        max(lateness) AS max_lateness
                 FROM {name}_log WHERE kind IN ('late', 'rejected') GROUP BY kind, cause"""
    return [create_view(spark, f"{name}_{view}", counts) for view in (_COUNTS, *_DEPRECATED)]


def deprecations(query: str, operators: Iterable[str]) -> list[str]:
    """Return a line for each deprecated view of these operators that the query names, with the present name."""
    views = ((f"{name}_{old}", f"{name}_{new}") for name in operators for old, new in _DEPRECATED.items())
    return [f"{old} is deprecated; query {new}" for old, new in views if re.search(rf"\b{old}\b", query, re.I)]


def register_emissions(spark: Any, name: str, config: OperatorRules, *more: str) -> str:
    """Create the view `<name>_emissions` of the operator's emissions, with `more` columns; return its name."""
    columns = ", ".join([f"{as_time('timestamp')} AS event_time", *more])
    return _register(spark, f"{name}_emissions", name, config, "emission", columns)


def shown_columns(config: OperatorRules) -> tuple[str, str]:
    """Return the SQL expressions that show key and value in the configured formats."""
    return _shown("key", config.key_format), _shown("value", config.value_format)


def _shown(column: str, form: ShownAs) -> str:
    return _TEXTS.get(form, f"{function_of(form)}({{0}})").format(column)


def is_typed(form: ShownAs) -> bool:
    """Return whether views show values of that format as numbers or as fields: not as text or bytes."""
    return form not in _TEXTS


def function_of(form: ShownAs) -> str:
    """Return the name of the SQL function that reads values of a typed format. It depends on the format alone."""
    return f"tidegate_{sha256(repr(form).encode()).hexdigest()[:16]}"


def as_received(config: OperatorRules) -> OperatorRules:
    """Return the rules that show typed keys and values as bytes: late and rejected ones may be none of the format."""
    typed = {name: "bytes" for name in ("key_format", "value_format") if is_typed(getattr(config, name))}
    return config.model_copy(update=typed)


def window_names(config: KeyRules) -> tuple[str, ...]:
    """Return the columns that identify a key together with `key`: the window's bounds, or none without windows."""
    return ("window_start", "window_end") if config.windowed else ()


def window_columns(config: KeyRules) -> str:
    """Return the columns of `window_names` as SQL, to append after `key`."""
    return "".join(f", {name}" for name in window_names(config))


def as_time(milliseconds: str) -> str:
    """Return the SQL expression for a column in ms as a timestamp; times after Spark's last one are shown as that."""
    return f"timestamp_millis(if({milliseconds} > {_LAST_MS}, {_LAST_MS}, {milliseconds}))"


def _as_calendar_time(milliseconds: str) -> str:
    """Return the SQL expression for a column in ms as a timestamp; null before 0002-01-01 and after 9999-01-01."""
    return f"timestamp_millis(if({milliseconds} BETWEEN {_YEAR_2_MS} AND {_YEAR_9999_MS}, {milliseconds}, null))"


def create_view(spark: Any, view: str, query: str) -> str:
    """Create or replace the temporary view of the query; return the view's name."""
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} AS {query}")
    return view


def _register(spark: Any, view: str, name: str, config: OperatorRules, kind: str, columns: str) -> str:
    """Create the view of the log's rows of one kind: the common columns, then `columns`; return the view's name."""
    key, value = shown_columns(config)
    common = f"partition, batch, seq, {key} AS key, {value} AS value, headers, timestamp, offset, cause"
    return create_view(spark, view, f"SELECT {common}, {columns} FROM {name}_log WHERE kind = '{kind}'")
