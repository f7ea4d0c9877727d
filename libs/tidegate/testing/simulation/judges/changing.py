"""The oracle of an operator whose configuration changes while it runs.

It changes at the same batch as the operator. At the end everything that it made and holds is compared with what the
kind's reference predicts of the whole history, which is written down with its changes: the reference knows no batches,
no log and no restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.operator import OperatorState, StepResult
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.cases import cases
from tidegate.operators.testing.laws import Change, Clock, Event, Partition, Step, Table, Trace, held_rows
from tidegate.state.protocol_decisions import Wanted
from tidegate.state.slots import live_rows
from tidegate.testing.simulation.judges.joined import ReaderOracle, TableOracle
from tidegate.testing.simulation.judges.merged import MergingOracle
from tidegate.testing.simulation.judges.oracle import Oracle, Violation, sorted_rows
from tidegate.testing.simulation.settings import DEAD_LETTERS, SECOND_OUTPUT

_CLOCK_MS = 0
"""No simulated configuration that changes depends on the clock."""


class ChangingOracle(Oracle):
    """The oracle of an operator whose configuration changes."""

    further_topics = (SECOND_OUTPUT, DEAD_LETTERS)

    def __init__(self, config: OperatorConfig, partitions: int) -> None:
        super().__init__(config, partitions)
        self._histories: list[list[Event]] = [[] for _ in range(partitions)]
        self._begin()

    def in_log(self, partition: int) -> pa.Table:
        """Return what the log has of the partition's state: it also says where steps stood that are gone."""
        return live_rows(self._log(partition), self.slot)

    def recovered(self, partition: int, wanted: Wanted, state: OperatorState) -> None:
        """Check a state that was recovered under the newest claim; others may have another configuration."""
        if self.newest is not None and self.newest.epoch == wanted.epoch:
            super().recovered(partition, wanted, state)

    def is_predicted(self) -> bool:
        """Return True: the history has all flushes, advances and changes."""
        return True

    def actual_and_expected(self, partition: int) -> tuple[list[Any], list[Any]]:
        """Return what was made and is held, and what the reference makes and holds; only that in which they differ."""
        reference = cases()[self._config.kind].reference
        made = _without_clocks(self._partitions[partition].finished())
        due = _without_clocks(reference(self._first, self._histories[partition], _CLOCK_MS))
        differing = [name for name in made if made[name] != due[name]]
        return [(name, made[name]) for name in differing], [(name, due[name]) for name in differing]

    def _follow(self, config: OperatorConfig) -> None:
        """Go on under the configuration that a claim has brought. Raise Violation if anything held would be lost."""
        if config == self._config:
            return
        slot = operator_for(config).slot
        self._note_steps(set(self.slot), set(slot))
        self._config, self._outputs, self.slot = config, config.outputs(), slot
        if not any(self._histories):
            self._partitions = [self._new_partition() for _ in self._partitions]
            self._begin()
            return
        for partition, twin in enumerate(self._partitions):
            self._histories[partition].append(Change(config, runs=False))
            before = _held(twin)
            twin.reconfigure(config, self._log(partition))
            self._logs[partition].append(twin.state.snapshot().schema.empty_table())
            if (after := _held(twin)) != before:
                raise Violation(f"partition {partition} held {before}, and {after} under another configuration")

    def _begin(self) -> None:
        """Begin with the present configuration: while nothing was read, any may become any other."""
        self._first = self._config
        self._logs = [[twin.state.snapshot()] for twin in self._partitions]

    def _note_steps(self, before: set[str | None], after: set[str | None]) -> None:
        """Count the steps that come and go."""
        self.events["steps added"] += len(after - before)
        self.events["steps removed"] += len(before - after)
        self.events["configurations changed"] += 1

    def _note(self, partition: int, step: Step, result: StepResult) -> None:
        super()._note(partition, step, result)
        self._logs[partition].append(result.changes)
        history, pins = self._histories[partition], self._pins(partition)
        is_first = bool(history) and isinstance(history[-1], Change) and not history[-1].runs
        if isinstance(step, Change):
            del history[-1]
        history += [*pins, *(step if isinstance(step, list) else [step])]
        if pins or (is_first and isinstance(step, list)):
            history.append(Clock(_CLOCK_MS))

    def _pins(self, partition: int) -> list[Table]:
        """Return the tables of which the batch has read other versions than the one before."""
        return []

    def _log(self, partition: int) -> pa.Table:
        return pa.concat_tables(self._logs[partition], promote_options="default")


class ChangingMergingOracle(ChangingOracle, MergingOracle):
    """The oracle of an operator that reads several topics and whose configuration changes."""


class ChangingReaderOracle(ReaderOracle, ChangingOracle):
    """The oracle of an operator that reads tables and whose configuration changes.

    The history has every version of a table that a batch has read, as the records that the table had read by then.
    """

    def __init__(self, config: OperatorConfig, tables: Mapping[str, TableOracle], partitions: int) -> None:
        super().__init__(config, tables, partitions)
        self._read_now: list[dict[str, Table]] = [{} for _ in range(partitions)]

    def _begin(self) -> None:
        super()._begin()
        self._read_before = [dict[str, Table]() for _ in self._partitions]

    def _prepare(self, twin: Partition, partition: int, before: BatchMeta, meta: BatchMeta) -> None:
        super()._prepare(twin, partition, before, meta)
        self._read_now[partition] = {
            name: self.tables[name]
            .as_read(pin.version, partition)
            ._replace(name=name, open_until=meta.changed[partition].open_until(name), shares_batch=True)
            for name, pin in meta.inputs.items()
        }

    def _pins(self, partition: int) -> list[Table]:
        now, before = self._read_now[partition], self._read_before[partition]
        self._read_before[partition] = now
        return [table for name, table in now.items() if before.get(name) != table]


class ChangingMergingReaderOracle(ChangingReaderOracle, MergingOracle):
    """The oracle of an operator that reads several topics, and tables, and whose configuration changes."""


def _without_clocks(trace: Trace) -> dict[str, Any]:
    """Return the trace without the clocks at which records arrived, which the history does not have."""
    held = [{name: value for name, value in row.items() if name != "arrived"} for row in trace.held]
    return replace(trace, held=held).as_dict()


def _held(twin: Partition) -> list[tuple[object, ...]]:
    """Return what the partition holds, without where its steps stand."""
    return sorted_rows(held_rows(twin.state.snapshot()), ["step", "op", "key", "value", "timestamp", "offset"])
