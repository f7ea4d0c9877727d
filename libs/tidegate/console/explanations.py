"""Explanations of emissions in words, for the page and for the command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidegate.console import texts
from tidegate.console.tables import Cell, cell_of
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import OperatorRules
from tidegate.runtime.configuration.written import written
from tidegate.runtime.doctor.explanation.explanation import Explanation, Row

_NOT_SHOWN = {"kind", "input", "output", "format"}
"""Settings that no emission depends on, or that other lines say."""

_VERDICTS = {
    "equal": "the same, byte for byte",
    "different": "DIFFERENT from the log",
    "unknown": "not possible",
}


class Line(NamedTuple):
    """A line of an explanation: what it says something about, and what."""

    about: str
    cell: Cell


def lines_of(found: Explanation, config: OperatorConfig) -> list[Line]:
    """Return the lines of an explanation, the emission first, and last whether it was recomputed.

    `config`: the operator's in the file, whose formats decode keys and values.
    """
    rules = config.shown(found.row.get("step"))
    return [
        *_emission(found, config, rules),
        *_cause(found),
        *_origin(found, config, rules),
        *_tables(found, config, rules),
        _check(found),
    ]


def _emission(found: Explanation, config: OperatorConfig, rules: OperatorRules) -> Iterator[Line]:
    names = {"step": "step", "key": "key", "window_start": "window start", "window_end": "window end"}
    names |= {"value": "value", "timestamp": "event time"}
    for name, about in names.items():
        if name in ("key", "value") or found.row.get(name) is not None:
            yield Line(about, cell_of(name, found.row[name], config, rules))


def _cause(found: Explanation) -> Iterator[Line]:
    cause = found.row["cause"]
    yield Line("cause", Cell(found.rule if cause is None else f"{cause}: {found.rule}"))
    yield Line(
        "batch", Cell(f"{found.position.batch} ({found.action}), committed {texts.time_text(found.clock_ms)} UTC")
    )
    before, after = (
        f"{shown} UTC" if (shown := texts.time_text(time)) != "-" else "none" for time in found.stream_time
    )
    yield Line("stream time", Cell(f"{before} before the batch, {after} after it"))


def _origin(found: Explanation, config: OperatorConfig, rules: OperatorRules) -> Iterator[Line]:
    if found.source_offset >= 0:
        batch = "an earlier batch" if found.source_batch is None else f"batch {found.source_batch}"
        of_partition = f"{_place(found.source_offset, config)}, partition {found.position.partition}"
        yield Line("record", Cell(f"{of_partition}, read in {batch}"))
    if found.held is not None:
        yield Line("held before", cell_of("value", found.held["value"], config, rules))
        yield Line("held since", Cell(f"batch {found.held['batch']}"))
    for name, value in found.settings.items():
        if name not in _NOT_SHOWN:
            yield Line(name, Cell(texts.visible(written(value))))


def _place(offset: int, config: OperatorConfig) -> str:
    """Return where a record of the input is; those of several topics are numbered in turn, not by their offsets."""
    if len(config.inputs) == 1:
        return f"offset {offset} of {config.input}"
    return f"number {offset} of {', '.join(config.inputs)} together"


def _tables(found: Explanation, config: OperatorConfig, rules: OperatorRules) -> Iterator[Line]:
    for table in found.tables:
        yield Line(f"table {table.name}", Cell(f"version {table.version} of its log; the newest is {table.newest}"))
    if (since := found.row.get("valid_from")) is not None:
        yield Line("version valid from", Cell(f"{texts.time_text(since)} UTC"))
    if found.newer_why:
        yield Line("with the newest table", Cell(f"unknown: {texts.visible(found.newer_why)}"))
    elif found.newer is not None:
        yield from _newer(found, found.newer, config, rules)


def _newer(found: Explanation, newer: Sequence[Row], config: OperatorConfig, rules: OperatorRules) -> Iterator[Line]:
    if not newer:
        yield Line("with the newest table", Cell("nothing would be emitted for this record"))
    for row in newer:
        is_same = all(found.row[name] == value for name, value in row.items())
        yield Line(
            "with the newest table", Cell("the same") if is_same else cell_of("value", row["value"], config, rules)
        )


def _check(found: Explanation) -> Line:
    verdict = _VERDICTS[found.verdict]
    return Line("recomputed", Cell(f"{verdict}: {texts.visible(found.why)}" if found.why else verdict))
