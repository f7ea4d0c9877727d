"""The configuration of the stream-stream join (`JoinWindows` with grace, KIP-328 and KIP-633)."""

from __future__ import annotations

from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import ValidationInfo, field_validator

from tidegate.contracts.config.key_rules import (
    AddedWindows,
    InputWindowsInOutput,
    KeyRules,
    added_windows,
    output_windows_of,
)
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration
from tidegate.contracts.config.option_types import Duration, Topic
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIME
from tidegate.contracts.values import Values

SIDES = ("left", "right")
"""The inputs of the join, by the port of their records."""


class StreamStreamJoinRules(KeyRules):
    """The rules of a join of records of two streams that have the same key and are close in time."""

    streams: ClassVar[int] = 2

    kind: Literal["stream_stream_join"] = "stream_stream_join"
    """Kind of operator."""
    join: Literal["inner", "left", "outer"]
    """Records without a partner: `inner` drops them, `left` emits those of the left stream, `outer` those of both, with
    a null in place of the partner's value."""
    before: Duration
    """How much earlier than a record of the left stream its partner in the right stream may be."""
    after: Duration
    """How much later than a record of the left stream its partner in the right stream may be."""
    grace: Duration
    """How long, in stream time, the window of a record stays open after its end."""

    @field_validator("after")
    @classmethod
    def _window_is_in_range(cls, after: int, info: ValidationInfo) -> int:
        if info.data.get("before", 0) + after > MAX_TIME:
            raise InvalidValue("before and after are too long together", f"write at most {MAX_TIME}ms for their sum")
        return after

    def pads(self, side: int) -> bool:
        """Return whether records of that side are emitted without a partner, too."""
        return self.join == "outer" or (self.join == "left" and side == 0)

    def open_for(self, side: int) -> int:
        """Return how long after its timestamp the window of a record of that side stays open, ms."""
        return (self.before if side else self.after) + self.grace

    @property
    def held_for(self) -> int:
        """Return how long after its timestamp a record is held, ms: as long as one that is not late may find it."""
        return self.before + self.after + self.grace

    def hold(self, length: int | None) -> int:
        """Return how long the window of a record stays open after its timestamp, on the side where that is longer."""
        return max(self.open_for(0), self.open_for(1))

    def results(self, values: Values, emits: pa.Schema | None) -> Values:
        """Return objects of the left and the right value. `emits`: the fields of the right value, if they are known."""
        left = pa.struct(values.schema) if values.form == "object" else pa.large_string()
        right = pa.large_string() if emits is None else pa.struct(emits)
        return Values.of_fields(pa.schema({SIDES[0]: left, SIDES[1]: right}))


class StreamStreamJoinConfig(StreamStreamJoinRules, OperatorConfig):
    """The rules of a join and its topics: `input` is that of the left stream."""

    right: Topic
    """Topic of the right stream, with as many partitions as that of the left one."""
    output_windows: InputWindowsInOutput = "headers"
    """How output records name their windows: in `headers`, or with `kafka` in the key, in Kafka's format."""

    @field_validator("right")
    @classmethod
    def _right_is_another_topic(cls, topic: str, info: ValidationInfo) -> str:
        if topic in (info.data.get("input"), info.data.get("output"), info.data.get("dead_letters")):
            raise InvalidValue("it is also the left stream or an output of this operator", "name another topic")
        return topic

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the topics of the left and the right stream."""
        return (self.input, self.right)

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the records of the output; None: they have none, or name them already."""
        return added_windows(self, self.output_windows)

    def writes(self) -> OutputDeclaration:
        """Return what is known of the records in the output topic."""
        windows = output_windows_of(self, self.output_windows) if self.windowed else None
        return OutputDeclaration(windows=windows, key_format=self.explicit_key_format)
