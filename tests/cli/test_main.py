"""The `tidegate` command as a whole."""

from __future__ import annotations

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tests.cli.commands import leaves
from tidegate.cli import main as cli
from tidegate.contracts.errors import BufferFull, ConfigurationError, EngineError, Problem, UserError

pytestmark = pytest.mark.fast


_HELP = """
import sys
from tidegate.cli.main import main
main(["--help"], standalone_mode=False)
print("loaded:", [name for name in ("kafka", "pyspark", "deltalake", "pyarrow") if name in sys.modules])
"""


def test_help_lists_every_command_without_importing_one() -> None:
    told = subprocess.run([sys.executable, "-c", _HELP], capture_output=True, text=True, check=True).stdout
    assert all(name in told for name in cli.COMMANDS)
    assert "loaded: []" in told


@pytest.mark.parametrize(("path", "command"), leaves(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_has_json_and_help_with_an_example(path: str, command: click.Command) -> None:
    assert any("--json" in parameter.opts for parameter in command.params)
    assert f"tidegate {path}" in (command.help or "")


@pytest.mark.parametrize(
    ("error", "code"),
    [(UserError("wrong"), 2), (ConfigurationError([]), 2), (EngineError("broken"), 1), (BufferFull("full"), 1)],
)
def test_user_errors_give_exit_code_2_and_others_1(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    assert _failing(monkeypatch, error, []).exit_code == code


def test_an_error_is_reported_as_problem_value_and_remedy_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _failing(monkeypatch, UserError("the port is taken", value=9092, remedy="choose another"), [])
    assert result.stderr == "the port is taken\n  value:  9092\n  remedy: choose another\n"
    assert result.stdout == ""


def test_with_json_an_error_is_json_on_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _failing(monkeypatch, EngineError("broken", value=OSError("disk"), remedy="mend it"), ["--json"])
    assert json.loads(result.stderr) == {"error": {"problem": "broken", "value": "disk", "remedy": "mend it"}}
    assert result.stdout == ""


def test_with_json_every_problem_of_a_configuration_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(where="a.b", value=3, cause="too small", remedy="write 4")
    result = _failing(monkeypatch, ConfigurationError([problem]), ["--json"])
    told = json.loads(result.stderr)["error"]["problems"]
    assert told == [{"where": "a.b", "value": "3", "cause": "too small", "remedy": "write 4"}]


@pytest.mark.parametrize("arguments", [["nonsense"], ["topics", "create"], ["topics", "list", "-o", "x"], ["--odd"]])
def test_wrong_usage_gives_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(cli.main, arguments).exit_code == 2


def test_a_bug_is_not_reported_as_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(_failing(monkeypatch, ZeroDivisionError("bug"), []).exception, ZeroDivisionError)


def _failing(monkeypatch: pytest.MonkeyPatch, error: Exception, arguments: list[str]) -> click.testing.Result:
    @click.command()
    @click.option("--json", is_flag=True)
    def command(json: bool) -> None:
        raise error

    monkeypatch.setattr("tidegate.cli.develop.kafka.command", command)
    return CliRunner().invoke(cli.main, ["kafka", *arguments])
