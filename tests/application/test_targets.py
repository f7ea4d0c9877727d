"""Every command that takes a YAML file takes a program and its application, too: `app.py:app`."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tidegate.application.target import load
from tidegate.cli.main import COMMANDS, main
from tidegate.contracts.errors import ConfigurationError, UserError

pytestmark = pytest.mark.fast

PROGRAM = """
import tidegate as tg
app = tg.Application("flights", kafka="127.0.0.1:9092", lake="lake", keep_output="30d")
app.stream("departures", name="updates").suppress(tg.time_limit("30s")).to("updates")
other = 5
app.run()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program in a folder of its own; what it does to this process's paths is undone."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    file = tmp_path / "app.py"
    file.write_text(PROGRAM)
    return file


def test_a_program_is_loaded_and_does_not_run(program: Path) -> None:
    found = load(Path(f"{program}:app"))
    assert list(found.operators) == ["updates"]
    assert found.lake.folder == program.parent / "lake"


def test_a_yaml_file_is_loaded_as_before(program: Path) -> None:
    from tests.application.programs import application

    file = program.parent / "flights.yaml"
    file.write_text(application().to_yaml())
    assert load(file).application == "flights"


def test_a_program_imports_modules_beside_it(program: Path) -> None:
    (program.parent / "gates.py").write_text("def worst(windows): return windows\n")
    lines = PROGRAM.replace("other = 5", "import gates\napp.stream('gates', name='worst')" + WORST)
    program.write_text(lines)
    found = load(Path(f"{program}:app"))
    assert found.operators["worst"].functions() == ("gates:worst",)
    assert str(program.parent) in sys.path


