"""The check before a new log is created: an operator with traces of an earlier run must not begin a second log.

A lake that is not mounted looks like an empty one. A new log in its place would read and publish the input again, and
hide the state that the operator held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tidegate.contracts.errors import EngineError, Unavailable
from tidegate.contracts.naming import group_id
from tidegate.control import ledger, revisions
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.ledger import OperatorKey
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.offsets import committed_offsets
from tidegate.state.lake.place import Place
from tidegate.state.local.local_state import tables_here
from tidegate.state.protocol_decisions import parse_mark

NewestInDatabase = Callable[[Address | None, OperatorKey], int | None]
"""A function like `newest_in_database`."""

PROBLEM = "has run before, but its log is not there"
REMEDY = "mount the lake, or correct `lake`; to start from the beginning on purpose, give the operator a new name"


def refuse_second_log(name: str, log: Place, traces: Iterable[str]) -> None:
    """Raise Unavailable if an operator without a log has left traces of an earlier run."""
    if found := list(traces):
        raise Unavailable(f"{name} {PROBLEM}", value=f"{log}; {'; '.join(found)}", remedy=REMEDY)


def traces_of_states(states: Path, name: str) -> Iterator[str]:
    """Yield a line for each local state of the operator on this machine, below the application's folder `states`."""
    for table in tables_here(states, name):
        yield f"local state of table {table} in {states / name}"


def newest_in_database(address: Address | None, key: OperatorKey) -> int | None:
    """Return the operator's newest batch in the control database at that address; None if it has none.

    None as well if the database does not answer: services never wait for it.
    """
    if address is None or (address.kind == "sqlite" and not address.file.exists()):
        return None
    database = Database(address)
    try:
        if revisions.current(database) is None:
            return None
        with database.begin() as connection:
            known = ledger.lock_and_read_newest(connection, key)
    except EngineError:
        return None
    return None if known is None else known.batch


def traces_in_database(newest: int | None) -> Iterator[str]:
    """Yield a line for the operator's newest batch in the control database, if there is one."""
    if newest is not None:
        yield f"batch {newest} in the control database"


def traces_in_kafka(client: KafkaClient, key: OperatorKey, topic: str, partitions: Sequence[int]) -> Iterator[str]:
    """Yield the newest mark in the offset commits of the operator's consumer group."""
    group = group_id(key.application, key.operator)
    committed = committed_offsets(client, group, topic, partitions).values()
    if found := [mark for each in committed if each is not None and (mark := parse_mark(each.metadata)) is not None]:
        newest = max(found, key=lambda mark: mark.batch)
        yield f"the mark of consumer group {group}: batch {newest.batch} of table {newest.table_id}"
