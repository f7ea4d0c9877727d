"""Open a place of the lake in this process."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import cast

from tidegate.contracts.extras import explained
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake
from tidegate.state.lake.posix_lake import PosixLake


@lru_cache(maxsize=1024)
def open_lake(place: Place) -> Lake:
    """Return the lake at the place, one per place and process: a folder, or an object store by the url's scheme.

    Nothing is read or written. A lake of an object store holds a client with credentials, so what travels to another
    process is its place: its pickle is a call of this function. Raise MissingExtra if the library for object stores is
    not installed.
    """
    if place.is_local:
        return PosixLake(place)
    try:
        objects = import_module("tidegate.state.lake.object_lake")  # which imports the library
    except ModuleNotFoundError as error:
        raise explained(error) or error from None
    return cast(Lake, objects.ObjectLake(place))
