"""Compiles consecutive stateless steps into one function of a flow, which asks DuckDB once per batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.flow import Flow, Sifted
from tidegate.contracts.flow import Stateless as Function
from tidegate.contracts.records import Records
from tidegate.contracts.values import Path
from tidegate.expressions.checking import Expression
from tidegate.expressions.evaluation import is_true
from tidegate.expressions.layers import Answer, Evaluated, Layer, evaluate_layers
from tidegate.kernels.columns import binary_parts
from tidegate.operators.pipeline.evaluated.columns import ColumnReader, Read
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.reading import behind, expressions_of
from tidegate.operators.pipeline.rules.steps import Evaluated as Evaluable
from tidegate.operators.pipeline.rules.steps import Filter, Require, Select, WithColumns

NOT_WRITTEN = "its values cannot be written as JSON"
Mask = npt.NDArray[np.bool_]
_NONE = np.empty(0, np.int64)
_Causes = Callable[[npt.NDArray[np.int64]], list[str]]


class Stage(NamedTuple):
    """A step, its expressions as a layer, and the parts of rows that these read: `key`, `headers` or `value`.

    `reads_fields`: whether it reads fields of the value, or what a step before it has made.
    """

    step: Evaluable
    layer: Layer
    reads: Sequence[str]
    reads_fields: bool

    @property
    def cause(self) -> str:
        """Return why a row is rejected whose expressions cannot be evaluated."""
        return cannot_be_evaluated(self.layer.expressions.values())


def cannot_be_evaluated(expressions: Iterable[Expression]) -> str:
    """Return why a row is rejected for which these expressions cannot be evaluated."""
    return f"cannot be evaluated: {', '.join(each.text for each in expressions)}"


def compiled(steps: Sequence[Evaluable], place: Place) -> Function:
    """Return what the steps do with a flow at that place. The steps have been checked for it."""
    stages, reader, objects = _plan(steps, place)

    def sift(*flows: Flow) -> Sifted:
        [flow] = flows
        at = np.flatnonzero(readable(flow))
        rows = flow.rows if len(at) == len(flow) else flow.rows.take(at)
        read, retracted = reader.read(rows), retractions(place, rows)
        answer = evaluate_layers([stage.layer for stage in stages], read.columns, objects)
        values = None if answer.objects is None else without_retracted(answer.objects.values[0], retracted)
        return sifted(flow, at, Verdict.of(stages, read, answer, retracted), values)

    return sift


def _plan(steps: Sequence[Evaluable], place: Place) -> tuple[list[Stage], ColumnReader, pa.Schema | None]:
    """Return the stages, the reader of what they read, and the fields of the objects that they make of values."""
    begin, made, wanted, layers = place, set[str](), set[Path](), []
    changed = False
    for step in steps:
        expressions = expressions_of(step, place)
        paths = {path for each in expressions.values() for path in each.paths}
        read = {path for path in paths if path[0] not in made}
        without = frozenset(place.values.schema.names if isinstance(step, Select) else ())
        place = behind(step, place)
        named = isinstance(step, WithColumns | Select)
        made |= without | set(expressions if named else ())
        layers.append((step, Layer(expressions, named, without), {column for column, *_ in read}, read != paths))
        wanted |= read
        changed |= named
    objects = place.values.schema if changed else None
    if objects is not None:
        wanted |= {(name,) for name in objects.names if name not in made}
    reader = ColumnReader(begin, wanted)
    stages = []
    for step, layer, columns, reads_made in layers:
        parts = [part for part, names in reader.parts.items() if names & columns]
        stages.append(Stage(step, layer, parts, reads_made or "value" in parts))
    return stages, reader, objects


def readable(flow: Flow) -> Mask:
    """Return which rows are records. A batch of records that cannot be read is rejected by the operator behind."""
    unreadable = flow.rows.unreadable
    return flow.is_record if unreadable is None else flow.is_record & (unreadable == 0)


def retractions(place: Place, rows: Records) -> Mask:
    """Return which rows take back the result of a window: they have a null in place of a value.

    They pass steps that read fields: who has got the result has to get what takes it back.
    """
    takes_back = place.windowed and place.takes_back
    # rule: retractions-pass
    return np.asarray(rows.value_length < 0) if takes_back else np.zeros(len(rows), np.bool_)


def without_retracted(values: pa.Array, retracted: Mask) -> pa.Array:
    """Return the values with a null for each row that takes back a result."""
    return pc.if_else(pa.array(retracted), pa.scalar(None, values.type), values) if retracted.any() else values


class Verdict:
    """What becomes of each row: the first step that drops or rejects it decides. `retracted`: see `retractions`."""

    def __init__(self, retracted: Mask) -> None:
        self.kept = np.ones(len(retracted), np.bool_)
        self.dropped = np.zeros(len(retracted), np.bool_)
        self.causes: dict[int, str] = {}
        self._retracted = retracted

    @classmethod
    def of(cls, stages: Sequence[Stage], read: Read, answer: Answer, retracted: Mask) -> Verdict:
        """Return what the stages, in order, make of the rows."""
        verdict = cls(retracted)
        for stage, evaluated in zip(stages, answer.layers, strict=True):
            verdict.reject_unreadable(read, stage.reads)
            verdict.judge(stage, evaluated)
        if answer.objects is not None:
            verdict.reject_unreadable(read, ("value",))
            verdict.reject(answer.objects.failed & ~retracted, lambda rows: [NOT_WRITTEN] * len(rows))
        return verdict

    def judge(self, stage: Stage, evaluated: Evaluated) -> None:
        judged = ~self._retracted | (not stage.reads_fields)
        self.reject(evaluated.failed & judged, lambda rows: [stage.cause] * len(rows))
        match stage.step:
            case Filter():
                self.dropped |= self.kept & judged & ~is_true(evaluated.values[0])
                self.kept &= ~self.dropped
            case Require(reason=reason):
                self.reject(~is_true(evaluated.values[0]) & judged, lambda rows: [reason] * len(rows))

    def reject_unreadable(self, read: Read, parts: Iterable[str]) -> None:
        """Reject the rows of which one of these parts cannot be read."""
        for part in parts:
            if (decoded := read.parts.get(part)) is not None:
                wrong = decoded.code > 0
                self.reject(wrong & ~self._retracted if part == "value" else wrong, decoded.causes)

    def reject(self, rows: Mask, causes: _Causes) -> None:
        """Reject those of the rows of which nothing is decided yet."""
        rejected = np.flatnonzero(rows & self.kept)
        if len(rejected):
            self.reject_each(dict(zip(rejected.tolist(), causes(rejected), strict=True)))

    def reject_each(self, causes: Mapping[int, str]) -> None:
        """Reject rows of which nothing is decided yet, each with its cause."""
        self.causes |= causes
        self.kept[[*causes]] = False

    def rejected(self, at: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
        """Return the places of the rejected rows, in order, and their causes. `at`: the places of all rows."""
        rows = sorted(self.causes)
        return at[rows].astype(np.int64), tuple(self.causes[row] for row in rows)


def sifted(flow: Flow, at: npt.NDArray[np.int64], verdict: Verdict, values: pa.Array | None) -> Sifted:
    """Return the flow behind steps: rejected rows are not in it, and dropped ones only pass their time on.

    `at`: the places of the rows of which the verdict is; `values`: their new values, None if they keep theirs.
    """
    if values is None and verdict.kept.all():
        return Sifted(flow, _NONE)
    kept = np.ones(len(flow), np.bool_)
    kept[at[verdict.dropped]] = False
    changed = flow.dropping(kept)
    if values is not None:
        chosen = np.flatnonzero(verdict.kept)
        rows = with_values(changed.rows, at[chosen], values.take(pa.array(chosen)))
        changed = replace(changed, rows=rows)
    rejected, causes = verdict.rejected(at)
    stay = flow.passing(kept)
    # rule: rejected-rows-move-nothing
    stay[rejected] = False
    if not stay.all():
        changed = changed.take(np.flatnonzero(stay))
    return Sifted(changed, rejected, causes, int(verdict.dropped.sum()))


def with_values(rows: Records, at: npt.NDArray[np.int64], values: pa.Array) -> Records:
    """Return the rows with other values at these places."""
    data, starts, lengths = binary_parts(values)
    value_start, value_length = rows.value_start.copy(), rows.value_length.copy()
    value_start[at], value_length[at] = starts + len(rows.data), lengths
    return replace(rows, data=np.concatenate([rows.data, data]), value_start=value_start, value_length=value_length)
