"""A lake in an object store: S3 (`s3://`), Google Cloud Storage (`gs://`) or Azure (`az://`).

A conditional put decides between writers. Whatever a store answers to one that it did not carry out (412, 409, or
"exists" after a retry of the client's own), the object itself is read to learn what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from pyarrow import fs

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import Unavailable
from tidegate.state.lake.as_files import KeptContents, as_files
from tidegate.state.lake.keys import checked
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake, Listed
from tidegate.state.lake.store_errors import is_bucket_missing, is_range_beyond_end, is_refusal, tidegate_error
from tidegate.state.lake.stores import Store, bucket_of, folder_of, forget, store_of

T = TypeVar("T")

PIECE = 8 * 2**20
"""Size of the pieces, in bytes, in which larger objects are read and written, several at a time."""

MULTIPART_ABOVE = 16 * 2**20
"""Size in bytes above which an object is written in pieces, so that none of them takes as long as the timeout."""

LISTED_AT_ONCE = DELETED_AT_ONCE = 1000
"""Keys in one request, the most that S3 allows."""

_THREADS = 8
_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Pauses before the tries of a conditional put that is refused although there is no object."""

_NOT_DONE = (AlreadyExistsError, PreconditionError)
_STORE_ERRORS = (BaseError, OSError)


class _Piece(NamedTuple):
    """Bytes of an object, with the size and ETag of the whole."""

    data: bytes
    size: int
    etag: str | None


