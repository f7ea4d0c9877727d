"""Where an S3 server is, and with which keys this machine logs in: by options, environment variables or a file."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import UserError

_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables that give a pod or container a role, which takes precedence over a file that nobody has named."""

_CREDENTIALS_LAST = timedelta(minutes=10)
"""Age at which credentials of a file are read again at the latest, because the file may have been replaced."""


def endpoint(options: Mapping[str, str]) -> str | None:
    """Return the address of the S3 server that the options or the environment names; None for that of AWS."""
    named = options.get("endpoint"), os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL")
    return next(filter(None, named), None)


def is_plain_http(options: Mapping[str, str]) -> bool:
    """Return True if the server is reached without TLS."""
    return (endpoint(options) or "").startswith("http://")


def profile_reader(options: Mapping[str, str]) -> Any | None:
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
