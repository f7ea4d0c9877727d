"""Checks of a block of code without running it: each returns None, or the problem."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import click
import yaml

from tests.docs.pages import ROOT
from tidegate.cli.main import main
from tidegate.contracts.errors import TidegateError
from tidegate.runtime.configuration.application import Application, application_of

OTHERS = {
    "cat",
    "cd",
    "curl",
    "do",
    "docker",
    "docker-compose",
    "done",
    "for",
    "java",
    "keytool",
    "kill",
    "kubectl",
    "mkdir",
    "openssl",
    "pip",
    "source",
    "wait",
}
"""Programs and words of the shell, of which nothing is checked."""

OURS = ("tidegate", ".venv/bin/tidegate")

LEAST = {
    "application": "docs",
    "lake": "lake",
    "keep_output": "forever",
    "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
    "operators": {},
}
HEREDOC = re.compile(r"<<'?(\w+)'?\n.*?^\1$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"(^|\s)# ?[^\"'\n]*$", re.MULTILINE)
REDIRECTION = re.compile(r"\d?>>?\s*\S+")
SUBSTITUTION = re.compile(r"^\w+=\$\(.*\)$", re.MULTILINE)
ASSIGNMENT = re.compile(r"[A-Z_]+=")


def yaml_problem(text: str) -> str | None:
    """A whole file, some of its options, or some of its operators."""
    raw = yaml.safe_load(text)
    if not isinstance(raw, dict):
        return "not a mapping"
    if not set(raw) <= set(Application.model_fields):
        raw = {"operators": raw}
    try:
        application_of({**LEAST, **raw})
    except TidegateError as error:
        return str(error)
    return None


def shell_problem(text: str) -> str | None:
    """Every command is one of ours, with options that it has, a target of the Makefile, or known to be another's."""
    return next((problem for words in commands(text) if (problem := _command_problem(words))), None)


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a block, each as its words, without redirections, assignments and what they read."""
    plain = COMMENT.sub("", SUBSTITUTION.sub("", REDIRECTION.sub("", HEREDOC.sub("", text)))).replace("\\\n", " ")
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=";|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    words: list[str] = []
    for word in [*lexer, "\n"]:
        if set(word) <= set(";|&\n"):
            if words:
                yield words
            words = []
        elif words or not ASSIGNMENT.match(word):
            words.append(word)


def _command_problem(words: list[str]) -> str | None:
    name, *arguments = words
    ours = [at for at, word in enumerate(words) if word in OURS and not "".join(words[:at][-1:]).startswith("-")]
    if ours:
        return _tidegate_problem(words[ours[0] + 1 :])
    if name == "make":
        made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return next((f"make has no target {target}" for target in arguments if target not in made), None)
    return None if name in OTHERS or name.startswith("$") else f"{name} is not known to be a command"


def _tidegate_problem(arguments: list[str]) -> str | None:
    command: click.Command | None = main
    context = click.Context(main, info_name="tidegate")
    try:
        while isinstance(command, click.Group):
            name = arguments.pop(0)
            command = command.get_command(context, name)
        if command is None:
            return f"tidegate has no command {name}"
        command.make_context(command.name, arguments)
    except click.exceptions.Exit:
        return None
    except (click.ClickException, IndexError) as error:
        return f"tidegate: {error.format_message() if isinstance(error, click.ClickException) else 'a group alone'}"
    return None


def python_problem(text: str) -> str | None:
    """What it imports from this repository is there, and is called with arguments that it takes."""
    tree = ast.parse(text)
    names: dict[str, Any] = {"tidegate": importlib.import_module("tidegate")}
    importlib.import_module("tidegate.spark")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("tidegate", "services"):
            module = importlib.import_module(node.module or "")
            names |= {each.asname or each.name: getattr(module, each.name) for each in node.names}
    return next((problem for node in ast.walk(tree) if (problem := _call_problem(node, names))), None)


def _call_problem(node: ast.AST, names: dict[str, Any]) -> str | None:
    called = _value_of(node.func, names) if isinstance(node, ast.Call) else None
    if called is None:
        return None
    assert isinstance(node, ast.Call)
    try:
        inspect.signature(called).bind(*node.args, **{each.arg: each.value for each in node.keywords if each.arg})
    except TypeError as error:
        return f"{ast.unparse(node.func)}: {error}"
    return None


def _value_of(node: ast.expr, names: dict[str, Any]) -> Any:
    """What the name stands for; None: not ours."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value_of(node.value, names)
        return None if owner is None else getattr(owner, node.attr)
    return None


def console_problem(text: str) -> str | None:
    """Commands, or what one of ours says: about what it is, and words that stand in the code."""
    if shell_problem(text) is None:
        return None
    said = text.splitlines()[0].partition(": ")[2]
    written = any(said in path.read_text() for path in (ROOT / "libs").rglob("*.py"))
    return None if said and written else f"nothing says {said!r}"


def others_yaml_problem(text: str) -> str | None:
    """YAML for another program."""
    return None if isinstance(yaml.safe_load(text), dict) else "not a mapping"


def json_problem(text: str) -> str | None:
    """JSON, or a document on each line."""
    try:
        for line in text.splitlines():
            json.loads(line)
    except json.JSONDecodeError:
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            return str(error)
    return None


CHECKS: dict[str, Callable[[str], str | None]] = {
    "yaml": yaml_problem,
    "yml": others_yaml_problem,
    "sh": shell_problem,
    "": shell_problem,
    "console": console_problem,
    "python": python_problem,
    "json": json_problem,
}
"""By language; a block without one is for the shell."""
