"""The operator of a pipeline: its layout, and the check of its storage."""

from __future__ import annotations

import pyarrow as pa

from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.operator import Layout, OffsetColumns, Slot, Storage
from tidegate.operators.pipeline.passage.results import SOURCE, changes_of, slot_of
from tidegate.operators.pipeline.passage.shape import Shape
from tidegate.operators.pipeline.passage.times import checksum
from tidegate.operators.pipeline.state import PipelineState
from tidegate.operators.pipeline.steps import Step, chained, operators_of
from tidegate.operators.pipeline.storage import CHECKS, Prefixed, layout_of


class Pipeline:
    """The Operator of steps that read each other. What those emit that no other step reads is what it emits."""

    kind: str = "pipeline"

    def __init__(self, *steps: Step) -> None:
        self.steps = chained(*steps)
        operators = operators_of(self.steps)
        self.layout: Layout = layout_of({name: operator.layout for name, operator in operators.items()})
        common = log_schema().names
        self._shape, self._changes = Shape(self.steps), changes_of(operators.values())
        own = [field for field in self._changes if field.name not in common]
        self.columns: tuple[pa.Field, ...] = (*own, SOURCE)
        self.slot: Slot = {None: ("key",)} | {name: slot_of(operator) for name, operator in operators.items()}
        self.offset_columns = OffsetColumns()

    def damage(self, storage: Storage) -> str | None:
        """Return what is damaged in a storage whose last batch was complete, or None. Trusts none of its contents."""
        for name, operator in operators_of(self.steps).items():
            if found := operator.damage(Prefixed(storage, name, [])):
                return f"step {name}: {found}"
        times = self._opened(storage).times()
        if list(map(checksum, times.values())) != storage.arrays()[CHECKS].tolist():
            return "its numbers are impossible"
        return None

    def open(self, storage: Storage) -> PipelineState:
        """Return the state in the storage; raise UserError as the steps' operators do, or if a function is lacking."""
        for step in self.steps:
            step.load()
        return self._opened(storage)

    def _opened(self, storage: Storage) -> PipelineState:
        return PipelineState(self.steps, self._shape, self._changes, storage)
