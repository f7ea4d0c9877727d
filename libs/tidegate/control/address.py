"""Where the control database is: its URL, and what may be shown of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

_SQLITE, _POSTGRESQL = "sqlite:///", "postgresql+psycopg://"
_POSTGRESQL_URL = re.compile(
    r"""postgresql\+psycopg://
    (?:[^:@/?#]*(?::[^:@/?#]*)?@)?          # user and password, what is special in them percent-encoded
    (?:[\w.-]+|\[[0-9a-fA-F:]+\])?(?::\d+)? # host and port
    (?:/[\w.-]*)?                           # database
    (?:\?[^@/#]*)?                          # options of libpq
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Address:
    """The URL of a control database; only `shown` and what went through `clean` may be told."""

    url: str = field(repr=False)

    @property
    def kind(self) -> Literal["sqlite", "postgresql"]:
        """The sort of database."""
        return "sqlite" if self.url.startswith(_SQLITE) else "postgresql"

    @property
    def file(self) -> Path:
        """The file of a SQLite database."""
        return Path(self.url.removeprefix(_SQLITE))

    @property
    def shown(self) -> str:
        """The URL without user, password and options."""
        if self.kind == "sqlite":
            return self.url
        parts = urlsplit(self.url)
        return f"{_POSTGRESQL}{parts.netloc.rpartition('@')[2]}{parts.path}"

    def clean(self, text: str) -> str:
        """The text without what is secret in the URL."""
        for secret in self.secrets():
            text = text.replace(secret, "***")
        return text

    def within(self, folder: Path) -> Address:
        """The address with a SQLite file's relative path taken from the folder."""
        return Address(f"{_SQLITE}{folder / self.file}") if self.kind == "sqlite" else self

    def secrets(self) -> list[str]:
        """What is secret in the URL, the longest first."""
        parts = urlsplit(self.url)
        values = [value for name, value in parse_qsl(parts.query) if "password" in name]
        found = {each for value in (parts.password, *values) if value for each in (value, unquote(value))}
        return sorted(found, key=len, reverse=True)


def refusal(url: str) -> str | None:
    """Why it is not the URL of a control database: "cause; remedy", which shows nothing of it. None: it is one."""
    if url.startswith(_SQLITE):
        return None if len(url) > len(_SQLITE) and "?" not in url else "no file is named; write sqlite:///control.db"
    if not url.startswith(_POSTGRESQL):
        return f"neither SQLite nor PostgreSQL; write {_SQLITE}control.db or {_POSTGRESQL}USER@HOST/DATABASE"
    if _POSTGRESQL_URL.fullmatch(url) is None:
        return (
            f"not a URL; write {_POSTGRESQL}USER:PASSWORD@HOST:PORT/DATABASE, with what is special in the password "
            "percent-encoded (@ is %40)"
        )
    return None
