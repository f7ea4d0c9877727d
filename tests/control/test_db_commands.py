"""`tidegate db`: upgrade, downgrade, current, rebuild."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.control.contents import batches, batches_of_log, from_the_logs
from tests.control.server import PASSWORD
from tests.control.test_ledger import World
from tests.runtime.miniature import NAME
from tidegate.cli.main import main
from tidegate.control.address import Address


@pytest.fixture
def file(address: Address, tmp_path: Path) -> Path:
    """A configuration file with that control database."""
    path = tmp_path / "flights.yaml"
    operator = {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "1h"}}
    content = {"application": "app", "lake": "lake", "keep_output": "forever", "kafka": {"bootstrap.servers": "no:1"}}
    path.write_text(yaml.safe_dump({**content, "control": address.url, "operators": {NAME: operator}}))
    return path


def db(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["db", *map(str, arguments)])


def told(*arguments: object) -> Any:
    result = db(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_upgrade_current_and_downgrade_show_the_revision(file: Path, address: Address) -> None:
    newest = told("current", file)["newest"]
    assert told("current", file) == {"database": address.redacted_url, "revision": None, "newest": newest}
    assert told("upgrade", file)["revision"] == newest
    assert told("current", file)["revision"] == newest
    assert told("downgrade", file, "base")["revision"] is None
    assert "revision none; this program needs" in db("current", file).stdout


def test_rebuild_fills_the_tables_from_the_logs(file: Path, address: Address, tmp_path: Path) -> None:
    world = World(address, tmp_path)
    for action in ("claim", "batch", "compaction"):
        world.commit(action=action, recovered={0: "rebuild"})
    assert told("rebuild", file)["batches"] == {NAME: 3}
    assert batches(world.database, NAME) == batches_of_log(world.log.place.folder)
    before = from_the_logs(world.database)
    assert told("downgrade", file, "base") and told("upgrade", file)
    assert db("rebuild", file).stdout == f"{NAME}: 3 batches\n"
    assert from_the_logs(world.database) == before


def test_rebuild_does_not_touch_tables_of_a_different_revision(file: Path) -> None:
    told("upgrade", file)
    told("downgrade", file, "base")
    result = db("rebuild", file)
    assert (result.exit_code, "tidegate db upgrade" in result.stderr) == (1, True)


def test_an_unknown_revision_is_a_user_error(file: Path) -> None:
    told("upgrade", file)
    assert db("downgrade", file, "never").exit_code == 2


@pytest.mark.fast
def test_a_file_without_a_control_database_is_the_users_error(tmp_path: Path) -> None:
    path = tmp_path / "flights.yaml"
    raw = {"application": "app", "lake": "x", "keep_output": "1d", "kafka": {"bootstrap.servers": "no:1"}}
    path.write_text(yaml.safe_dump({**raw, "operators": {}, "control": None}))
    result = db("current", path)
    assert (result.exit_code, "control: sqlite" in result.stderr) == (2, True)


@pytest.mark.fast
@pytest.mark.parametrize("command", ["upgrade", "current", "rebuild"])
def test_a_server_that_is_unavailable_is_reported_without_its_password(tmp_path: Path, command: str) -> None:
    url = f"postgresql+psycopg://tidegate:{PASSWORD}@127.0.0.1:1/control?sslpassword={PASSWORD}"
    path = tmp_path / "flights.yaml"
    raw = {"application": "app", "lake": "x", "keep_output": "1d", "kafka": {"bootstrap.servers": "no:1"}}
    path.write_text(yaml.safe_dump({**raw, "operators": {}, "control": url}))
    for result in (db(command, path), db(command, path, "--json")):
        assert result.exit_code == 1
        assert "postgresql+psycopg://127.0.0.1:1/control" in result.stderr
        assert PASSWORD not in result.output
