"""The address of the control database: its URL, and which part of it may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from tidegate.contracts.errors import InvalidValue

_SQLITE, _POSTGRESQL = "sqlite:///", "postgresql+psycopg://"
_POSTGRESQL_URL = re.compile(
    r"""postgresql\+psycopg://
    (?:[^:@/?#]*(?::[^:@/?#]*)?@)?          # user and password, special characters percent-encoded
    (?:[\w.-]+|\[[0-9a-fA-F:]+\])?(?::\d+)? # host and port
    (?:/[\w.-]*)?                           # database
    (?:\?[^@/#]*)?                          # options of libpq
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Address:
    """The URL of a control database.

    The URL may hold a password: show only `redacted_url`, and texts that went through `redact`.
    """

    url: str = field(repr=False)

    @property
    def kind(self) -> Literal["sqlite", "postgresql"]:
        """Return the kind of database."""
        return "sqlite" if self.url.startswith(_SQLITE) else "postgresql"

    @property
    def file(self) -> Path:
        """Return the file of a SQLite database."""
        return Path(self.url.removeprefix(_SQLITE))

    @property
    def redacted_url(self) -> str:
        """Return the URL without user, password and options."""
        if self.kind == "sqlite":
            return self.url
        parts = urlsplit(self.url)
        return f"{_POSTGRESQL}{parts.netloc.rpartition('@')[2]}{parts.path}"

    def redact(self, text: str) -> str:
        """Return the text with every secret of the URL replaced by ***."""
        for secret in self.secrets():
            text = text.replace(secret, "***")
        return text

    def within(self, folder: Path) -> Address:
        """Return the address with the relative path of a SQLite file resolved against the folder."""
        return Address(f"{_SQLITE}{folder / self.file}") if self.kind == "sqlite" else self

    def secrets(self) -> list[str]:
        """Return the passwords in the URL, as written and percent-decoded, the longest first."""
        parts = urlsplit(self.url)
        values = [value for name, value in parse_qsl(parts.query) if "password" in name]
        found = {each for value in (parts.password, *values) if value for each in (value, unquote(value))}
        return sorted(found, key=len, reverse=True)


def url_problem(url: str) -> InvalidValue | None:
    """Return why the URL is not that of a control database; None if it is one.

    The reason shows nothing of the URL, which may hold a password.
    """
    if url.startswith(_SQLITE):
        is_file = len(url) > len(_SQLITE) and "?" not in url
        return None if is_file else InvalidValue("no file is named", "write sqlite:///control.db")
    if not url.startswith(_POSTGRESQL):
        remedy = f"write {_SQLITE}control.db or {_POSTGRESQL}USER@HOST/DATABASE"
        return InvalidValue("it names neither SQLite nor PostgreSQL", remedy)
    if _POSTGRESQL_URL.fullmatch(url) is None:
        return InvalidValue(
            "it is not a URL",
            f"write {_POSTGRESQL}USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password "
            "percent-encoded (@ is %40)",
        )
    return None
