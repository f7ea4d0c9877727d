"""The command `tidegate explain`, with a topic that the test stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.console.logs import PIPELINE, SUPPRESSION, Written, application, record
from tidegate.cli.inspect import explain
from tidegate.cli.main import main
from tidegate.contracts.errors import UserError
from tidegate.runtime.doctor.explanation.finding import key_of

pytestmark = pytest.mark.fast


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """a at 0 s and b at 1 s, which c at 12 s releases."""
    log = Written(application(tmp_path, limited=SUPPRESSION), "limited")
    log.batch([record(b"a", b"1", 0, 0), record(b"b", b"\x00", 1, 1)])
    log.batch([record(b"c", b"3", 12, 2)])
    monkeypatch.setattr(explain, "load", lambda _file: log.application)
    monkeypatch.setattr(explain, "from_topic", lambda *_: log.read)
    return log


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", "app.yaml", "limited", *arguments])


def test_the_command_says_the_cause_the_record_and_that_the_result_is_the_same(log: Written) -> None:
    ran = run("--key", "a")
    lines = dict(line.strip().split(None, 1) for line in ran.stdout.splitlines() if line.startswith(("cause", "re")))
    assert ran.exit_code == 0
    assert lines["cause"].startswith("time: stream time has passed")
    assert lines["record"] == "offset 0 of in, partition 0, read in batch 1"
    assert lines["recomputed"] == "the same, byte for byte"


def test_with_json_it_is_one_object_for_each_emission(log: Written) -> None:
    [line] = run("--key", "a", "--json").stdout.splitlines()
    said = json.loads(line)
    assert (said["batch"], said["row"]["value"], said["source_offset"], said["verdict"]) == (2, "1", 0, "equal")


def test_a_key_that_was_not_emitted_as_of_the_batch_is_said(log: Written) -> None:
    ran = run("--key", "a", "--batch", "1")
    assert ran.exit_code == 2 and "the log has no emission of that key" in ran.stderr


def test_a_log_that_its_input_does_not_lead_to_fails_the_command(log: Written) -> None:
    log.records[0][0] = record(b"a", b"1", 0, 0)
    log.records[0][2] = record(b"c", b"3", 11, 2)
    ran = run("--key", "b")
    assert ran.exit_code == 0, "b is due at 11 s, too"
    log.records[0][2] = record(b"c", b"3", 10, 2)
    ran = run("--key", "b")
    assert ran.exit_code == 1 and "DIFFERENT" in ran.stdout


def test_a_key_is_written_as_pages_show_it(tmp_path: Path) -> None:
    given = application(tmp_path, text=SUPPRESSION, numbers=PIPELINE | {"input": {**PIPELINE["input"], "key": "int32"}})
    text, numbers = given.operators["text"], given.operators["numbers"]
    assert [key_of(each, text) for each in ("AA", "0x00ff")] == [b"AA", b"\x00\xff"]
    assert key_of("-2", numbers) == b"\xff\xff\xff\xfe"
    for wrong, config in (("0xzz", text), ("AA", numbers), (str(2**40), numbers)):
        with pytest.raises(UserError, match="no such key"):
            key_of(wrong, config)
