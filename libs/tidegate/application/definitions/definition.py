"""What a program has defined: the options of each operator, and the places of the calls that set them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tidegate.application.options import Fault, Unusable, as_yaml, faults_in, functions_in
from tidegate.application.places import Place
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.topics import flatten_topics, with_one_input
from tidegate.contracts.errors import InvalidValue, Problem
from tidegate.contracts.naming import NAME_FORM
from tidegate.contracts.values import Values, schema_of

PIPELINE = "pipeline"
INPUT = -1
"""The place of the input among the steps."""
OF_THE_STREAM = frozenset(
    {
        "input",
        "further_inputs",
        "key_format",
        "value_format",
        "timestamp",
        "windows",
        "max_ahead",
        "dead_letters",
        "rewind_window",
        "idle_after",
    }
)
"""Options that say how a stream is read: of a pipeline, all steps share them."""

_OF_ALL_STEPS = OF_THE_STREAM | {"headers", "output", "output_windows", "output_partitions", "time"}
_STEP = re.compile(r"^steps\.\d+")


class Call(NamedTuple):
    """A call of the program: its place, the method, and the options that it set."""

    place: Place
    verb: str
    options: frozenset[str]

    def __str__(self) -> str:
        return f"{self.place} {self.verb}()"


@dataclass(frozen=True)
class Definition:
    """A named operator, or a stream without an operator yet: options as in YAML. Equal if the options are equal.

    `types`: those of keys and values, which only pipelines have as options. `label`: the name of the operator's step if
    it becomes one of a pipeline; `emits`: fields of its results, which only steps have as an option. `links`: per step
    the places of the steps that it reads, INPUT for the input; none if a file defines the pipeline, whose steps say it.
    `ends`: the steps that the next step reads; None: the newest one. `trusted`: modules of functions that the program
    has named. `problems`: mistakes in the calls themselves. `unusable`: the options that are left out because of them.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    types: Mapping[str, Any] = field(default_factory=dict, hash=False)
    label: str = field(default="", compare=False)
    emits: Any = field(default=None, compare=False)
    links: tuple[tuple[int, ...], ...] = ()
    ends: tuple[int, ...] | None = None
    trusted: frozenset[str] = frozenset()
    calls: tuple[Call, ...] = field(default=(), compare=False)
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    unusable: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def begun(cls, name: Any, verb: str, place: Place, options: Mapping[str, Any]) -> Definition:
        """Return the definition that a program begins with a call. An unusable name becomes one of its problems."""
        if isinstance(name, str):
            return cls(name).after(verb, place, options)
        fault = (
            name.fault
            if isinstance(name, Unusable)
            else Fault(name, "the name is not text", f"write name=..., with {NAME_FORM}")
        )
        shown = fault.value if isinstance(fault.value, str) else repr(fault.value)
        return cls(shown, unusable=frozenset({""})).after(verb, place, options, [fault])

    def after(
        self, verb: str, place: Place, options: Mapping[str, Any], faults: Iterable[Fault] = (), step: int | None = None
    ) -> Definition:
        """Return the definition with further options, which a call has set; those that are None are left out.

        `step`: the step of a pipeline to which they belong, by its place.
        """
        at = "" if step is None else f"steps.{step}."
        given = {name: value for name, value in options.items() if value is not None}
        found = [("", fault) for fault in faults]
        found += [(name, fault) for name, value in given.items() for fault in faults_in(value)]
        call = Call(place, verb, frozenset({f"{at}{name}" for name in given} | ({at[:-1]} if at else set())))
        functions = [function for value in given.values() for function in functions_in(value)]
        begins = step is not None and step == len(self.steps)
        return replace(
            self,
            links=(*self.links, self.reads_next) if begins else self.links,
            ends=None if begins else self.ends,
            options={**self.options, **as_yaml(given)} if step is None else self._with_step(step, as_yaml(given)),
            trusted=self.trusted | {function.module for function in functions},
            calls=(*self.calls, call),
            problems=(
                *self.problems,
                *(Problem(where=self._where(call, name), **vars(fault)) for name, fault in found),
            ),
            unusable=self.unusable | {f"{at}{name}" for name, _ in found if name},
        )

    def _with_step(self, at: int, options: Mapping[str, Any]) -> dict[str, Any]:
        steps = [*self.options["steps"]]
        return {**self.options, "steps": [*steps[:at], {**(steps[at] if at < len(steps) else {}), **options}]}

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """Return the steps of a pipeline; of anything else none."""
        found: Sequence[Mapping[str, Any]] = self.options.get("steps", ()) if self.is_pipeline else ()
        return found

    @property
    def inputs(self) -> list[str]:
        """Return the topics that it reads, as far as they can be used."""
        flat = flatten_topics(self.options)
        return [str(topic) for topic in (flat.get("input"), *flat.get("further_inputs", ())) if topic is not None]

    @property
    def topics(self) -> list[str]:
        """Return the topics that it writes."""
        topics = [*(step.get("to") for step in self.steps), self.options.get("output")]
        return [str(topic) for topic in topics if topic is not None]

    @property
    def reads_next(self) -> tuple[int, ...]:
        """Return the places of the steps that a further step would read."""
        return (len(self.steps) - 1,) if self.ends is None else self.ends

    def calls_of(self, step: int) -> list[tuple[Place, str]]:
        """Return the places and the methods of the calls that have set options of a step."""
        own = f"steps.{step}"
        return [
            (call.place, call.verb)
            for call in self.calls
            if any(name == own or name.startswith(f"{own}.") for name in call.options)
        ]

    @property
    def is_pipeline(self) -> bool:
        """Return whether it has several steps, or one with a name."""
        return self.options.get("kind") == PIPELINE

    def grown(
        self, verb: str, place: Place, options: Mapping[str, Any], faults: Iterable[Fault], name: Any
    ) -> Definition:
        """Return the definition with a further operator: the only one of a stream, or a step of a pipeline.

        `name`: of the step; None: after its verb, and the operator need not be a step.
        """
        label = _label(verb, options) if name is None else name
        if name is None and "kind" not in self.options:
            return self._alone(verb, place, options, faults, label)
        chain = self.as_pipeline()
        return chain.after(verb, place, {"name": label, **options}, faults, len(chain.steps))

    def completed(
        self, verb: str, place: Place, options: Mapping[str, Any], faults: Iterable[Fault], name: Any
    ) -> Definition:
        """Return the definition whose newest operator has further options, and the name if one is given."""
        label = verb.lstrip(".") if name is None else name
        if not self.is_pipeline and name is None:
            return self._alone(verb, place, options, faults, label)
        chain = self.as_pipeline()
        return chain.after(verb, place, {"name": label, **options}, faults, len(chain.steps) - 1)

    def amended(self, verb: str, place: Place, options: Mapping[str, Any], faults: Iterable[Fault]) -> Definition:
        """Return the definition whose newest operator has further options, and the name that it had."""
        return self.after(verb, place, options, faults, len(self.steps) - 1 if self.is_pipeline else None)

    def unknown_fields(self, config: OperatorConfig) -> Iterator[tuple[str, InvalidValue]]:
        """Yield what is wrong with options that name fields of described values, with the options.

        Nothing of a pipeline, whose configuration has the types of its values and is checked with them.
        """
        if self.is_pipeline or not isinstance(described := self.types.get("value"), Mapping) or "json" not in described:
            return
        yield from config.unknown_fields(Values.of_fields(schema_of(described["json"])))

    def wrong_schema(self) -> Iterator[Problem]:
        """Yield what is wrong with the schema of an operator's values; that of a pipeline's has been checked."""
        from tidegate.operators.pipeline.rules.value_types import problem_of_registered

        described = None if self.is_pipeline else self.types.get("value")
        if not isinstance(described, Mapping) or "json" in described:
            return
        if (problem := problem_of_registered(described)) is not None:
            yield problem.at(self._where(self.calls[0], "value"), described)

    def newest_option(self, name: str) -> Any:
        """Return an option of the newest operator or stateless step; None if it has none, and behind a merge."""
        return None if self.ends is not None else (self.steps[-1] if self.steps else self.options).get(name)

    def _alone(
        self, verb: str, place: Place, options: Mapping[str, Any], faults: Iterable[Fault], label: str
    ) -> Definition:
        """Return the definition of an operator that is no step yet; `emits` is an option of steps alone."""
        emits = options.get("emits")
        own = {name: value for name, value in options.items() if name != "emits" or isinstance(value, Unusable)}
        return replace(self.after(verb, place, own, faults), label=label, emits=emits)

    def as_pipeline(self) -> Definition:
        """Return the definition as a pipeline; an operator becomes its first step."""
        if self.is_pipeline:
            return self
        whole = {name: value for name, value in self.options.items() if name in _OF_ALL_STEPS}
        own = {name: value for name, value in self.options.items() if name not in _OF_ALL_STEPS}
        emits = {} if self.emits is None else {"emits": as_yaml(self.emits)}
        steps = [{"name": self.label, **own, **emits}] if own else []
        return replace(
            self,
            options={"kind": PIPELINE, **whole, **self.types, "steps": steps},
            links=((INPUT,),) if own else (),
            calls=tuple(call._replace(options=frozenset(map(_of_first_step, call.options))) for call in self.calls),
            unusable=frozenset(map(_of_first_step, self.unusable)),
        )

    def as_operator(self) -> Definition:
        """Return the definition of an operator; a stream without one is a pipeline, which passes its records on."""
        return self if "kind" in self.options else self.as_pipeline()

    @property
    def run(self) -> object:
        """Return the run of the program, or of the notebook's cell, that has made the newest call."""
        return self.calls[-1].place.run if self.calls else None

    def grows_from(self, stream: Definition | None) -> bool:
        """Return whether this is an operator of the stream."""
        if stream is None or self.name != stream.name:
            return False
        return self.calls[: len(stream.calls)] == stream.calls

    def as_yaml(self) -> dict[str, Any]:
        """Return the operator as a YAML file has it: its kind first."""
        options = with_one_input(self.options)
        if self.links:
            return {**options, "steps": with_sources(self.steps, self.links)}
        return {"kind": options["kind"], **options} if "kind" in options else options

    def placed(self, problem: Problem) -> Problem | None:
        """Return a problem of this operator's configuration with the file and line of the call that caused it.

        None if it only follows from a value that could not be used, which is a problem of its own.
        """
        if not self.calls:
            return problem
        option = problem.where.removeprefix(f"operators.{self.name}").removeprefix(".")
        paths = _paths(option)
        format_of_it = f"{paths[-1]}_format"  # the types of keys and values follow from their formats
        if self.unusable & {*paths, format_of_it} or (not option and self.unusable & {"", "kind"}):
            return None
        if _STEP.fullmatch(option) and any(name.startswith(f"{option}.") for name in self.unusable):
            return None
        shown = _STEP.sub("", option).removeprefix(".")
        return replace(problem, where=self._where(self._cause_of(option, paths), shown))

    def _cause_of(self, option: str, paths: Sequence[str]) -> Call:
        """Return the call that set the option; for an option that is missing, the call that began the operator."""
        if not option:  # the name is refused
            return self.calls[0]
        named = [path for path in (*paths, "kind") if any(path in call.options for call in self.calls)]
        if not named and option in self.types:
            return self.calls[0]
        within = [call for call in self.calls if any(name.startswith(f"{option}.") for name in call.options)]
        found = [call for call in self.calls if named and named[0] in call.options]
        return (found or within or self.calls)[-1]

    def without_output(self) -> Problem:
        """Return the problem that this stream has no output."""
        remedy = "call .to(TOPIC) or .keep(), behind methods such as .filter(...) or .suppress(...)"
        return self._problem("the stream has no output", remedy)

    def kept_beside_others(self) -> Problem:
        """Return the problem that the records of this stream are kept, as they came, beside the results of steps."""
        remedy = "write the records to a topic with .to(TOPIC), or keep them under a name of their own"
        return self._problem("there is no step whose results are kept", remedy)

    def defined_twice(self, before: Definition) -> Problem:
        """Return the problem that a different operator or stream of this name was defined before."""
        cause = f"{before.calls[-1]} has defined another operator of that name"
        return self._problem(cause, "give each operator its own name, and call .to(TOPIC) or .keep() once for each")

    def _problem(self, cause: str, remedy: str) -> Problem:
        """Return a problem of the newest call, with the name as its value."""
        return Problem(where=self._where(self.calls[-1]), value=self.name, cause=cause, remedy=remedy)

    def _where(self, call: Call, option: str = "") -> str:
        named = f"{call} of {self.name}" if self.name else str(call)
        return named + (f", {option}" if option else "")


