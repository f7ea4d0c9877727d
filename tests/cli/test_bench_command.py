"""`tidegate bench`: its results, its limits and its exit code, without measuring."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import benchmarks.__main__ as benchmarks
from tidegate.cli.main import main

pytestmark = pytest.mark.fast

SAYS = "import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(1)"


def measured(monkeypatch: pytest.MonkeyPatch, ratio: float, *options: str) -> int:
    """The exit code when the service is `ratio` times as fast as its peer."""
    monkeypatch.setattr(benchmarks, "_measured", lambda name, say: {"ratio": ratio})
    monkeypatch.setattr(sys, "argv", ["benchmarks", "windows", *options])
    return benchmarks.main()


def test_a_result_outside_its_limit_is_marked_and_gives_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(monkeypatch, 10.0) == 0
    assert "MISSED" not in capsys.readouterr().out
    assert measured(monkeypatch, 5.9) == 1
    assert "bound >= 6.0   MISSED" in capsys.readouterr().out


def test_with_json_results_and_limits_are_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(monkeypatch, 5.9, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    figures = {"windows": {"ratio": 5.9}}
    assert told == {"figures": figures, "bounds": {"windows": {"ratio": ">= 6.0"}}, "held": False}


def test_the_command_runs_the_checkout_s_benchmarks_and_returns_their_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text(SAYS)
    monkeypatch.setattr("tidegate.cli.develop.bench.project_root", lambda: tmp_path)
    assert CliRunner().invoke(main, ["bench", "kernel", "--json"]).exit_code == 1
    assert json.loads(capfd.readouterr().out) == ["kernel", "--json"]


def test_without_a_checkout_the_message_says_where_to_run_benchmarks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tidegate.cli.develop.bench.project_root", lambda: tmp_path)
    refused = CliRunner().invoke(main, ["bench", "kernel"])
    assert refused.exit_code == 2 and "from a source checkout" in refused.stderr
