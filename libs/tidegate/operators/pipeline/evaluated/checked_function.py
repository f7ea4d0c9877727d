"""Calls functions of the user's own over record batches, and checks what they return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.records import Int64s
from tidegate.expressions.evaluation import is_true
from tidegate.operators.options import user_functions
from tidegate.operators.options.user_functions import BatchFunction, checked_batch, described, fields_of
from tidegate.operators.pipeline.rules.steps import ROW, Call

_LONGEST_CAUSE = 200
_NO_ROWS = np.zeros(0, np.int64)


class Made(NamedTuple):
    """What a function made of rows. `row`: for each result, in order, the place of the row of which it was made.

    `fields`: those of the results' values; None: rows keep their values. `causes`: why the function fails, by row.
    """

    row: Int64s
    fields: pa.RecordBatch | None
    causes: Mapping[int, str]


@dataclass(frozen=True)
class CheckedFunction:
    """A function, and the call of a step that says what it must return."""

    call: Call
    function: Callable[[pa.RecordBatch], Any]

    @classmethod
    def loaded(cls, call: Call) -> CheckedFunction:
        """Return the function of the call. Raise UserError if it cannot be loaded, or emits other fields."""
        what = f"function of {call.verb}"
        function = user_functions.load(call.function, what)
        if isinstance(function, BatchFunction) and function.emits != call.emits:
            raise UserError(
                f"the {what} emits {fields_of(function.emits)}, and its step {fields_of(call.emits)}",
                value=call.function,
                remedy="write the same fields in both places",
            )
        return cls(call, function)

    def made(self, rows: pa.RecordBatch) -> Made:
        """Return what the function makes of the rows. Raise UserError if it returns anything that it must not.

        If it fails, it is called with each half of the rows, and so on: only rows at which it fails alone are lost.
        """
        if not rows.num_rows:
            return self._nothing({})
        try:
            found = self.function(rows)
        except Exception as error:
            # rule: failing-rows-alone
            if rows.num_rows == 1:
                return self._nothing({0: _cause(self.call.function, error)})
            half = rows.num_rows // 2
            return _joined(self.made(rows.slice(0, half)), self.made(rows.slice(half)), half)
        return self._read(found, rows.num_rows)

    def _nothing(self, causes: Mapping[int, str]) -> Made:
        fields = None if self.call.emits is None else pa.RecordBatch.from_pylist([], self.call.emits)
        return Made(_NO_ROWS, fields, causes)

    def _read(self, found: Any, count: int) -> Made:
        """Return what the function returned for so many rows, checked."""
        if self.call.emits is None:
            return Made(np.flatnonzero(self._chosen(found, count)), None, {})
        if self.call.verb == "map":
            fields = checked_batch(found, self.call.emits, self._wrong)
            self._check_number(fields.num_rows, count)
            return Made(np.arange(count), fields, {})
        fields = checked_batch(found, pa.schema([*self.call.emits, pa.field(ROW, pa.int64())]), self._wrong)
        row = self._rows(fields.column(ROW), count)
        # rule: flat-map-in-order
        order = np.argsort(row, kind="stable")
        return Made(row[order], fields.select(self.call.emits.names).take(pa.array(order)), {})

    def _chosen(self, found: Any, count: int) -> Any:
        if not isinstance(found, pa.Array) or not pa.types.is_boolean(found.type):
            raise self._wrong(f"returns {described(found)}, not an Arrow array of bool")
        self._check_number(len(found), count)
        return is_true(found)

    def _rows(self, found: pa.Array, count: int) -> Int64s:
        """Return the places of the rows of which the results of `flat_map` were made."""
        if found.null_count:
            raise self._wrong(f"returns null in the column {ROW}")
        row = np.asarray(found, np.int64)
        if len(row) and not (row.min() >= 0 and row.max() < count):
            raise self._wrong(f"returns a {ROW} from {row.min()} to {row.max()} for {count} rows, which begin with 0")
        return row

    def _check_number(self, found: int, expected: int) -> None:
        if found != expected:
            raise self._wrong(f"returns {found} rows for {expected}")

    def _wrong(self, fault: str) -> UserError:
        return user_functions.wrong(self.call.function, f"function of {self.call.verb}", fault)


def _joined(first: Made, second: Made, at: int) -> Made:
    """Return what was made of rows in two parts; the second begins at that row."""
    parts = [made.fields for made in (first, second) if made.fields is not None]
    causes = {**first.causes, **{row + at: cause for row, cause in second.causes.items()}}
    return Made(np.concatenate([first.row, second.row + at]), pa.concat_batches(parts) if parts else None, causes)


def _cause(function: str, error: Exception) -> str:
    """Return what is said of the error: one line of UTF-8, whatever is in it, and not too long."""
    line = " ".join(f"{function} fails: {type(error).__name__}: {error}".split())
    text = line if len(line) <= _LONGEST_CAUSE else f"{line[: _LONGEST_CAUSE - 6]} [...]"
    return text.encode("utf-8", "backslashreplace").decode()
