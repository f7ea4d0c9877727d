"""The command `tidegate console`, with a server that does not listen."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tidegate.cli.main import main
from tidegate.console import server

pytestmark = pytest.mark.fast

FILE = """
application: app
lake: ./lake
keep_output: forever
kafka: {bootstrap.servers: "127.0.0.1:1"}
operators: {limited: {kind: suppression, input: in, output: out, until: {time_limit: 10s}}}
"""


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the server was given; it announces an address from another thread, as one that serves pages does."""
    given: dict[str, Any] = {}

    def serve(_application: object, _file: str, **options: Any) -> None:
        given.update(options)
        thread = Thread(target=options["announce"], args=("http://127.0.0.1:8765/login?token=t",))
        thread.start()
        thread.join()

    monkeypatch.setattr(server, "serve", serve)
    return given


def run(folder: Path, *options: str) -> Result:
    file = folder / "app.yaml"
    file.write_text(FILE)
    return CliRunner().invoke(main, ["console", str(file), *options])


def test_the_console_is_for_this_machine_alone_and_prints_the_address_of_each_login(
    tmp_path: Path, served: dict[str, Any]
) -> None:
    ran = run(tmp_path)
    assert (ran.exit_code, ran.stdout) == (0, "open http://127.0.0.1:8765/login?token=t\n")
    assert (served["host"], served["port"], served["token"]) == ("127.0.0.1", 8765, None)


def test_with_json_each_address_is_a_line_of_json(tmp_path: Path, served: dict[str, Any]) -> None:
    assert json.loads(run(tmp_path, "--json").stdout) == {"address": "http://127.0.0.1:8765/login?token=t"}


def test_a_short_token_is_refused(tmp_path: Path, served: dict[str, Any]) -> None:
    ran = run(tmp_path, "--token", "x" * 19)
    assert ran.exit_code == 2 and "the token is too short" in ran.stderr and not served
    assert run(tmp_path, "--token", "x" * 20).exit_code == 0
