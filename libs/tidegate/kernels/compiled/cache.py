"""numba's cache on disk, with names that follow from all the sources that a kernel is compiled from.

numba compiles the callees and the constants of other modules into a kernel, but looks at the kernel's own file alone to
see whether a cached one is fresh. After a change elsewhere it would run old code, or fail to read its index.

It numbers the code of a kernel's signatures, each process by what it finds. Two that write at the same time would use
one number for two signatures, and later processes would run the code of the other one.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numba.core import caching  # type: ignore[import-untyped, unused-ignore]

_CONSTANTS = (int, float, str, bytes, np.generic)
_OURS = __name__.partition(".")[0]


class KernelCache(caching.FunctionCache):  # type: ignore[misc, unused-ignore]
    """The cached machine code of one kernel."""

    def __init__(self, kernel: Callable[..., object], *, suffix: str) -> None:
        """Name the kernel's files. Raise RuntimeError if neither the package's nor the user's folder can be written.

        `suffix`: what the files' names end with. Kernels that check the bounds of arrays, and those that Python cannot
        call, have files of their own, because numba's index does not tell them apart.
        """
        self._impl_class = partial(_Files, suffix=suffix)
        super().__init__(kernel)

    def _save_overload(self, sig: Any, data: Any) -> None:
        self._impl.locator.ensure_cache_path()
        with _alone(Path(self._cache_path)):
            super()._save_overload(sig, data)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let no other process write to the cache in this folder meanwhile."""
    with (folder / ".kernels.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Files(caching.CompileResultCacheImpl):  # type: ignore[misc, unused-ignore]
    def __init__(self, kernel: Callable[..., object], *, suffix: str) -> None:
        self._sources = sources_digest(kernel)
        self._suffix = suffix
        _digests_in_use.add(self._sources)
        super().__init__(kernel)

    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        return f"{super().get_filename_base(fullname, abiflags)}-{self._sources}{self._suffix}"


_digests_in_use: set[str] = set()


def digest_in_use() -> str:
    """Return a digest of the sources that the kernels imported so far are compiled from."""
    return hashlib.sha256(" ".join(sorted(_digests_in_use)).encode()).hexdigest()


def delete_stale_files(folder: Path) -> None:
    """Delete the cached kernels below the folder that no imported kernel would use, checked or not."""
    for file in folder.rglob("*.nb[ic]"):
        found = _DIGEST_IN_NAME.search(file.name)
        if found is None or found[1] not in _digests_in_use:
            file.unlink(missing_ok=True)


_DIGEST_IN_NAME = re.compile(r"-([0-9a-f]{16})(?:-checked)?(?:-part)?\.")


def sources_digest(kernel: Callable[..., Any]) -> str:
    """Return a digest of the kernel's module and of all that it imports from its package and ours, directly or not.

    The kernel's module may be under way, but must have its imports done.
    """
    return _digest(kernel.__module__, kernel.__globals__)[:16]


@cache
def _imported_digest(module: str) -> str:
    return _digest(module, vars(sys.modules[module]))


def _digest(module: str, names: dict[str, Any]) -> str:
    digest = hashlib.sha256(_content(str(names["__file__"])))
    for origin in sorted(_origins(module, names)):
        digest.update(_imported_digest(origin).encode())
    for name in sorted(names):
        if isinstance(names[name], _CONSTANTS) and not name.startswith("__"):
            digest.update(f"{name}={names[name]!r}".encode())  # a number does not say where it was imported from
    return digest.hexdigest()


def _origins(module: str, names: dict[str, Any]) -> set[str]:
    """Return the modules of its package and ours that the names of a module come from, without itself.

    Its submodules are left out: they become names of it whenever somebody imports them.
    """
    packages = (f"{_OURS}.", f"{module.partition('.')[0]}.")
    of_values = {str(getattr(value, "__module__", None) or getattr(value, "__name__", "")) for value in names.values()}
    return {
        origin
        for origin in of_values
        if origin.startswith(packages) and not f"{origin}.".startswith(f"{module}.") and origin in sys.modules
    }


@cache
def _content(file: str) -> bytes:
    return hashlib.sha256(Path(file).read_bytes()).digest()
