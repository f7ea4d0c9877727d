"""How a task comes to the state that its batch starts from. May import: pyarrow, contracts, state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidegate.contracts.operator import Layout, Operator, OperatorState
from tidegate.state.decisions import NO_COMMIT, Header, StateUse, Wanted, Way, choose_state
from tidegate.state.local_state import LocalState, boot_id
from tidegate.state.operator_log import OperatorLog
from tidegate.state.slots import last_rows, live_rows


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """The state, the way it came about, and how many rows of the log that took."""

    state: OperatorState
    use: StateUse
    rows: int


def recover(
    local: LocalState,
    operator: Operator,
    log: Path,
    version: int,
    wanted: Wanted,
    partition: int,
    stream_time: int,
) -> Recovered:
    """The state equals the partition's `last` commit, and the header says so: as it was, caught up, or rebuilt.

    `version` is the log's at that commit or later, `stream_time` the T that the log has for the partition. What the log
    has is read before the state is touched, so that a lake that fails costs no local state.
    """
    layout = operator.layout
    use = choose_state(_header(local, layout), wanted, boot_id(), (layout.kind, layout.version))
    if use.way is Way.GO_ON:
        return Recovered(state=operator.open(local.storage(layout)), use=use, rows=0)
    rows = _state_rows(operator, log, version, wanted, partition, use)
    local.begin(wanted.epoch, *(wanted.last or NO_COMMIT))
    state = operator.open(local.rebuild(layout) if use.way is Way.REBUILD else local.storage(layout))
    state.restore(rows, stream_time)
    local.complete()
    return Recovered(state=state, use=use, rows=rows.num_rows)


def _header(local: LocalState, layout: Layout) -> Header | None:
    """The header, unless arrays that it names are missing or cut short: then there is no state."""
    header = local.header
    same_layout = header is not None and header.layout == (layout.kind, layout.version)
    return None if same_layout and not local.fits(layout) else header


def _state_rows(operator: Operator, log: Path, version: int, wanted: Wanted, partition: int, use: StateUse) -> pa.Table:
    """The latest row of each slot above the batch that the state has; deletes matter to a catching up only."""
    reader = OperatorLog.at(log, version)
    rows = reader.read("state", partition, use.after_batch)
    return live_rows(rows, operator.slot) if use.way is Way.REBUILD else last_rows(rows, operator.slot)
