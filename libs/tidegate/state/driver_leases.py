"""Read and write the leases of an operator's drivers: `_driver/leases/<epoch>.json` below the operator's log.

Each lease has one writer, the driver of its epoch. It is not part of the Delta table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from tidegate.state.lake.port import Lake, Listed
from tidegate.state.lease_decisions import DriverLease, Sight

FOLDER = "_driver/leases"
_NAME = re.compile(rf"{FOLDER}/(\d{{20}})\.json")


class Look(NamedTuple):
    """What one look at the leases shows. `lease` is None if the newest epoch has none, or one that cannot be read.

    `written_ms`: when the lease was written, by the clock of the lake.
    """

    sight: Sight
    lease: DriverLease | None
    written_ms: int = 0


def key_of(epoch: int) -> str:
    """Return the key of the lease of that epoch's driver."""
    return f"{FOLDER}/{epoch:020d}.json"


def put(lake: Lake, lease: DriverLease) -> None:
    """Write or renew the lease. Only for its own driver."""
    lake.put(key_of(lease.epoch), lease.to_json())


def end(lake: Lake, epoch: int) -> None:
    """Delete the lease of that epoch: its driver has ended."""
    lake.delete([key_of(epoch)])


def delete_below(lake: Lake, epoch: int) -> None:
    """Delete the leases of older epochs, whose drivers are fenced."""
    lake.delete([found.key for found in _listed(lake) if _epoch(found) < epoch])


def look(lake: Lake, epoch: int = 0, before: Look | None = None) -> Look | None:
    """Return what the leases show; None if there is none.

    `epoch`: the newest epoch that the log is known to have; a lease of an older one shows nothing. If the newest lease
    is the one of `before`, it is not read again.
    """
    leases = _listed(lake)
    if not leases:
        return None
    newest = leases[-1]
    # rule: lease-of-newest-epoch
    if _epoch(newest) < epoch:
        return Look(Sight(epoch, None), None)
    sight = Sight(_epoch(newest), newest.etag)
    if before is not None and before.sight == sight:
        return before
    return Look(sight, _read(lake, newest.key), newest.written_ms)


def _read(lake: Lake, key: str) -> DriverLease | None:
    data = lake.get(key)
    try:
        return None if data is None else DriverLease.from_json(data)
    except (ValueError, TypeError):
        return None


def _listed(lake: Lake) -> Sequence[Listed]:
    return [found for found in lake.list_after(FOLDER) if _NAME.fullmatch(found.key)]


def _epoch(found: Listed) -> int:
    return int(found.key.removeprefix(f"{FOLDER}/").removesuffix(".json"))
