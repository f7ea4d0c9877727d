"""One batch on its way through the steps of a pipeline: the flows between steps, the ledger, and the tables."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.errors import EngineError
from tidegate.contracts.flow import Flow, Sifted
from tidegate.contracts.operator import OperatorState, StepResult
from tidegate.contracts.records import Int64s, Records
from tidegate.operators.pipeline.passage.results import (
    REFUSED,
    causes_of,
    emissions_of,
    flow_of,
    in_sequence,
    joined,
    numbered,
    refused_rows,
    rejected_rows,
    sourced,
    tagged,
    taken_rows,
    with_given_bytes,
)
from tidegate.operators.pipeline.passage.shape import Shape
from tidegate.operators.pipeline.passage.times import Times, moved_times
from tidegate.operators.pipeline.steps import INPUT, Step

_NO_ROWS, _NO_SOURCES = Records.from_rows([]), np.empty(0, np.int64)
_NONE_REFUSED = REFUSED.empty_table()


class Way(NamedTuple):
    """How a batch begins: with records, with an advance of time, or as a flush of all steps."""

    kind: Literal["step", "advance", "flush"]
    records: Records
    clock_ms: int
    stream_time: int = 0


class Stopped(NamedTuple):
    """Where a bound stopped a batch: the step, the bound, and the input record before which it stopped."""

    step: str
    limit: str
    source: int


@dataclass
class Batch:
    """The flows and results of the steps that the batch has passed so far.

    What leaves an operator that no step reads is no flow: it needs no marks.
    """

    steps: Shape
    schema: pa.Schema
    way: Way
    flows: dict[str, Flow] = field(default_factory=dict)
    ledger: dict[str, Counts] = field(default_factory=dict)
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    undone: list[pa.Table] = field(default_factory=list)
    measures: dict[str, int] = field(default_factory=dict)
    floor: int | None = None
    emissions: dict[str, pa.Table] = field(default_factory=dict)
    refused: dict[str, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flows[INPUT] = Flow.of_input(self.way.records)

    def apply(self, step: Step) -> None:
        """Apply a stateless step to the flows that it reads; raise EngineError if it loses or invents records."""
        assert step.function is not None
        read = [self.flows[name] for name in step.reads]
        sifted = step.function(*read)
        # rule: time-of-records/stateless
        self.flows[step.name] = sifted.flow if step.passes_time else sifted.flow.records_alone()
        arrived, rejected = sum(flow.record_count for flow in read), len(sifted.rejected)
        self.ledger[step.name] = Counts(
            records_in=arrived,
            applied=arrived - rejected,
            rejected=rejected,
            emitted=sifted.flow.record_count,
        )
        if sifted.flow.record_count != arrived - rejected - sifted.filtered + sifted.added:
            raise EngineError(f"step {step.name} lost or invented rows", value=arrived, remedy="fix its function")
        self._reject(step, read[0], sifted)
        self.measures[f"{step.name}.filtered"] = sifted.filtered
        if step.name in self.steps.emitting:
            flow = self.flows[step.name]
            self._emit(step, emissions_of(sifted.flow), flow.source[flow.is_record])

    def arriving(self, step: Step, received: int) -> Flow:
        """Return the flow that arrives at a step that holds state; behind the first operator rows get their number."""
        [read] = step.reads
        flow = self.flows[read]
        # rule: numbered-by-arrival
        return flow if step.name in self.steps.first_segment else numbered(flow, received)

    def take(self, step: Step, state: OperatorState, flow: Flow) -> Stopped | None:
        """Let the step take the flow, then the advance or the flush; return where a bound stopped it.

        A batch without records lets each step act under its own rules first, which may be new ones.
        """
        acted = [state.step(_NO_ROWS, self.way.clock_ms)] if self._acts_first(flow) else []
        taken = self._step(step, state, flow)
        stopped = self._stopped(step, taken, flow)
        results = [*acted, taken]
        if stopped is None and self.way.kind == "flush":
            results.append(state.flush())
        self._note(step, flow, results)
        self._check(step, flow, stopped)
        # rule: time-of-records/holding
        hold = step.hold if step.passes_time else None
        sources = [flow.source if result is taken else _NO_SOURCES for result in results]
        if step.name in self.steps.read:
            flow_behind = partial(flow_of, hold=hold, with_columns=self.steps.emits_flows)
            self.flows[step.name] = joined(*map(flow_behind, results, sources))
        if step.name in self.steps.emitting:
            emissions = in_sequence([result.emissions for result in results])
            self._emit(step, emissions, np.concatenate([*map(causes_of, results, sources)]))
        return stopped

    def _acts_first(self, flow: Flow) -> bool:
        """Return whether the batch has no records, but something arrives at the step."""
        # rule: own-rules-first
        return self.way.kind == "step" and not len(self.way.records) and len(flow) > 0

    def undo(self, times: pa.Table) -> pa.Table:
        """Return the rows that lead back to the states before the batch; `times`: those that say where steps stood."""
        return in_sequence([*self.undone[::-1], times])

    def result(self, stream_time: int, before: Times, after: Times) -> StepResult:
        """Return what the whole batch did. `before`, `after`: where the steps stood before and after it."""
        emissions = in_sequence([*self.emissions.values()])
        # rule: refused-by-all-branches
        untaken = self.steps.untaken(self.refused, self.flows)
        late, rejected = (self._refused_rows(name, untaken) for name in ("late", "rejected"))
        forth, back = moved_times(before, after, self.schema)
        return StepResult(
            emissions=emissions,
            late=late,
            rejected=rejected,
            changes=in_sequence([*self._kept("changes"), forth]),
            undo=self.undo(back),
            counts=self._counts(untaken, rejected, emissions.num_rows),
            stream_time=stream_time,
            measures=self.measures,
            floor=self.floor,
            ledger=self.ledger,
        )

    def _emit(self, step: Step, emissions: pa.Table, source: Int64s) -> None:
        """Keep a step's results as emissions of the pipeline. `source`: the input record that caused each."""
        self.emissions[step.name] = sourced(tagged(emissions, step.shown), source)

    def _refused_rows(self, name: str, untaken: Set[int]) -> pa.Table:
        kept = self._kept(name)
        return taken_rows(pa.concat_tables(kept), untaken) if kept else _NONE_REFUSED

    def _counts(self, untaken: Set[int], rejected: pa.Table, emitted: int) -> Counts:
        """Return what became of the input's records: applied if a step takes it that reads the input."""
        arrived = self.flows[INPUT].record_count
        refused = len({*_of_input(rejected)})
        of_steps = self.ledger.values()
        return Counts(
            records_in=arrived,
            applied=arrived - len(untaken),
            late=len(untaken) - refused,
            rejected=refused,
            emitted=emitted,
            held=sum(counts.held for counts in of_steps),
            held_bytes=sum(counts.held_bytes for counts in of_steps),
        )

    def _step(self, step: Step, state: OperatorState, flow: Flow) -> StepResult:
        # rule: advance-by-marks
        if self.way.kind == "advance" and step.name in self.steps.first_operators:
            return state.advance(self.way.stream_time)
        return state.step(flow.rows, self.way.clock_ms)

    def _stopped(self, step: Step, result: StepResult, flow: Flow) -> Stopped | None:
        if result.stopped_at is None:
            return None
        [source] = _sources(np.array([result.stopped_at]), flow)
        return Stopped(step.name, f"{step.name}.{result.stopped_by}", int(source))

    def _note(self, step: Step, flow: Flow, results: list[StepResult]) -> None:
        """Keep the tables and the counts of the step."""
        last, whole = results[-1], max((result.counts for result in results), key=attrgetter("records_in"))
        emitted = sum(result.counts.emitted for result in results)
        held = {"held": last.counts.held, "held_bytes": last.counts.held_bytes, "emitted": emitted}
        self.ledger[step.name] = Counts(**vars(whole) | held)
        for result in results:
            if result.changes.num_rows:
                self._keep("changes", tagged(result.changes, step.name, self.schema))
            if result.undo.num_rows:
                self.undone.append(tagged(result.undo, step.name))
            for name, rows in (("late", result.late), ("rejected", result.rejected)):
                if rows.num_rows:
                    self._keep(name, self._refused(rows, step, _sources(rows["offset"].to_numpy(), flow)))
            self._measure(step.name, result.measures)
        self.measures[f"{step.name}.held_now"] = last.counts.held
        self.floor = self.floor if last.floor is None else last.floor

    def _check(self, step: Step, flow: Flow, stopped: Stopped | None) -> None:
        """Raise EngineError unless the step counted each record that arrived, once."""
        counts, arrived = self.ledger[step.name], flow.record_count
        if not counts.balanced or (stopped is None and counts.records_in != arrived):
            raise EngineError(
                f"step {step.name} counted {counts.records_in} records of {arrived}",
                value=counts,
                remedy="report this as a bug",
            )

    def _reject(self, step: Step, flow: Flow, sifted: Sifted) -> None:
        if len(sifted.rejected):
            rows = rejected_rows(flow, sifted.rejected, sifted.causes)
            self._keep("rejected", self._refused(rows, step, flow.source[sifted.rejected]))

    def _measure(self, step: str, measures: Mapping[str, int]) -> None:
        """Add the measures of a step's results to those before them."""
        for name, number in measures.items():
            before = self.measures.get(named := f"{step}.{name}")
            self.measures[named] = number if before is None else _together(name, before, number)

    def _refused(self, rows: pa.Table, step: Step, source: Int64s) -> pa.Table:
        of_input = step.name in self.steps.first_segment
        if of_input:
            self.refused.setdefault(step.name, set()).update(source.tolist())
        given = with_given_bytes(rows, self.way.records) if of_input else rows
        return refused_rows(given, step.shown, source, of_input=of_input)

    def _keep(self, name: str, rows: pa.Table) -> None:
        self.tables.setdefault(name, []).append(rows)

    def _kept(self, name: str) -> list[pa.Table]:
        return self.tables.get(name, [])


def _of_input(rows: pa.Table) -> list[int]:
    """Return the offsets of the rows that still are records of the input."""
    if not rows.num_rows:
        return []
    found: list[int] = rows.filter(pc.is_null(rows["topic"]))["offset"].to_pylist()
    return found


def _sources(offsets: Int64s, flow: Flow) -> Int64s:
    """Return the sources of the flow's records with these offsets. A mark has the offset of the record behind it."""
    records = np.flatnonzero(flow.is_record)
    sources: Int64s = flow.source[records[np.searchsorted(flow.rows.offset[records], offsets)]]
    return sources


def _together(name: str, before: int, number: int) -> int:
    """Return the measure of two results of a step, one after the other; extremes and sizes afterwards are no sums."""
    if name.endswith("_now"):
        return number
    if name.endswith(("_max", "_min")):
        return (max if name.endswith("_max") else min)(before, number)
    return before + number
