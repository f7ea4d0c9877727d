"""The object stores of this process: one for each bucket, opened at first use.

A store authenticates itself with what its machine has: environment variables, a role of the machine or of the pod, or
a profile in a file of credentials. It is never sent to another process. Access keys are in no address, error or log.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, S3Store

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import EngineError, UserError
from tidegate.state.lake.place import Place

Store: TypeAlias = AzureStore | GCSStore | S3Store

TIMEOUT = timedelta(seconds=10)
"""Longest time of one request, with the data that it sends or receives."""

RETRIES_TIMEOUT = timedelta(seconds=3)
"""Time after which the client begins no further retry of its own; then the caller decides."""

_MAX_RETRIES = 5
_BACKOFF = {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2}
_DIRECTORY_BUCKET = "--x-s3"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables that give a pod or container a role, which takes precedence over a file that nobody has named."""

_CREDENTIALS_LAST = timedelta(minutes=10)
"""Age at which credentials of a file are read again at the latest, because the file may have been replaced."""


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
        "client_options": {"timeout": TIMEOUT, "allow_http": _is_plain_http(options)},
        "retry_config": {"max_retries": _MAX_RETRIES, "retry_timeout": RETRIES_TIMEOUT, "backoff": _BACKOFF},
    }
    if bucket.scheme == "s3":
        return S3Store(bucket.name, config=_s3_config(options), credential_provider=_profile(options), **settings)
    _refuse_others(bucket, options)
    if bucket.scheme == "az":
        return AzureStore(bucket.name, **settings)
    account: Any = {"service_account": options["secret_file"]} if "secret_file" in options else {}
    return GCSStore(bucket.name, config=account, **settings)


def _s3_config(options: Mapping[str, str]) -> Any:
    names = {"endpoint": "aws_endpoint_url_s3", "region": "region"}  # which the environment does not override
    return {"conditional_put": "etag", **{names[name]: options[name] for name in set(names) & set(options)}}


def endpoint(options: Mapping[str, str]) -> str | None:
    """Return the address of the S3 server that the options or the environment names; None for that of AWS."""
    named = options.get("endpoint"), os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL")
    return next(filter(None, named), None)


def _is_plain_http(options: Mapping[str, str]) -> bool:
    return (endpoint(options) or "").startswith("http://")


def _refuse_others(bucket: Bucket, options: Mapping[str, str]) -> None:
    """Raise UserError for options that only S3 has."""
    known = {"secret_file"} if bucket.scheme == "gs" else set()
    if strange := sorted(set(options) - known):
        raise UserError(
            f"{bucket.scheme}:// has no such options",
            value=", ".join(strange),
            remedy="remove them from lake_options; the environment variables of the store's own tools are read",
        )


def _profile(options: Mapping[str, str]) -> Any | None:
    """Return what reads a profile from a file of credentials; None if the store finds credentials by itself."""
    file = options.get("secret_file") or os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    profile = options.get("profile") or os.environ.get("AWS_PROFILE")
    usual = Path.home() / ".aws" / "credentials"
    if not {"secret_file", "profile"} & set(options) and (
        os.environ.get("AWS_ACCESS_KEY_ID") or not (file or profile or (usual.is_file() and not _has_role()))
    ):
        return None
    reader = ProfileReader(Path(file) if file else usual, profile or "default")
    reader()  # a missing profile is an error of the configuration, not of a request
    return reader


def _has_role() -> bool:
    return any(os.environ.get(name) for name in _ROLES)


@dataclass(frozen=True)
class ProfileReader:
    """Reads the keys of a profile from a file of credentials in the format of the AWS command line."""

    file: Path
    profile: str

    def __call__(self) -> dict[str, Any]:
        """Return the keys and when to read them again. Raise UserError if the file has no keys of the profile."""
        found = configparser.RawConfigParser()
        try:
            found.read_string(self.file.read_text())
            keys = dict(found[self.profile])
            login = {"access_key_id": keys["aws_access_key_id"], "secret_access_key": keys["aws_secret_access_key"]}
        except (OSError, KeyError, configparser.Error):
            raise UserError(
                "the file of credentials has no access keys of this profile",
                value=f"{self.profile} in {self.file}",
                remedy="write aws_access_key_id and aws_secret_access_key there (see `aws configure`), or name another "
                "file or profile in lake_options",
            ) from None  # its text may show the file's lines
        now = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC)
        return {**login, "token": keys.get("aws_session_token"), "expires_at": now + _CREDENTIALS_LAST}
