"""The actions of the console, each of which is a command of `tidegate`, and the arguments that a form gives it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from tidegate.contracts.errors import UserError
from tidegate.runtime.repair.redrive import DeadLetterKind

Form = Mapping[str, str]

LONGEST_ARGUMENT = 1_000
"""Most characters of an argument."""

_RANGES = re.compile(r"\d{1,9}:\d{1,19}-\d{1,19}(\s+\d{1,9}:\d{1,19}-\d{1,19})*", re.ASCII)
_DRY_RUN = "dry_run"


@dataclass(frozen=True, kw_only=True)
class Action:
    """An action on an operator.

    `says`: what it does. `arguments`: the command's arguments after the name of the file, for an operator and a form.
    `fields`: what the form asks for, by name. `preview`: the words on the button that only shows what would happen, and
    the command for that, which takes the same arguments; None if there is none.
    """

    says: str
    arguments: Callable[[str, Form], list[str]]
    fields: Mapping[str, str]
    preview: tuple[str, str] | None = None


def _of_operator(name: str, _form: Form) -> list[str]:
    return ["--operator", name]


def _skip(name: str, form: Form) -> list[str]:
    ranges = form.get("ranges", "").strip()
    if _RANGES.fullmatch(ranges) is None:
        remedy = "write PARTITION:FROM-TO, such as 0:1200-1900; TO is the first offset to read next"
        raise UserError("these are no ranges of offsets", value=ranges[:100], remedy=remedy)
    return [name, *ranges.split()]


def _redrive(name: str, form: Form) -> list[str]:
    kind, cause = form.get("kind", ""), form.get("cause", "")
    if kind and kind not in get_args(DeadLetterKind):
        remedy = f"one of: {', '.join(get_args(DeadLetterKind))}"
        raise UserError("there is no such kind of records", value=kind[:100], remedy=remedy)
    if len(cause) > LONGEST_ARGUMENT or not cause.isprintable():
        raise UserError("this is no cause", value=cause[:100], remedy="copy a cause from the page of late rows")
    return [name, *([f"--kind={kind}"] if kind else []), *([f"--cause={cause}"] if cause else [])]


ACTIONS: dict[str, Action] = {
    "apply": Action(
        says="Apply the changed file to the operator, between two batches. It keeps its state.",
        arguments=_of_operator,
        fields={},
        preview=("Plan", "plan"),
    ),
    "flush": Action(
        says="Emit everything that the operator holds, now, with the cause flush.",
        arguments=lambda name, _form: [name],
        fields={},
    ),
    "compact": Action(
        says="Write a snapshot of each partition's state, and merge small files of the log.",
        arguments=_of_operator,
        fields={},
    ),
    "skip": Action(
        says="Continue after records that the input topic deleted before the operator had read them. Nothing brings "
        "them back. Stop the operator first.",
        arguments=_skip,
        fields={"ranges": "Offsets, as PARTITION:FROM-TO; TO is the first offset to read next"},
    ),
    "redrive": Action(
        says="Send late and rejected records back to the input topic. Fix the cause first.",
        arguments=_redrive,
        fields={"kind": "Only this kind: late or rejected; empty: both", "cause": "Only this cause; empty: all"},
        preview=("Dry run", _DRY_RUN),
    ),
}
"""The actions by name, which is that of the command."""


def action_of(what: str) -> Action:
    """Return the action. Raise UserError if there is none of that name."""
    if what not in ACTIONS:
        raise UserError("there is no such action", value=what[:100], remedy=f"actions: {', '.join(ACTIONS)}")
    return ACTIONS[what]


def arguments_of(what: str, file: str, name: str, form: Form, *, is_preview: bool = False) -> list[str]:
    """Return the arguments of `tidegate` for the action on the operator. Raise UserError if the form is wrong."""
    action = action_of(what)
    arguments = action.arguments(name, form)
    if not is_preview:
        return [what, file, *arguments]
    if action.preview is None:
        raise UserError("the action has no preview", value=what, remedy="look at the operator's page")
    command = action.preview[1]
    return [what, file, *arguments, "--dry-run"] if command == _DRY_RUN else [command, file, *arguments]


def as_typed(arguments: list[str]) -> str:
    """Return the command line that does the same in a terminal."""
    return shlex.join(["tidegate", *arguments])
