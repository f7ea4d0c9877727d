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

_KEYS_FROM_ELSEWHERE = ("role_arn", "sso_session", "sso_start_url", "credential_process", "source_profile")
"""Settings of a profile that has no keys of its own: a program asks another service, or a person's login, for them."""

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
        keys = _section(self.file, self.profile)
        if not {"aws_access_key_id", "aws_secret_access_key"} <= keys.keys():
            self._refuse_keys_from_elsewhere(keys)
            raise UserError(
                "the file of credentials has no access keys of this profile",
                value=f"{self.profile} in {self.file}",
                remedy="write aws_access_key_id and aws_secret_access_key there (see `aws configure`), or name another "
                "file or profile in lake_options",
            )
        login = {"access_key_id": keys["aws_access_key_id"], "secret_access_key": keys["aws_secret_access_key"]}
        now = datetime.fromtimestamp(SYSTEM_CLOCK.now_ms() / 1000, UTC)
        return {**login, "token": keys.get("aws_session_token"), "expires_at": now + _CREDENTIALS_LAST}

    def _refuse_keys_from_elsewhere(self, keys: Mapping[str, str]) -> None:
        """Raise UserError if the profile, here or in the file of configurations, names a role, SSO or a program."""
        configurations = Path(os.environ.get("AWS_CONFIG_FILE") or Path.home() / ".aws" / "config")
        section = "default" if self.profile == "default" else f"profile {self.profile}"
        for file, settings in ((self.file, keys), (configurations, _section(configurations, section))):
            named = [name for name in _KEYS_FROM_ELSEWHERE if name in settings]
            if named:
                raise UserError(
                    f"the profile takes its keys from elsewhere ({', '.join(named)}), which Tidegate does not do",
                    value=f"{self.profile} in {file}",
                    remedy="give the machine or the pod the role itself, or write keys into the environment: "
                    f"aws configure export-credentials --profile {self.profile} --format env",
                )


def _section(file: Path, name: str) -> dict[str, str]:
    """Return the settings of a section of the file; none if the file or the section cannot be read."""
    found = configparser.RawConfigParser()
    try:
        found.read_string(file.read_text())
        return dict(found[name])
    except (OSError, UnicodeDecodeError, KeyError, configparser.Error):  # whose texts may show the file's lines
        return {}
