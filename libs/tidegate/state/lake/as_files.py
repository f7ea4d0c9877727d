"""Show objects of a lake to Arrow as a file system to read from."""

from __future__ import annotations

import io
from collections.abc import Mapping
from threading import Lock
from typing import Any, NoReturn

import pyarrow as pa
from pyarrow import fs

from tidegate.state.lake.port import Lake

WHOLE_BYTES = 8 * 2**20
"""An object up to this size is read by one `get`: one request costs less than several for its parts."""


KEPT_BYTES = 64 * 2**20
"""How many bytes of small objects a process keeps of one log."""


class KeptContents:
    """The contents of small objects that were read last; objects that Arrow reads never change. Threads share it."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._bytes = 0
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """Return the content, if it is kept."""
        return self._contents.get(key)

    def keep(self, key: str, content: bytes) -> None:
        """Keep the content; forget those that were read first if all become too large."""
        with self._lock:
            if key in self._contents:
                return
            self._contents[key] = content
            self._bytes += len(content)
            while self._bytes > KEPT_BYTES:
                first = next(iter(self._contents))
                self._bytes -= len(self._contents.pop(first))


def as_files(lake: Lake, sizes: Mapping[str, int], kept: KeptContents | None = None) -> fs.FileSystem:
    """Return the objects as files, for any lake; `sizes` has their keys, and their sizes in bytes.

    A file is read when Arrow opens it: a small one as a whole, of a large one the parts that Arrow asks for. With
    `kept`, a small one that is kept there is not read again.
    """
    return fs.PyFileSystem(_Objects(lake, sizes, kept))


class _Objects(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Opens objects of a lake; all that writes or lists is refused."""

    def __init__(self, lake: Lake, sizes: Mapping[str, int], kept: KeptContents | None) -> None:
        self._lake, self._sizes, self._kept = lake, sizes, kept

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Return the object as a file. Raise FileNotFoundError if there is none."""
        if self._sizes[path] > WHOLE_BYTES:
            return pa.PythonFile(_Ranges(self._lake, path, self._sizes[path]), mode="r")
        content = None if self._kept is None else self._kept.get(path)
        if content is None:
            content = self._lake.get(path)
            if content is None:
                raise FileNotFoundError(path)
            if self._kept is not None:
                self._kept.keep(path, content)
        return pa.BufferReader(content)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Return the object as a file. Raise FileNotFoundError if there is none."""
        return self.open_input_file(path)

    def get_type_name(self) -> str:
        """Return the name of this type of file system."""
        return "lake"

    def normalize_path(self, path: str) -> str:
        """Return the key, which is plain names."""
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Return that each path is a file of its known size."""
        return [fs.FileInfo(path, fs.FileType.File, size=self._sizes[path]) for path in paths]

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("a lake is written through its port")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refused
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refused


class _Ranges(io.RawIOBase):
    """A large object as a file that is read by ranges."""

    def __init__(self, lake: Lake, key: str, size: int) -> None:
        self._lake, self._key, self._size, self._at = lake, key, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to the position and return it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return that many bytes, or all that follow. Raise FileNotFoundError if the object is gone."""
        length = max(0, min(self._size - self._at, self._size if size < 0 else size))
        found = self._lake.get_range(self._key, self._at, length) if length else b""
        if found is None:
            raise FileNotFoundError(self._key)
        self._at += len(found)
        return found
