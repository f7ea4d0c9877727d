"""The object stores of this process: one for each bucket, opened at first use.

A store authenticates itself with what its machine has: environment variables, a role of the machine or of the pod, or
a profile in a file of credentials. It is never sent to another process. Access keys are in no address, error or log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from threading import Lock
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from tidegate.contracts.errors import EngineError, UserError
from tidegate.state.lake.place import Place
from tidegate.state.lake.s3_login import is_plain_http, profile_reader

Store: TypeAlias = AzureStore | GCSStore | S3Store

TIMEOUT = timedelta(seconds=10)
"""Longest time of one request, with the data that it sends or receives."""

RETRIES_TIMEOUT = timedelta(seconds=3)
"""Time after which the client begins no further retry of its own; then the caller decides."""

_MAX_RETRIES = 5
_BACKOFF = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2}
_DIRECTORY_BUCKET = "--x-s3"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")


class Bucket(NamedTuple):
    """A bucket or container of an object store, and the options of `lake_options` with which it is reached."""

    scheme: str
    name: str
    options: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name}"


def bucket_of(place: Place) -> Bucket:
    """Return the bucket that the place is in. Raise UserError if the place names none, or an S3 directory bucket."""
    parts = urlsplit(place.url)
    bucket = Bucket(parts.scheme, parts.netloc, place.options)
    if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # without what may be a password
        raise UserError(
            "this is no address of an object store", value=shown, remedy=f"write {parts.scheme}://BUCKET/FOLDER"
        )
    if bucket.scheme == "s3" and bucket.name.endswith(_DIRECTORY_BUCKET):
        raise UserError(
            "an S3 directory bucket cannot hold a lake: its listings are in no order",
            value=bucket,
            remedy="name a general purpose bucket",
        )
    return bucket


def folder_of(place: Place) -> str:
    """Return the place's folder within its bucket, with a slash at the end; empty for the bucket itself."""
    folder = urlsplit(place.url).path.strip("/")
    return f"{folder}/" if folder else ""


class _Stores:
    """The stores that are open in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[Bucket, Store] = {}
        self._process: int | None = None

    def store(self, bucket: Bucket) -> Store:
        """Return the bucket's store. Raise EngineError if this process was forked from one that has used a store."""
        if self._process not in (None, os.getpid()):
            raise EngineError(
                "an object store was used before this process was forked, and would never answer here",
                value=bucket,
                remedy="start processes with the method spawn, or fork them before the first use of the lake",
            )
        with self._lock:
            if bucket not in self._open:
                self._open[bucket] = _opened(bucket)
                self._process = os.getpid()
            return self._open[bucket]

    def forget(self, bucket: Bucket) -> None:
        """Open the bucket's store anew at its next use, with the credentials that the machine has then."""
        with self._lock:
            self._open.pop(bucket, None)


_STORES = _Stores()
store_of = _STORES.store
forget = _STORES.forget


def _opened(bucket: Bucket) -> Store:
    options = dict(bucket.options)
    settings: dict[str, Any] = {
        "client_options": {"timeout": TIMEOUT, "allow_http": is_plain_http(options)},
        "retry_config": {"max_retries": _MAX_RETRIES, "retry_timeout": RETRIES_TIMEOUT, "backoff": _BACKOFF},
    }
    if bucket.scheme == "s3":
        return S3Store(bucket.name, config=_s3_config(options), credential_provider=profile_reader(options), **settings)
    if bucket.scheme == "az":
        return AzureStore(bucket.name, **settings)
    account: Any = {"service_account": options["secret_file"]} if "secret_file" in options else {}
    return GCSStore(bucket.name, config=account, **settings)


def _s3_config(options: Mapping[str, str]) -> Any:
    names = {"endpoint": "aws_endpoint_url_s3", "region": "region"}  # which the environment does not override
    return {"conditional_put": "etag", **{names[name]: options[name] for name in set(names) & set(options)}}
