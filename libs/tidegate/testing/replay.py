"""A replay of an operator's log: recomputes each batch from its input and from the pinned versions of its tables.

It needs the input's records in Kafka, the versions of the tables' logs that were read, and the configuration in effect
at the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.operator import OperatorState
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.explanation.recomputation import from_topic, results_of, with_tables
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import metas
from tidegate.state.lake.opening import open_lake

DEADLINE_S = 60.0
OUTPUT = ("emission", "late", "rejected")
_SHOWN = ("key", "value", "headers", "timestamp", "offset", "cause")


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One partition's part of a batch: for each kind of output, the rows of the log and the recomputed rows."""

    batch: int
    partition: int
    logged: dict[str, pa.Table]
    computed: dict[str, pa.Table]

    @property
    def agrees(self) -> bool:
        """True if logged and recomputed rows are the same, row by row."""
        return all(self.logged[kind].equals(self.computed[kind]) for kind in OUTPUT)


@dataclass(kw_only=True)
class Replay:
    """The replay of an operator's log from its first batch on."""

    application: Application
    name: str
    _states: dict[int, OperatorState] = field(default_factory=dict)

    def batches(self) -> Iterator[Replayed]:
        """Yield each batch of each partition, in the order of the log."""
        before: BatchMeta | None = None
        for meta in metas(self._log):
            for partition in meta.changed:
                assert before is not None, "the log does not begin with a claim"
                yield self._replayed(before, meta, partition)
            before = meta

    @cached_property
    def _log(self) -> LogVersion:
        return LogVersion.at(open_lake(self.application.lake / self.name), None)

    def _replayed(self, before: BatchMeta, meta: BatchMeta, partition: int) -> Replayed:
        state = with_tables(self._state(partition), self.application, meta.inputs, meta, partition)
        read = from_topic(self.application, self.name, DEADLINE_S)
        results = list(results_of(state, before, meta, partition, read))
        return Replayed(
            batch=meta.batch,
            partition=partition,
            logged={kind: self._logged(kind, partition, meta.batch) for kind in OUTPUT},
            computed={
                "emission": _shown([result.emissions for result in results]),
                "late": _shown([result.late for result in results]),
                "rejected": _shown([result.rejected for result in results]),
            },
        )

    def _state(self, partition: int) -> OperatorState:
        if partition not in self._states:
            operator = operator_for(self.application.operators[self.name])
            self._states[partition] = operator.open(MemoryStorage(operator.layout))
        return self._states[partition]

    def _logged(self, kind: str, partition: int, batch: int) -> pa.Table:
        rows = self._log.read(kind, partition, batch - 1)
        return _shown([rows.filter(pa.compute.equal(rows.column("batch"), batch))])


def _shown(tables: list[pa.Table]) -> pa.Table:
    """Return the columns that readers see, in plain types."""
    plain = [pa.table({name: table.column(name).cast(_TYPES[name]) for name in _SHOWN}) for table in tables]
    return pa.concat_tables(plain).combine_chunks()


_TYPES = {name: pa.binary() for name in ("key", "value", "headers")}
_TYPES |= {"timestamp": pa.int64(), "offset": pa.int64(), "cause": pa.string()}
