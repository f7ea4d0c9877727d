"""Whether an operator without a log may begin one: not if anything says that it has run before.

A lake that is not mounted looks like a new one. A log begun in its place would read the input again, publish it again,
and hide what the operator held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tidegate.contracts.errors import EngineError, Unavailable
from tidegate.contracts.naming import group_id
from tidegate.control import ledger, revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.ledger import OperatorKey
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.offsets import marks
from tidegate.state.decisions import parse_mark
from tidegate.state.local.local_state import tables_here

PROBLEM = "has run before, but its log is not there"
REMEDY = "mount the lake, or correct `lake`; to begin anew on purpose, give the operator another name"


def refuse_anew(name: str, log: Path, traces: Iterable[str]) -> None:
    """Raise Unavailable if the operator, which has no log, has left traces of an earlier run."""
    if found := list(traces):
        raise Unavailable(f"{name} {PROBLEM}", value=f"{log}; {'; '.join(found)}", remedy=REMEDY)


def traces_of_states(states: Path, name: str) -> Iterator[str]:
    """Yield what this machine has of the operator; `states`: the folder of the application's local states."""
    for table in tables_here(states, name):
        yield f"local state of table {table} in {states / name}"


def traces_in_database(address: Address | None, key: OperatorKey) -> Iterator[str]:
    """Yield what the control database has of the operator: nothing where it does not answer, as nobody waits for it."""
    if address is None or (address.kind == "sqlite" and not address.file.exists()):
        return
    database = Database(address)
    try:
        if revisions.current(database) is None:
            return
        with database.begin() as connection:
            known = ledger.newest(connection, key)
    except EngineError:
        return
    if known is not None:
        yield f"batch {known.batch} in the control database"


def traces_in_kafka(client: KafkaClient, key: OperatorKey, topic: str, partitions: Sequence[int]) -> Iterator[str]:
    """Yield what the operator's consumer group has of it."""
    group = group_id(key.application, key.operator)
    committed = marks(client, group, topic, partitions).values()
    if found := [mark for each in committed if each is not None and (mark := parse_mark(each.metadata)) is not None]:
        newest = max(found, key=lambda mark: mark.batch)
        yield f"the mark of consumer group {group}: batch {newest.batch} of table {newest.table_id}"