class ObjectLake:
    """The objects below one folder of a bucket; see `port.Lake`. Threads may share it."""

    def __init__(self, place: Place, clock: Clock = SYSTEM_CLOCK) -> None:
        self._place, self._clock = place, clock
        self._bucket, self._folder = bucket_of(place), folder_of(place)
        self._kept = KeptContents()

    def __repr__(self) -> str:
        return f"ObjectLake({str(self._place)!r})"

    def __reduce__(self) -> tuple[Callable[[Place], Lake], tuple[Place]]:
        return open_lake, (self._place,)

    @property
    def place(self) -> Place:
        """Return where the lake is."""
        return self._place

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write the object unless there is one; return False if there is another one; see `port.Lake`."""
        path = self._path(key)
        for pause_s in _PAUSES_S:
            self._clock.sleep(pause_s)
            try:
                # rule: conditional-put
                self._ask(key, lambda store: obstore.put(store, path, data, mode="create", use_multipart=False))
                return True
            except _NOT_DONE:
                # rule: refused-put-read-back
                there = self.get(key)
                if there is not None:
                    return there == data
        raise Unavailable(
            "the lake refuses to write an object that does not exist, as during another write",
            value=f"{self._place}/{key}",
            remedy="check the object store",
        )

    def put(self, key: str, data: bytes) -> str:
        """Write or replace the object; return its ETag; see `port.Lake`."""
        path, in_pieces = self._path(key), len(data) > MULTIPART_ABOVE
        answer = self._ask(key, lambda store: obstore.put(store, path, data, use_multipart=in_pieces, chunk_size=PIECE))
        return _etag(answer["e_tag"])

    def put_unnamed(self, key: str, data: bytes) -> None:
        """Write the object; see `port.Lake`."""
        self.put(key, data)

    def get(self, key: str) -> bytes | None:
        """Return the object's content; None if there is no such object."""
        return self._read(key, 0, None)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes of the object from `start`; None if there is no such object."""
        if length == 0:
            return None if self.etag(key) is None else b""
        return self._read(key, start, length)

    def list_after(self, prefix: str, after: str = "") -> Iterator[Listed]:
        """Yield the objects below the folder `prefix` with keys above `after`, in order; see `port.Lake`."""
        folder = self._path(prefix) if prefix else self._folder.rstrip("/")
        offset = self._path(after) if after else None

        def first(store: Store) -> tuple[Iterator[Sequence[Any]], Sequence[Any]]:
            chunks = iter(obstore.list(store, folder or None, offset=offset, chunk_size=LISTED_AT_ONCE))
            return chunks, next(chunks, ())

        chunks, found = self._ask(prefix, first)
        while found:
            for each in found:
                written_ms = int(each["last_modified"].timestamp() * 1000)
                yield Listed(each["path"].removeprefix(self._folder), each["size"], _etag(each["e_tag"]), written_ms)
            with self._errors(prefix):
                found = next(chunks, ())

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the objects; those that do not exist are ignored."""
        paths = map(self._path, keys)
        while some := list(islice(paths, DELETED_AT_ONCE)):
            try:
                self._delete(some)
            except FileNotFoundError:  # Azure and Google name a missing object; then nothing is known of the others
                list(_threads().map(self._delete_one, some))

    def etag(self, key: str) -> str | None:
        """Return the object's ETag; None if there is no such object."""
        path = self._path(key)
        try:
            return _etag(self._ask(key, lambda store: obstore.head(store, path))["e_tag"])
        except FileNotFoundError:
            return None

    def files(self, sizes: Mapping[str, int]) -> fs.FileSystem:
        """Return objects as a file system that Arrow reads from; see `port.Lake`.

        Small ones are kept in memory for a while: a file with rows of many partitions is read for each of them.
        """
        return as_files(self, sizes, self._kept)

    def _path(self, key: str) -> str:
        """Return the object's name within the bucket. Raise StateError if the key is not of plain names."""
        return f"{self._folder}{checked(key)}"

    def _delete(self, paths: list[str]) -> None:
        self._ask("", lambda store: obstore.delete(store, paths))

    def _delete_one(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._delete([path])

    def _read(self, key: str, start: int, length: int | None) -> bytes | None:
        """Return the bytes from `start`, by default to the end: in one request, or for large objects in pieces."""
        try:
            first = self._piece(key, start, PIECE if length is None else min(length, PIECE))
            end = first.size if length is None else min(start + length, first.size)
            return b"".join((first.data, *self._pieces(key, range(start + PIECE, end, PIECE), end, first.etag)))
        except FileNotFoundError:
            return None
        except PreconditionError:
            raise Unavailable(
                "an object was replaced while it was read", value=f"{self._place}/{key}", remedy="read it again"
            ) from None

    def _pieces(self, key: str, starts: Sequence[int], end: int, etag: str | None) -> Iterable[bytes]:
        def read(start: int) -> bytes:
            return self._piece(key, start, min(PIECE, end - start), etag).data

        return _threads().map(read, starts) if starts else ()

    def _piece(self, key: str, start: int, length: int, etag: str | None = None) -> _Piece:
        path = self._path(key)
        wanted: Any = {"range": (start, start + length), **({"if_match": etag} if etag else {})}

        def read(store: Store) -> _Piece:
            try:
                answer = obstore.get(store, path, options=wanted)
                return _Piece(bytes(answer.bytes()), answer.meta["size"], answer.meta["e_tag"])
            except BaseError as error:
                if is_range_beyond_end(error):
                    return _Piece(b"", start, None)
                raise

        return self._ask(key, read)

    def _ask(self, key: str, request: Callable[[Store], T]) -> T:
        """Return the answer to a request about the object, whose name errors show; see `_errors`.

        If the store refuses the credentials, ask once more with those that the machine has now.
        """
        try:
            return request(store_of(self._bucket))
        except _STORE_ERRORS as error:
            if not is_refusal(error):
                with self._errors(key):
                    raise
        forget(self._bucket)
        with self._errors(key):
            return request(store_of(self._bucket))

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Let through that an object exists, does not exist, or was replaced; turn other errors into Tidegate's."""
        try:
            yield
        except _NOT_DONE:
            raise
        except _STORE_ERRORS as error:
            if isinstance(error, FileNotFoundError) and not is_bucket_missing(error):
                raise
            raise tidegate_error(error, self._place, key) from None


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "lake")


def _etag(found: str | None) -> str:
    """Return an answer's ETag without its quotes, which a listing of Azure's lacks."""
    if found is None:
        raise Unavailable("the object store gives no ETags", remedy="use a store that gives them")
    return found.strip('"')
