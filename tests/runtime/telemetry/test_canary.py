"""No output of a command contains a password of the file, whatever fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.runtime.telemetry.conftest import CANARY, RAW
from tidegate.cli.main import main

pytestmark = [pytest.mark.fast, pytest.mark.usefixtures("impatient")]

LOGIN = RAW["kafka"]["sasl.jaas.config"]
SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
FILES: dict[str, dict[str, Any]] = {
    "right": {},
    "a login of another mechanism": {"kafka": RAW["kafka"] | {"sasl.mechanism": "SCRAM-SHA-256"}},
    "a login that is no login": {"kafka": RAW["kafka"] | {"sasl.jaas.config": f'password="{CANARY}"'}},
    "a misspelt option": {"kafka": SERVERS | {"sasl.jass.config": LOGIN}},
    "a key where only files are read": {"kafka": SERVERS | {"ssl.keystore.key": CANARY}},
    "a key of a store that is not there": {"kafka": RAW["kafka"] | {"ssl.keystore.location": "none.pem"}},
    "settings that are no texts": {"kafka": RAW["kafka"] | {"sasl.jaas.config": [LOGIN]}},
    "settings that are a text": {"kafka": LOGIN},
    "a database of another kind": {"control": f"mysql://tidegate:{CANARY}@db/control"},
    "Spark settings that are refused": {"spark": {"conf": {"spark.a.secret": CANARY, "spark.task.maxFailures": "4"}}},
    "Spark settings that are no texts": {"spark": {"conf": {"spark.a.secret": [CANARY]}}},
    "an unknown part": {"kafak": RAW["kafka"]},
    "an operator that is none": {"operators": {"updates": {"kind": "suppression", "input": "in", "pasword": CANARY}}},
}


@pytest.mark.parametrize("wrong", FILES)
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_no_command_shows_a_secret(wrong: str, options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(RAW | FILES[wrong]))
    for command in ("validate", "status", "doctor", "db current"):
        ran = CliRunner().invoke(main, [*command.split(), str(file), *options])
        assert ran.output, f"{command} tells something"
        assert CANARY not in ran.output, command
        assert CANARY not in repr(ran.exception), command
    assert CANARY not in "".join(path.read_text() for path in tmp_path.rglob("*.json"))


def test_a_line_that_is_not_yaml_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(f'kafka:\n  sasl.jaas.config: "{CANARY}" "\n')
    ran = CliRunner().invoke(main, ["validate", str(file)])
    assert ran.exit_code == 2 and "line 3" in ran.output
    assert CANARY not in ran.output