WORST = ".window(__import__('tidegate').unlimited()).aggregate(gates.worst).keep()"


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("none.py:app", "there is no such program", "app.py:app"),
        ("app.py", "the target names no application", "app.py:app"),
        ("app.py:", "the target names no application", "app.py:app"),
        ("app.py:application", "the program has no application application", "app.py:app"),
        ("app.py:other", "the program has no application other", "app.py:app"),
    ],
)
def test_an_invalid_target_is_reported_with_the_remedy(program: Path, name: str, problem: str, remedy: str) -> None:
    with pytest.raises(UserError) as caught:
        load(program.parent / name)
    assert caught.value.problem == problem
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("name", ["app:app", "flights.app:app", "flights:app"])
def test_a_module_of_the_working_directory_is_a_program(
    program: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = program.parent / "flights"
    package.mkdir()
    (package / "gates.py").touch()
    for file in ("app.py", "__init__.py"):
        (package / file).write_text("import flights.gates\n" * (file == "app.py") + PROGRAM)
    monkeypatch.chdir(program.parent)
    assert list(load(Path(name)).operators) == ["updates"]


def test_a_file_is_no_module(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(program.parent)
    for name in ("flights.yaml:app", "flights:yaml"):
        (program.parent / "flights.yaml").write_text("application: flights")
        with pytest.raises(UserError):
            load(Path(name))
    (program.parent / "flights:app").write_text("application: flights")
    with pytest.raises(ConfigurationError):
        load(Path("flights:app"))


@pytest.mark.parametrize("name", ["ap:app", "flights.ap:app", "none.yaml"])
def test_a_target_that_is_not_there_names_what_a_target_is(name: str) -> None:
    with pytest.raises(UserError, match=r"app\.py:app"):
        load(Path(name))


@pytest.mark.parametrize("line", ["1 / 0", "import nothing_of_that_name", "raise SystemExit(3)", "def"])
def test_a_program_that_fails_is_named_with_its_line(program: Path, line: str) -> None:
    program.write_text(f"import sys\n{line}\n")
    with pytest.raises(UserError, match="the program failed") as caught:
        load(Path(f"{program}:app"))
    assert caught.value.value == f"{program}:2"


@pytest.mark.parametrize("module", ["import json\n\njson.loads('{')", "\n\n\ndef"])
def test_an_error_of_an_imported_module_is_named_with_the_line_of_the_import(program: Path, module: str) -> None:
    (program.parent / f"broken_{len(module)}.py").write_text(module)
    program.write_text(f"import sys\nimport broken_{len(module)}\n")
    with pytest.raises(UserError, match="the program failed") as caught:
        load(Path(f"{program}:app"))
    assert caught.value.value == f"{program}:2"


def test_an_error_that_has_a_line_number_of_its_own_is_named_with_the_line_of_the_program(program: Path) -> None:
    program.write_text("import json\njson.loads('\\n' * 9 + '{')\n")
    with pytest.raises(UserError, match="JSONDecodeError") as caught:
        load(Path(f"{program}:app"))
    assert caught.value.value == f"{program}:2"


def test_a_program_that_changes_the_working_directory_keeps_its_folder_and_lines(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(program.parent)
    program.write_text("import os\nos.chdir('/')\n" + PROGRAM)
    assert load(Path("app.py:app")).lake.folder == program.parent / "lake"
    monkeypatch.chdir(program.parent)
    program.write_text("import os\nos.chdir('/')\n" + PROGRAM.replace("30s", "thirty"))
    with pytest.raises(ConfigurationError, match=r"app\.py:6 \.suppress"):
        load(Path("app.py:app"))


def test_what_a_program_prints_is_not_part_of_the_result_of_a_command(program: Path) -> None:
    program.write_text(PROGRAM + "print('ready')\n")
    ran = CliRunner().invoke(main, ["validate", f"{program}:app", "--json"])
    assert json.loads(ran.stdout)["operators"] == ["updates"]
    assert ran.stderr == "ready\n"


def test_a_program_does_not_see_the_arguments_of_the_command(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tidegate", "validate", "app.py:app"])
    program.write_text("import argparse\nargparse.ArgumentParser().parse_args()\n" + PROGRAM)
    assert list(load(Path(f"{program}:app")).operators) == ["updates"]
    assert sys.argv == ["tidegate", "validate", "app.py:app"]


def test_problems_of_a_program_name_its_lines(program: Path) -> None:
    program.write_text(PROGRAM.replace("30s", "thirty"))
    with pytest.raises(ConfigurationError) as caught:
        load(Path(f"{program}:app"))
    [problem] = caught.value.problems
    assert problem.where == "app.py:4 .suppress() of updates, until.time_limit"


def test_a_command_works_on_a_program(program: Path) -> None:
    ran = CliRunner().invoke(main, ["validate", f"{program}:app", "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["operators"] == ["updates"]


def commands_with_a_file() -> list[click.Command]:
    groups = [main.get_command(click.Context(main), name) for name in COMMANDS]
    found = [each for group in groups for each in (getattr(group, "commands", {}).values() or [group])]
    taken = [each for each in found if each is not None and any(one.name == "file" for one in each.params)]
    return [each for each in taken if not any(isinstance(one.type, click.File) for one in each.params)]


def test_every_command_loads_its_file_in_one_way() -> None:
    commands = commands_with_a_file()
    assert len(commands) > 12
    loaders = {inspect.getmodule(inspect.unwrap(each.callback)).load for each in commands if each.callback}  # type: ignore[union-attr]
    assert loaders == {load}


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ('tg.hopping("1h", every="1m")', "write hopping(length, *, advance, grace)"),
        ("tg.max_keys(3)", "write max_keys(count, *, when_full)"),
        ('app.stream("a", name="b").select("x")', "write Source.select(**fields)"),
        ("tg.Application()", "write Application(name, *, kafka, lake, "),
        ("len()", "run `python "),
    ],
)
def test_a_call_with_arguments_that_a_function_does_not_take_names_those_that_it_takes(
    program: Path, line: str, remedy: str
) -> None:
    program.write_text(PROGRAM.replace("other = 5", line))
    with pytest.raises(UserError) as caught:
        load(Path(f"{program}:app"))
    assert str(caught.value.remedy).startswith(remedy)
    assert str(caught.value.value).endswith(":5")
