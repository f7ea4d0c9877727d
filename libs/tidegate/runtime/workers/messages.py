"""The messages between a driver's process and its workers."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple, TypeVar

from pyspark import cloudpickle

from tidegate.runtime.task.messages import Attempt

BesideName = Literal["beside", "background"]
"""What a process beside a worker's own does: what takes long (rebuilds, requested compactions), or what nobody waits
for (other compactions)."""
LaneName = Literal["batch"] | BesideName
"""What a worker's process does: the work of batches, or something beside it."""

_OF_ONE_BATCH = {"version", "epoch", "batch", "attempt", "clock", "max_batch_bytes"}
_Attempt = TypeVar("_Attempt", bound=Attempt)


@dataclass(frozen=True)
class Seat:
    """What a worker needs to connect to its driver. `key` authenticates both to each other; it is never shown."""

    number: int
    host: str
    port: int
    key: bytes = dataclasses.field(repr=False)


class Site(NamedTuple):
    """Where a worker's process runs.

    `executor`: Spark's name of the executor; empty on threads. `disk`: the worker's own state folder if it has one,
    otherwise the process that forks the executor's Python workers, the same for all of them while the executor lives.
    """

    machine: str
    executor: str
    disk: str


class Hello(NamedTuple):
    """The first message of a worker's process."""

    seat: int
    lane: LaneName
    site: Site
    pid: int


class Alive(NamedTuple):
    """A sign of life of a worker's process, whatever it is working on."""


class Work(NamedTuple):
    """A call for a worker: `function(*arguments)`, with an attempt as first argument if there is one.

    `common`: what all attempts of the owner have in common, secrets included, where the worker does not have it yet.
    """

    owner: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    attempt: tuple[type[Attempt], dict[str, Any]] | None
    common: dict[str, Any] | None


class Done(NamedTuple):
    """What a call has returned."""

    value: Any


class Failed(NamedTuple):
    """The error that a call has raised, as text: it may be of a class that only the worker can import."""

    error: str
    trace: str


def divided(attempt: Attempt) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the attempt has in common with the operator's others, and what is its own."""
    fields = {field.name: getattr(attempt, field.name) for field in dataclasses.fields(attempt)}
    return (
        {name: value for name, value in fields.items() if name not in _OF_ONE_BATCH},
        {name: value for name, value in fields.items() if name in _OF_ONE_BATCH},
    )


def send(connection: Connection, message: Any) -> None:
    """Send the message. Raise OSError if the connection is closed, and what pickling raises."""
    connection.send_bytes(cloudpickle.dumps(message))


def receive(connection: Connection) -> Any:
    """Return the next message. Raise EOFError or OSError if the connection is closed."""
    return pickle.loads(connection.recv_bytes())