def _label(verb: str, options: Mapping[str, Any]) -> str:
    """Return the name of a step after its verb, and after the table that it reads."""
    table = options.get("table")
    return f"{verb.lstrip('.')}_{table}" if isinstance(table, str) else verb.lstrip(".")


def _of_first_step(option: str) -> str:
    return option if option in _OF_ALL_STEPS or not option else f"steps.0.{option}"


def _paths(option: str) -> list[str]:
    """Return the option, and what it is a part of, the longest first."""
    parts = option.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def with_sources(steps: Sequence[Mapping[str, Any]], links: Sequence[tuple[int, ...]]) -> list[dict[str, Any]]:
    """Return the steps as a YAML file has them: where a step does not read the one before it, `from` says what.

    A stateless step that is named there is called after its verb and its place, unless another step has that name.
    """
    taken = {str(step["name"]) for step in steps if "name" in step}
    defaults = [_default(steps, links, at) for at in range(len(steps))]
    branched = {at for reads, default in zip(links, defaults, strict=True) if reads != default for at in reads}
    names = {at: str(steps[at].get("name") or _name_of(steps[at], at, taken)) for at in branched if at != INPUT}
    found = []
    for at, step in enumerate(steps):
        sources = [names.get(read, "input") for read in links[at]]
        reads = {} if links[at] == defaults[at] else {"from": sources[0] if len(sources) == 1 else sources}
        found.append({**({"name": names[at]} if at in names else {}), **reads, **step})
    return found


def _name_of(step: Mapping[str, Any], at: int, taken: Collection[str]) -> str:
    """Return the verb and the place of a step, with as many lines behind it as it takes to be no other's name."""
    name = f"{next(iter(step))}_{at + 1}"
    while name in taken:
        name += "_"
    return name


def _default(steps: Sequence[Mapping[str, Any]], links: Sequence[tuple[int, ...]], at: int) -> tuple[int, ...]:
    """Return what a step reads that says nothing: the step before it, or what that one writes to a topic."""
    return links[at - 1] if at > 0 and "to" in steps[at - 1] else (at - 1,)
