"""Steps that call a function of the user's own with the columns of a flow's rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from tidegate.contracts.flow import Flow, Sifted
from tidegate.contracts.records import Int64s
from tidegate.expressions.layers import objects_of
from tidegate.operators.pipeline.evaluated.checked_function import CheckedFunction
from tidegate.operators.pipeline.evaluated.columns import ColumnReader
from tidegate.operators.pipeline.evaluated.compiling import NOT_WRITTEN, Verdict, readable, retractions, with_values
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.steps import Called, call_of


class FunctionStep:
    """A step that calls a function (a UserStep). It gets rows that can be read; the others are rejected."""

    def __init__(self, step: Called, place: Place) -> None:
        self._call, self._place = call_of(step), place
        self._reader = ColumnReader(place, [(name,) for name in place.columns.names])

    def load(self) -> None:
        """Load the function. Raise UserError if it cannot be loaded, or emits other fields than the step."""
        assert self._function.call == self._call

    def __call__(self, *flows: Flow) -> Sifted:
        """Return what the step makes of the flow."""
        [flow] = flows
        at = np.flatnonzero(readable(flow))
        rows = flow.rows.take(at)
        read, retracted = self._reader.read(rows), retractions(self._place, rows)
        verdict = Verdict(retracted)
        verdict.reject_unreadable(read, read.parts)
        asked = np.flatnonzero(verdict.kept & ~retracted)
        made = self._function.made(read.columns.take(pa.array(asked)))
        verdict.reject_each({int(asked[row]): cause for row, cause in made.causes.items()})
        row, passed = asked[made.row], np.flatnonzero(verdict.kept & retracted)
        results = np.concatenate([row, passed])
        order = np.argsort(results, kind="stable")
        if made.fields is None:
            return _replaced(flow, at, verdict, results[order], None)
        written = objects_of(made.fields)
        verdict.reject_each(dict.fromkeys(row[written.failed].tolist(), NOT_WRITTEN))
        [values] = written.values
        values = pa.concat_arrays([values, pa.nulls(len(passed), values.type)]).take(pa.array(order))
        return _replaced(flow, at, verdict, results[order], values)

    @cached_property
    def _function(self) -> CheckedFunction:
        return CheckedFunction.loaded(self._call)


def _replaced(flow: Flow, at: Int64s, verdict: Verdict, row: Int64s, values: pa.Array | None) -> Sifted:
    """Return the flow with the results in place of its rows: one, several, or none, of which only the time passes on.

    `at`: the flow's records, of which the verdict is; `row`: per result that of which it was made; `values`: the new
    values of the results, None if they keep theirs.
    """
    kept = np.flatnonzero(verdict.kept[row])
    results = np.bincount(at[row[kept]], minlength=len(flow))
    verdict.dropped = verdict.kept & (results[at] == 0)
    repeats, stays = np.maximum(results, 1), np.ones(len(flow), np.bool_)
    repeats[at[~verdict.kept]] = 0
    stays[at[verdict.dropped]] = False
    repeats[~flow.passing(stays)] = 0
    found = flow.take(np.repeat(np.arange(len(flow)), repeats)).dropping(np.repeat(stays, repeats))
    if values is not None:
        places = np.flatnonzero(np.repeat(results > 0, repeats))
        found = replace(found, rows=with_values(found.rows, places, values.take(pa.array(kept))))
    added = len(kept) - int((results > 0).sum())
    return Sifted(found, *verdict.rejected(at), int(verdict.dropped.sum()), added)
