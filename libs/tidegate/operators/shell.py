"""The arrays of an operator's state: map them, make room and retry, restore them, keep stream time.

A state contains a Shell and does not inherit from it: kernels get `shell.state`, and what is special to an operator
stays in its own `state.py`. Growth replaces the arrays, so read `shell.state` and `shell.numbers` anew for each call.

Other code of two operators may look alike. That is intended: each `absorb` and each `_result` lists everything that its
own operator does, in order, and so specifies the operator. Do not merge them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.operator import Array, ArraySpec, Storage
from tidegate.kernels import time_buffer
from tidegate.kernels.memory import arena, growth, slots
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords, Payloads, record_length, repack
from tidegate.kernels.time_buffer import TimeBuffer
from tidegate.operators.keys import key_kind_error

State = TypeVar("State")

BUFFER_ARRAYS = (
    ArraySpec("time_numbers", "int64", "fixed", time_buffer.NUMBERS),
    ArraySpec("pool_numbers", "int64", "fixed", slots.NUMBERS),
    ArraySpec("arena_numbers", "int64", "fixed", arena.NUMBERS),
    ArraySpec("position", "int32", "slots"),
    ArraySpec("heap", "int32", "slots"),
    ArraySpec("place", "int64", "slots"),
)
"""The arrays that a layout has for a buffer of records, in addition to the fields of its slots and its arena."""

DONE = 0
"""What every kernel returns when it has read all of its rows."""


class Header(NamedTuple):
    """Indexes in the `numbers` of a state: of stream time, and of the 1 that marks the state as initialized."""

    stream_time: int
    opened: int


class Shell(Generic[State]):
    """The arrays of one partition: `state` as the kernels take them, and the operator's `numbers` among them."""

    state: State
    numbers: Array

    def __init__(self, storage: Storage, header: Header, state_of: Callable[[Mapping[str, Array]], State]) -> None:
        self._storage = storage
        self._header = header
        self._state_of = state_of
        self._map()

    def _map(self) -> None:
        arrays = self._storage.arrays()
        self.numbers = arrays["numbers"]
        self.state = self._state_of(arrays)

    def initialize(self) -> bool:
        """Give a new storage its first stream time; return True if it was new."""
        if self.numbers[self._header.opened]:
            return False
        self.numbers[self._header.opened] = 1
        self.stream_time = NO_STREAM_TIME
        return True

    def initialize_keyed(self, windowed_at: int, windowed: bool) -> bool:
        """Initialize a new storage for keys of that kind; return True if it was new.

        Raise UserError if those in an old one are of the other kind. `windowed_at`: the place in `numbers` that says
        whether keys have windows.
        """
        is_new = self.initialize()
        if is_new:
            self.numbers[windowed_at] = windowed
        if self.numbers[windowed_at] != windowed:
            raise key_kind_error()
        return is_new

    @property
    def stream_time(self) -> int:
        """The partition's stream time (T); NO_STREAM_TIME before the first accepted record."""
        return int(self.numbers[self._header.stream_time])

    @stream_time.setter
    def stream_time(self, stream_time: int) -> None:
        self.numbers[self._header.stream_time] = stream_time

    def capacity(self, dimension: str) -> int:
        """Return how many items the arrays of that dimension have room for."""
        return self._storage.capacity()[dimension]

    def grow(self, capacity: Mapping[str, int]) -> None:
        """Grow the given dimensions to at least that capacity, and map the arrays anew."""
        self._storage.grow(capacity)
        self._map()

    def add_slots(self, slots: str) -> None:
        """Add slots of that dimension."""
        self.grow(growth.more_slots(self._storage.capacity(), slots))

    def add_indexed_slots(self, slots: str, reindex: Callable[[State], None]) -> None:
        """Add slots of that dimension; call `reindex` if the hash index of the slots had to become longer."""
        capacity = self._storage.capacity()
        wanted = growth.more_slots(capacity, slots, "index")
        is_longer = wanted["index"] != capacity["index"]
        self.grow(wanted)
        if is_longer:
            reindex(self.state)

    def make_room(self, dimension: str, blocks: Arena, length: int, repack: Callable[[Array], None]) -> None:
        """Make room for a block of `length` bytes: grow the arena, or repack it if a third of it is dead.

        `repack`: is called with scratch memory for all live words.
        """
        growth.make_room(self._storage, dimension, blocks, length, repack)
        self._map()

    def make_room_for(self, stored: Payloads, pool: SlotPool, length: int) -> None:
        """Make room for one more record of `length` bytes among the stored ones, which lie in the arena `arena`."""
        used = int(pool.numbers[slots.USED])
        self.make_room("arena", stored.arena, length, lambda spare: repack(stored, used, spare))

    def make_any_room(self, make: Callable[[Storage], None]) -> None:
        """Let `make` grow the storage, and map the arrays anew."""
        make(self._storage)
        self._map()

    def restore(self, rows: pa.Table, stream_time: int, replay: Callable[[pa.RecordBatch], None]) -> None:
        """Apply changelog rows, of which the latest of a slot comes last, and set stream time to `stream_time`."""
        for part in rows.to_batches():
            if part.num_rows:
                replay(part)
        self.stream_time = stream_time


def run(kernel: Callable[[], int], make_room: Callable[[int], None], ends: Container[int] = (DONE,)) -> int:
    """Call the kernel until it returns one of `ends`, and return that signal.

    Any other signal says what the kernel lacks: `make_room` is called with the signal, then the kernel is called again.
    A kernel continues where it stopped, so nothing is done twice.
    """
    while (signal := kernel()) not in ends:
        make_room(signal)
    return signal


def settle(shell: Shell[Any], kernel: Callable[..., int], batch: FlatRecords, outcome: Any, settled: Array) -> None:
    """Run a kernel that stores the payloads of touched slots; make room whenever a record does not fit.

    `settled`: its first number says how many of the touched slots are done. `row` of a slot is 1 + that of its record.
    """

    def make_room(_: int) -> None:
        state = shell.state
        length = record_length(batch, state.row[outcome.touched[settled[0]]] - 1)
        shell.make_room_for(state.payloads, state.pool, int(length))

    run(lambda: kernel(shell.state, batch, outcome), make_room)


def deletions(rows: pa.RecordBatch) -> Array:
    """Return for each changelog row whether it is a `delete`."""
    return np.asarray(rows.column("op").to_numpy(zero_copy_only=False) == "delete", np.bool_)


def buffer_of(arrays: Mapping[str, Array], arrival: Array, size: Array) -> TimeBuffer:
    """Return the buffer in BUFFER_ARRAYS. Arrivals and sizes are fields of its slots."""
    numbers, heap, place, position = (arrays[name] for name in ("time_numbers", "heap", "place", "position"))
    return TimeBuffer(numbers, heap, place, position, arrival, size)


def blocks_of(arrays: Mapping[str, Array], name: str = "arena") -> Arena:
    """Return the arena of that name."""
    return Arena(arrays[name], arrays[name].view(np.int64), arrays[f"{name}_numbers"])


class Stop(NamedTuple):
    """Where a batch stopped before its end, and at which limit: `stopped_at` and `stopped_by` of a StepResult."""

    offset: int | None
    limit: str


def stop_of(signal: int, limits: Mapping[int, str], batch: FlatRecords, row: int) -> Stop:
    """Return the stop that the kernel's last signal stands for. `row`: the first row that was not processed."""
    return Stop(int(batch.offset[row]), limits[signal]) if signal in limits else Stop(None, "")
