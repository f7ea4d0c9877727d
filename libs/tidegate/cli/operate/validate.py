"""`tidegate validate`: report all problems of a configuration file at once."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tidegate.application.target import load
from tidegate.contracts.errors import ConfigurationError, Problem, UserError
from tidegate.operators.registry import config_type, kinds, operator_for
from tidegate.runtime.configuration.application import Application


@click.command("validate")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of the file and of each operator instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(file: Path | None, schema: bool, as_json: bool) -> None:
    """Check FILE and report all problems at once, each with value, cause and remedy. Exit code 2 if there is any.

    Example: tidegate validate flights.yaml
    """
    if schema:
        click.echo(json.dumps(json_schema(), indent=2))
        return
    if file is None:
        raise UserError("FILE is missing", remedy="run tidegate validate FILE")
    application = load(file)
    _check_operators(application)
    names = list(application.operators)
    summary = {"file": str(file), "valid": True, "operators": names}
    click.echo(json.dumps(summary) if as_json else f"{file}: valid ({len(names)} operators: {', '.join(names)})")


def json_schema() -> dict[str, object]:
    """Return the JSON Schema of the configuration file, with the schema of every kind of operator under `operators`."""
    schema = Application.model_json_schema()
    operators = [config_type(kind).model_json_schema() for kind in kinds()]
    schema["properties"]["operators"]["additionalProperties"] = {"oneOf": operators}
    return schema


def _check_operators(application: Application) -> None:
    problems = []
    for name, config in application.operators.items():
        try:
            operator_for(config)
        except UserError as error:
            where = f"operators.{name}"
            problems.append(Problem(where=where, value=error.value, cause=error.problem, remedy=error.remedy))
    if problems:
        raise ConfigurationError(problems)
