"""Keys of a lake's objects: the same names are accepted in a folder and in every object store."""

from __future__ import annotations

import re

from tidegate.contracts.errors import StateError

_KEY = re.compile(r"(?:(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.=-]+(?:/(?!\Z)|\Z))+")


def checked(key: str) -> str:
    """Return the key. Raise StateError unless it is plain names with `/` between them.

    An object store would take `/a`, `a/` and `a` for the same object, and a folder would follow `..`.
    """
    # rule: lake-key-plain
    if not _KEY.fullmatch(key):
        raise StateError(
            "this is no name of an object in the lake", value=repr(key), remedy="find out which program named it"
        )
    return key
