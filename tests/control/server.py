"""A real PostgreSQL server with a data folder of its own, for tests: Debian's package, nothing of the system's."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tidegate.devkit.embedded_broker import free_ports

PASSWORD = "s3cr3t-canary"
"""Looked for in whatever is told: it must be nowhere."""

_NUMBERS = itertools.count()


class Server:
    """Runs on a free port of this machine, with a user `tidegate` that needs a password."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._user = _user()
        self._folder = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        [self.port] = free_ports(1)
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)  # in a folder that is for the server's user alone
        options = ["-U", "tidegate", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync", "-E", "UTF8"]
        self._run("initdb", "-D", str(self._folder / "data"), *options)
        self.start()

    def start(self) -> None:
        """The server answers."""
        sockets = f"-k {self._folder} -c listen_addresses=127.0.0.1 -p {self.port} -c fsync=off"
        self._control("start", "-l", str(self._folder / "log"), "-o", sockets)

    def stop(self) -> None:
        """The server is gone at once, whoever was connected."""
        self._control("stop", "-m", "immediate")

    def remove(self) -> None:
        """Nothing is left of the server."""
        self.stop()
        shutil.rmtree(self._folder)

    def create(self) -> str:
        """The name of a new database."""
        name = f"control_{next(_NUMBERS)}"
        self.tell(f"CREATE DATABASE {name}")
        return name

    def drop(self, name: str) -> None:
        """The database is gone, whoever was connected."""
        self.tell(f"DROP DATABASE {name} WITH (FORCE)")

    def tell(self, statement: str) -> None:
        """The statement is carried out, outside of any transaction."""
        login: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "user": "tidegate", "password": PASSWORD}
        with psycopg.connect(dbname="postgres", autocommit=True, **login) as connection:
            connection.execute(statement.encode())

    def url(self, name: str) -> str:
        """The URL of a database."""
        return f"postgresql+psycopg://tidegate:{PASSWORD}@127.0.0.1:{self.port}/{name}"

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-w", *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        ran = subprocess.run(
            [self._programs / program, *arguments],
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            check=False,
        )
        assert ran.returncode == 0, f"{program} failed: {(ran.stderr or b'').decode()}; see {self._folder}/log"


def _programs() -> Path:
    """The folder of initdb and pg_ctl; the tests fail where there is none: they are never skipped."""
    found = shutil.which("initdb")
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if found is None and not versions:
        pytest.fail("no PostgreSQL server is installed: run infra/postgres.sh as root, or apt-get install postgresql")
    return Path(found).resolve().parent if found else versions[-1].parent


def _user() -> str | None:
    """Whom the server runs as: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
