"""The join of two streaming DataFrames by key and closeness in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from tidegate.application.definitions.definition import Definition
from tidegate.application.frames.source import FrameSource, TwoFrames
from tidegate.application.options import Duration, Fault
from tidegate.application.places import caller
from tidegate.application.streams.stream import Stream
from tidegate.application.streams.value import Startable
from tidegate.contracts.errors import UserError

_OF_BOTH = ("max_ahead", "rewind_window")
"""Options of a stream that apply to the records of both."""


def join_streams(
    left: Stream,
    right: Stream,
    *,
    how: Literal["inner", "left", "outer"],
    before: Duration,
    after: Duration,
    grace: Duration,
) -> Startable:
    """Return the pairs of records of two streams that have the same key and are close in time (KIP-328, KIP-633).

    `before`, `after`: how much earlier and later than a record of the left stream its partner in the right one may be.
    `grace`: how long, in stream time, the window of a record stays open after its end; behind that the record is late.
    `how`: which records are emitted without a partner when their window closes: none (`inner`), those of the left
    stream (`left`), all (`outer`). Values are `{"left": ..., "right": ...}`. `.start(NAME, lake=...)` starts the join:
    one query with one checkpoint. Both streams begin with a DataFrame and have no steps; raise UserError otherwise.
    """
    sources = [_source_of(each) for each in (left, right)]
    options = {"kind": "stream_stream_join", "join": how, "before": before, "after": after, "grace": grace}
    faults = [*_differences(left.definition, right.definition), *filter(None, [sources[0].other_keys(sources[1])])]
    definition = left.definition.after(".join_streams", caller(), options, faults)
    problems = (*definition.problems, *right.definition.problems)
    return Startable(replace(definition, problems=problems), TwoFrames(*sources))


def _source_of(stream: Any) -> FrameSource:
    """Return the source of a stream. Raise UserError if it does not begin with a DataFrame, or has steps already."""
    remedy = "pass what tidegate.spark.stream(df, ...) returns"
    if not isinstance(stream, Stream) or not isinstance(stream.definitions, FrameSource):
        raise UserError("a join of two streams is not given a stream on a DataFrame", value=stream, remedy=remedy)
    if "kind" in stream.definition.options:
        call = stream.definition.calls[-1]
        raise UserError("a stream that is joined with another one has steps already", value=call, remedy=remedy)
    return stream.definitions


def _differences(left: Definition, right: Definition) -> Iterator[Fault]:
    """Yield the options that apply to both streams, and that these have given different values."""
    for name in _OF_BOTH:
        if (other := right.options.get(name)) != left.options.get(name):
            yield Fault(other, f"the streams differ in {name}, which applies to both", "give both streams the same")
