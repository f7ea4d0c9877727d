"""What Tidegate asks of the storage of its logs, whichever it is.

There is no rename, no lock, no time of a file that decides anything, and no compare-and-swap: object stores have none
that all of them keep. One operation decides between writers, `put_if_absent`. A listing decides nothing; it is a hint,
which a `get` or a `put_if_absent` confirms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from pyarrow import fs

from tidegate.state.lake.place import Place


class Listed(NamedTuple):
    """One object of a listing: its key, size in bytes, ETag, and when it was written by the store's own clock, ms."""

    key: str
    size: int
    etag: str
    written_ms: int


class Lake(Protocol):
    """The objects below one place of the lake. Keys are relative to it: plain names with `/` between them.

    Each method raises Unavailable if the outcome is unknown or the lake does not answer, and UserError if the lake
    refuses this user; after UserError nothing was written.

    A lake may be pickled: its pickle has its place, never a client or credentials (see `opening.open_lake`).
    """

    @property
    def place(self) -> Place:
        """Return where the lake is."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object as a whole, durably, unless there is one; return False if there is another one.

        Return True as well if the object there has these very bytes: an earlier try was made whose answer was lost.
        So the bytes of each writer have to be unique. After Unavailable, repeat the call with the same bytes.
        """
        ...

    def put(self, key: str, data: bytes) -> str:
        """Write or replace the object as a whole, durably; return its ETag. Only for keys that have one writer."""
        ...

    def put_unnamed(self, key: str, data: bytes) -> None:
        """Write the object as a whole, durably. For one that nothing names before the call returns, under a new key.

        A loss of power during the call may leave a part of it under its key.
        """
        ...

    def get(self, key: str) -> bytes | None:
        """Return the object's content; None if there is no such object."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of the object from `start`; None if there is no such object."""
        ...

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Yield the objects below the folder `prefix` with keys above `after`, in the order of their keys.

        Objects that are written or deleted meanwhile may be missing or present.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; those that do not exist are ignored."""
        ...

    def etag(self, key: str) -> str | None:
        """Return the object's ETag, which differs once another content was put in its place; None if there is none."""
        ...

    def files(self, sizes: Mapping[str, int]) -> fs.FileSystem:
        """Return objects as a file system that Arrow reads from; `sizes` has their keys, and their sizes in bytes.

        `as_files.as_files` makes it of any lake. Its errors are those of this class, and FileNotFoundError.
        """
        ...
