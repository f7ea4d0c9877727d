"""What every step of a program is: a frozen value, from which methods make others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeAlias, TypeVar

from tidegate.application.definitions.chains import Definitions
from tidegate.application.definitions.definition import Definition
from tidegate.application.options import Duration, option_of
from tidegate.application.places import caller
from tidegate.expressions.column import Column

if TYPE_CHECKING:
    from tidegate.application.frames.query import Query
    from tidegate.application.streams.stream import Stream, WindowedStream

Results = TypeVar("Results", bound="Stream | WindowedStream")

FIELDS = "write {NAME: TYPE}, or pass a dataclass"


@dataclass(frozen=True)
class Value:
    """A step of a program: what is defined so far. Two values are equal if they define the same."""

    definition: Definition
    definitions: Definitions = field(repr=False, compare=False)

    others: ClassVar[Mapping[str, str]] = {}
    """What to write instead of a method that this type lacks, by the method's name."""

    if not TYPE_CHECKING:  # a type checker reports the missing method itself

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with what to write instead if that is known."""
            remedy = self.others.get(name) or _nearest(name, dir(type(self)))
            text = f"{type(self).__name__} has no attribute {name!r}" + (f"; {remedy}" if remedy else "")
            raise AttributeError(text, name=name, obj=self)

    def _stateless(self, verb: str, options: dict[str, Any]) -> Self:
        """Return what is defined so far with a further step without state."""
        chain = self.definition.as_pipeline()
        return replace(self, definition=chain.after(verb, caller(), options, (), len(chain.steps)))


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """Return what to write instead of a name that is nearly one of those known; None if it is like none of them."""
    found = get_close_matches(name, [each for each in known if not each.startswith("_")], 1)
    return f"write .{found[0]}" if found else None


Condition: TypeAlias = "str | Column"
"""A condition in SQL: `count < 3`, or with columns: `tg.col("count") < 3`."""
_SQL = 'write SQL as text, such as "count < 3", or columns, such as tg.col("count") < 3'


@dataclass(frozen=True)
class Startable(Value):
    """What a program has defined; on a streaming DataFrame it can be started by itself."""

    def start(
        self,
        name: str,
        *,
        lake: str | Path,
        partitions: int = 4,
        keep_output: Duration = "forever",
        state: str | Path = "state",
        checkpoint: str | Path | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> Query:
        """Start the operator on its streaming DataFrame, and return a handle. Its log is the Delta table <lake>/<name>.

        The options are those of `tidegate.spark.start`. A query of that name and lake which this process runs is
        stopped first, so a notebook's cell can be run again. Raise ConfigurationError with all problems, each with its
        file and line; UserError if the stream begins with a topic.
        """
        options = {
            "lake": lake,
            "partitions": partitions,
            "keep_output": keep_output,
            "state": state,
            "checkpoint": checkpoint,
            "trigger": trigger,
        }
        query: Query = self.definitions.start(self.definition.as_operator(), name, options)
        return query


def sql_option(condition: object) -> Any:
    """Return the condition as an option, in SQL; Unusable if it is none."""
    return option_of(condition, (str, Column), str, _SQL)
