"""Reads the steps of a pipeline one after the other, each with what the steps before it determine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from tidegate.contracts.config.key_rules import KeyRules, Windows
from tidegate.contracts.config.operator_config import OutputDeclaration
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import InvalidValue, UserError
from tidegate.contracts.values import (
    PRIMITIVES,
    AvroOutput,
    Primitive,
    ProtobufOutput,
    Values,
    kept_as,
    may_be_number,
    part_of,
    schema_of,
    shown,
)
from tidegate.expressions.checking import Expression, check, check_condition, check_names
from tidegate.expressions.column import quoted
from tidegate.kernels.codecs.primitives import writable
from tidegate.kernels.codecs.registered import encoder_of_registered
from tidegate.operators.pipeline.rules.graph import INPUT_AT, Graph
from tidegate.operators.pipeline.rules.places import Place, as_config, merged
from tidegate.operators.pipeline.rules.sinks import checked
from tidegate.operators.pipeline.rules.steps import (
    OF_THE_PIPELINE,
    ROW,
    STATELESS,
    Called,
    Encode,
    Evaluated,
    Filter,
    FilterBy,
    FlatMap,
    Map,
    Require,
    Select,
    SelectKey,
    Sink,
    Stateful,
    Stateless,
    StepRules,
    WithColumns,
    stateless_type,
)
from tidegate.operators.pipeline.rules.value_types import values_of
from tidegate.operators.pipeline.steps import INPUT
from tidegate.operators.registry import kind_of, kinds, kinds_where

_STEPS = (
    "write a step with name and kind, or filter, require, with_columns, select, map, flat_map, encode, select_key or to"
)
BY_KEYS = "{to: TOPIC, partitions: NUMBER}"
PIPELINE = "pipeline"
NO_TOPICS: Mapping[str, str] = {}
_TOPICS = {"input", "further_inputs", "output", "dead_letters", "idle_after", "output_windows"}


class Reading:
    """The steps that have been read, the places before them, and all problems.

    A place is None behind a step with a problem: what depends on it is not checked. `topics`: those that no step may
    write, with the reasons.
    """

    def __init__(self, place: Place, shared: Mapping[str, Any], topics: Mapping[str, str] = NO_TOPICS) -> None:
        self.steps: list[StepRules] = []
        self.places: list[Place] = []
        self._windows = place.windows
        self._start = place
        self._place: Place | None = place
        self._before: Place | None = place
        self._behind: dict[str, Place | None] = {INPUT: place}
        self._shared = shared
        self._topics = dict(topics)
        self._errors: list[InitErrorDetails] = []

    def read(self, raw: object) -> None:
        """Read all steps. Raise ValidationError with all problems."""
        if not isinstance(raw, Sequence) or isinstance(raw, str):
            raise InvalidValue("not a list of steps", "write steps: [{name: NAME, kind: KIND, ...}, {filter: ...}]")
        for at, each in enumerate(raw):
            with self._collecting(at, each):
                self._read_step(_as_mapping(each))
        if self._place is not None:
            self.places.append(self._place)
        if not self._errors:
            self._check_untaken()
        if self._errors:
            raise ValidationError.from_exception_data("steps", self._errors)

    @contextmanager
    def _collecting(self, at: int, raw: object) -> Iterator[None]:
        """Note what is wrong with the step; what is known of its results is unknown then."""
        try:
            yield
        except ValidationError as error:
            self._errors += [_detail((at, *each["loc"]), each) for each in error.errors(include_url=False)]
        except InvalidValue as error:
            self._errors.append(_error((at,), raw, error))
        else:
            return
        self._place = None
        if isinstance(raw, Mapping) and isinstance(raw.get("name"), str):
            self._behind.setdefault(raw["name"], None)

    def _read_step(self, raw: Mapping[str, Any]) -> None:
        self._before = self._read_from(raw["from"]) if "from" in raw else self._place
        verbs = [verb for verb in (*STATELESS, "kind", "to") if verb in raw]
        if len(verbs) != 1:
            raise InvalidValue("not a step", _STEPS)
        [verb] = verbs
        step, behind = self._to(raw) if verb == "to" else self._with_results(verb, raw)
        self.steps.append(step)
        if self._before is not None:
            self.places.append(self._before)
        self._place = behind

    def _with_results(self, verb: str, raw: Mapping[str, Any]) -> tuple[Stateful | Stateless, Place | None]:
        step, behind = self._stateful(raw) if verb == "kind" else self._stateless(verb, raw)
        if step.name is not None:
            self._behind[step.name] = behind
        return step, behind

    def _read_from(self, raw: object) -> Place | None:
        """Return the place behind the steps of these names; raise InvalidValue if there are none before."""
        names: Sequence[Any] = raw if isinstance(raw, list | tuple) else [raw]
        for name in names:
            if name not in self._behind:
                known = ", ".join(self._behind)
                raise InvalidValue(f"no step before this one is named {name}", f"write from: with one of {known}")
        if len(set(names)) < max(2, len(names)) and names is raw:
            raise InvalidValue("a merge needs several steps", "write from: [FIRST, SECOND]")
        places = [self._behind[name] for name in names]
        known_places = [place for place in places if place is not None]
        return merged(known_places) if len(known_places) == len(places) else None

    def _to(self, raw: Mapping[str, Any]) -> tuple[Sink, Place | None]:
        """Return the step that writes to a topic, and the place behind it, which is that before it."""
        step, place = Sink.model_validate(raw), self._before
        if step.to in self._topics:
            raise InvalidValue(f"the topic is {self._topics[step.to]}", "name another topic")
        self._topics[step.to] = "written by another step"
        if place is not None:
            checked(step.output_windows, place.maker, self._windows)
            check_partitions(place, step.partitions)
        return step, place

    def _check_untaken(self) -> None:
        """Note results whose event timestamps would be read from values that are no JSON."""
        for at in Graph(self.steps).untaken().values():
            step = None if at == INPUT_AT else self.steps[at]
            place = self._start if step is None or isinstance(step, Sink | Stateful) else behind(step, self.places[at])
            with self._collecting(max(at, 0), None):
                _check_json(place.values, stamped=self._shared.get("timestamp") is not None)

    def _stateful(self, raw: Mapping[str, Any]) -> tuple[Stateful, Place | None]:
        kind = _kind(raw)
        given = {name: value for name, value in raw.items() if name not in Stateful.OWN}
        if foreign := sorted(set(given) & (OF_THE_PIPELINE | _TOPICS)):
            raise InvalidValue(f"{foreign[0]} is an option of the whole pipeline", f"write {foreign[0]} beside steps")
        self._check_name(raw.get("name"))
        place = self._before
        # rule: rekeyed-rows-go-to-a-topic/state
        if place is not None and place.rekeyed:
            raise InvalidValue(
                "a step before it has given rows another key, and rows of one key are in several partitions",
                f"write them to a topic before it: {BY_KEYS}, and read that topic with another operator",
            )
        is_first = not any(isinstance(step, Stateful) for step in self.steps)
        shared = self._shared if (is_first if place is None else place.is_input) else {}
        rules = _rules(kind, given, self._inferred(kind, given), place).model_copy(update=shared)
        emits = None if raw.get("emits") is None else schema_of(raw["emits"])
        _check_names(emits or pa.schema([]))
        reads = {"from": raw["from"]} if "from" in raw else {}
        place = self._in_json(rules, place, reads)
        own = {name: raw[name] for name in ("name", "keep", "table_value") if name in raw}
        own |= reads if place is self._before else {}
        step = Stateful.model_validate({**own, "rules": rules, "emits": emits})
        _check_emits(rules, emits)
        table = None if step.table_value is None else values_of(step.table_value)
        _check_table(rules, emits, table)
        self._check_tables(rules)
        if place is None:
            return step, None
        if unknown := list(rules.unknown_fields(place.values)):
            raise ValidationError.from_exception_data(
                "step", [_error((option,), raw[option], each) for option, each in unknown]
            )
        behind = place.behind(rules, emits, table)
        _check_values(rules, place, behind.values, table)
        return step, behind

    def _in_json(self, rules: OperatorRules, place: Place | None, reads: Mapping[str, Any]) -> Place | None:
        """Return the place before an operator, behind a step that makes JSON of the fields which it reads there.

        Such a step is added where aggregates would read values that are not JSON, or have two sides. `reads`: what it
        reads in place of the operator.
        """
        if place is None or place.values.form not in _IN_COLUMNS or not rules.reads_json() or rules.reads():
            return place
        names = {field.name for field in rules.held_columns(place.values)}
        if place.is_input and (timestamp := self._shared.get("timestamp")) is not None:
            names.add(timestamp.names[0])
        read = {name: quoted(name) for name in place.values.schema.names if name in names}
        if not read:
            return place
        select = Select.model_validate({"select": read, **reads})
        self.steps.append(select)
        self.places.append(place)
        found = behind(select, place)
        self._check_timestamp(found)
        return found

    def _check_tables(self, rules: OperatorRules) -> None:
        """Raise InvalidValue if a step before reads one of the tables: what is known of a table is by its name."""
        before = {
            read.table: step.name for step in self.steps if isinstance(step, Stateful) for read in step.rules.reads()
        }
        for read in rules.reads():
            # rule: one-step-per-table
            if read.table in before:
                raise InvalidValue(
                    f"step {before[read.table]} reads the table {read.table} already",
                    "read the results of that step, or define the table once more, under another name",
                )

    def _inferred(self, kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that the steps before determine for a step of that kind.

        Behind a step with a problem they are unknown, and any will do.
        """
        place = self._before
        if place is None:
            windows: Windows = "headers" if given.get("until") == "window_close" else None
            return kind_of(kind).config.inferred_options(given, OutputDeclaration(windows=windows, closes_after=0))
        return place.inferred(kind_of(kind).config, dict(given))

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str):
            raise InvalidValue("a step that holds state needs a name", "add name: NAME")
        if name == INPUT:
            raise InvalidValue(f"{name} is the name of what the first step reads", "give the step another name")
        if name in self._behind:
            raise InvalidValue(f"another step is named {name}", "give each step a name of its own")

    def _stateless(self, verb: str, raw: Mapping[str, Any]) -> tuple[Stateless, Place | None]:
        step = stateless_type(verb, raw).model_validate(raw)
        if step.name is not None:
            self._check_name(step.name)
        if self._before is None:
            return step, None
        place = behind(step, self._before)
        if isinstance(step, WithColumns | Select | Map | FlatMap | Encode):
            self._check_timestamp(place)
        return step, place

    def _check_timestamp(self, place: Place) -> None:
        """Raise InvalidValue if the first operator would find no event timestamp in its field any more."""
        timestamp = self._shared.get("timestamp")
        if timestamp is None or not place.is_input:
            return
        field, type = ".".join(timestamp.names), place.values.type_of(timestamp.names)
        if type is None:
            cause = f"field {field}, which has the timestamps, is lost"
            raise InvalidValue(cause, f"name {field} among the fields of the values")
        if not may_be_number(type):
            cause = f"field {field}, which has the timestamps, is no number, but {shown(type)}"
            raise InvalidValue(cause, f"make a number of it in a select, such as {{{field}: epoch_ms({field})}}")


def check_partitions(place: Place, partitions: int | None) -> None:
    """Raise InvalidValue if rows at that place have another key, and a topic of that many partitions gets them."""
    # rule: rekeyed-rows-go-to-a-topic/sink
    if place.rekeyed and partitions is None:
        raise InvalidValue(
            "a step before it has given rows another key, and the topic's partitions are to be those of that key",
            f"say how many partitions the topic has: {BY_KEYS}",
        )


def behind(step: Stateless, place: Place) -> Place:
    """Return the place behind a stateless step. Raise InvalidValue if something in it is wrong."""
    if isinstance(step, Called):
        return _behind_call(step, place)
    if isinstance(step, SelectKey):
        return _behind_select_key(step, place)
    if isinstance(step, Encode):
        return _behind_encode(step, place)
    with _as_invalid_value():
        expressions = expressions_of(step, place)
        if isinstance(step, Filter | Require):
            return place
        kept = {field.name: (field.type, True) for field in _objects(place)} if isinstance(step, WithColumns) else {}
        made = {name: (each.type, _reads_decimals(each, place)) for name, each in expressions.items()}
        found = _fields(kept | made)
        check_names(found.schema)
    return place.with_values(found)


def _behind_call(step: Called, place: Place) -> Place:
    """Return the place behind a step that calls a function."""
    if isinstance(step, FilterBy):
        return place
    if isinstance(step, FlatMap) and ROW in step.emits.names:
        raise InvalidValue(f"{ROW} says from which row another was made", "give the field another name")
    _check_names(step.emits)
    return place.with_values(Values.of_fields(step.emits))


def _check_names(fields: pa.Schema) -> None:
    with _as_invalid_value():
        check_names(fields)


@contextmanager
def _as_invalid_value() -> Iterator[None]:
    """Raise InvalidValue instead of UserError."""
    try:
        yield
    except UserError as error:
        raise InvalidValue(f"{error.problem} ({error.value})", error.remedy) from None


def _behind_encode(step: Encode, place: Place) -> Place:
    """Return the place behind a step that writes values in another format."""
    fields = with_doubles(place).values.schema
    if isinstance(step.encode, AvroOutput | ProtobufOutput):
        encoder_of_registered(step.encode, fields)
        return place.with_values(Values.of_bytes()._replace(registered=step.encode))
    if len(fields) != 1:
        raise InvalidValue(
            f"values have {len(fields)} fields ({', '.join(fields.names)}), and {step.encode} is one value",
            "choose one before: {select: {value: SQL}}",
        )
    if not writable(step.encode, fields.types[0]):
        raise InvalidValue(
            f"{fields.names[0]} is of type {fields.types[0]}, which is not written as {step.encode}",
            "convert it before: {select: {value: CAST(... AS bigint)}}, double or varchar",
        )
    return place.with_values(Values.of_primitive(step.encode))


def with_doubles(place: Place) -> Place:
    """Return the place as other formats than JSON see it: decimals are doubles."""
    values = place.values
    if values.form not in ("object", "single"):
        return place
    return place.with_values(values._replace(schema=pa.schema(_doubles(values.schema))))


def _doubles(fields: Iterable[pa.Field]) -> list[pa.Field]:
    return [field.with_type(_double(field.type)) for field in fields]


def _double(type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct(_doubles(type))
    return pa.float64() if pa.types.is_decimal(type) else type


def _behind_select_key(step: SelectKey, place: Place) -> Place:
    """Return the place behind a step that gives rows another key."""
    if place.names_windows_in_keys:
        raise InvalidValue(
            "the bytes of the input's keys name their windows, which another key would lose",
            "put a step that holds state before it, such as {name: NAME, kind: suppression, ...}",
        )
    with _as_invalid_value():
        [expression] = expressions_of(step, place).values()
    form = next((form for form in _KEYS if PRIMITIVES[form] == expression.type), None)
    if form is None:
        raise InvalidValue(
            f"the key is of type {expression.type}, for which Kafka has no serializer",
            f"convert it: {{select_key: CAST({step.select_key} AS varchar)}}, bigint or double",
        )
    return replace(place, key=form, rekeyed=True)


_KEYS: tuple[Primitive, ...] = ("string", "bytes", "int16", "int32", "int64", "float32", "float64")
"""The formats in which keys are written, each by the type of the key."""


def expressions_of(step: Evaluated | SelectKey, place: Place) -> dict[str, Expression]:
    """Return the checked expressions of a step by the names of the fields that they make; a condition has its verb.

    Raise UserError if one is wrong.
    """
    columns = place.columns
    match step:
        case Filter():
            return {"filter": check_condition(step.filter, columns)}
        case Require():
            return {"require": check_condition(step.require, columns)}
        case WithColumns():
            return {name: check(text, columns) for name, text in step.with_columns.items()}
        case Select():
            return {name: check(text, columns) for name, text in step.select.items()}
        case SelectKey():
            return {"key": check(step.select_key, columns)}


def _objects(place: Place) -> pa.Schema:
    """Return the fields to which others are added; raise InvalidValue if values are no JSON."""
    if place.values.form in PRIMITIVES:
        raise InvalidValue(
            "values have no fields to which others are added", "describe them: input: {value: {json: {NAME: TYPE}}}"
        )
    return place.values.schema


def _reads_decimals(expression: Expression, place: Place) -> bool:
    """Return whether one of the fields that the expression reads is a decimal, or has one in it."""
    return any(_has_decimals(field.type) for field in part_of(place.columns, expression.paths))


def _has_decimals(type: pa.DataType) -> bool:
    return pa.types.is_decimal(type) or (pa.types.is_struct(type) and any(_has_decimals(each.type) for each in type))


def _fields(types: Mapping[str, tuple[pa.DataType, bool]]) -> Values:
    """Return objects of fields of these types, of which each says whether its decimals are exact.

    Raise InvalidValue if JSON has none of a type.
    """
    kept = {name: kept_as(name, type, is_exact=is_exact) for name, (type, is_exact) in types.items()}
    return Values.of_fields(pa.schema(kept))


def _kind(raw: Mapping[str, Any]) -> str:
    """Return the step's kind; raise InvalidValue unless operators of that kind can be steps."""
    kind = raw["kind"]
    others = [name for name in kinds() if name != PIPELINE and name not in kinds_where("is_table")]
    possible = [name for name in others if kind_of(name).rules.streams == 1]
    if kind in possible:
        return str(kind)
    if kind in kinds_where("is_table"):
        raise InvalidValue(f"{kind} has no results that a step could read", "write it as an operator of its own")
    if kind in others:
        raise InvalidValue(
            f"{kind} reads topics, and is no step",
            "write it as an operator of its own, with topics before and behind it that other operators write and read",
        )
    raise InvalidValue(f"there are no steps of kind {kind}", f"write one of {', '.join(possible)}")


def _rules(kind: str, given: Mapping[str, Any], known: Mapping[str, Any], place: Place | None) -> OperatorRules:
    """Return the operator's rules; what is determined by other parts of the pipeline does not count as given."""
    model = kind_of(kind).rules
    if place is not None and place.windowed and not issubclass(model, KeyRules):
        raise InvalidValue("its input has windows already", "put a step without windows of its own here")
    if place is not None and not place.windowed and given.get("until") == "window_close":
        raise InvalidValue(
            "its input has no windows", "put a step with windows before it, or write until: {time_limit: 30s}"
        )
    windows = {"windows": place.windows} if place is not None and issubclass(model, KeyRules) else {}
    rules = model.model_validate({**known, **given, **windows})
    found = model.model_construct(_fields_set=rules.model_fields_set & set(given), **dict(rules))
    if place is not None and place.closes_after is not None:
        for option, conflict in as_config(found).conflicts(OutputDeclaration(closes_after=place.closes_after)):
            raise InvalidValue(f"{option}: {conflict.cause}", conflict.remedy)
    return found


_IN_COLUMNS = ("avro", "protobuf", "joined")
"""The forms of values whose fields are columns, and not members of one JSON object."""
_NOT_JSON = {
    "avro": "Avro",
    "protobuf": "Protobuf",
    **{form: form for form in PRIMITIVES if form not in ("bytes", "string")},
}
"""The formats of values that are never JSON, as messages name them."""


def _check_values(rules: OperatorRules, place: Place, results: Values, table: Values | None) -> None:
    """Raise InvalidValue if the operator would read values as JSON that are something else.

    A join of values whose fields are known on both sides reads them as they are.
    """
    if table is not None and results.form != "joined":
        raise InvalidValue(
            "the fields of the stream's values are unknown, or one has the name of the table",
            "describe them: value: {json: {NAME: TYPE}}, {avro: ...} or {protobuf: ...}, or rename the field",
        )
    reader = rules.kind if rules.reads_json() and results.form != "joined" else None
    _check_json(place.values, stamped=place.is_input and rules.timestamp is not None, reader=reader)


def _check_json(values: Values, *, stamped: bool, reader: str | None = None) -> None:
    """Raise InvalidValue if values are no JSON, and event timestamps are in their fields, or an operator reads JSON."""
    if values.form in _NOT_JSON and (stamped or reader is not None):
        what = "the event timestamp is read from" if stamped else f"{reader} reads"
        raise InvalidValue(
            f"values are {_NOT_JSON[values.form]}, and {what} JSON",
            "make JSON of the fields before it: {select: {NAME: SQL}}",
        )


def _check_table(rules: OperatorRules, emits: pa.Schema | None, table: Values | None) -> None:
    """Raise InvalidValue if the step has a type of a table's values, and nothing that it would be of."""
    if table is not None and (not rules.reads() or not rules.reads_json()):
        raise InvalidValue("the step makes no values of those of a table", "remove table_value")
    if table is not None and emits is not None:
        raise InvalidValue("the fields of the table's values are given twice", "remove emits")


def _check_emits(rules: OperatorRules, emits: pa.Schema | None) -> None:
    unknown = Values.of_bytes()
    if emits is not None and rules.results(unknown, emits) == rules.results(unknown, None):
        raise InvalidValue("the fields of its results are known without `emits`", "remove emits")


def _as_mapping(raw: object) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise InvalidValue("not a step", _STEPS)
    return raw


def _error(loc: tuple[int | str, ...], value: object, error: InvalidValue) -> InitErrorDetails:
    return _detail(loc, {"type": "value_error", "input": value, "ctx": {"error": error}})


def _detail(loc: tuple[int | str, ...], error: Mapping[str, Any]) -> InitErrorDetails:
    return InitErrorDetails(type=error["type"], loc=loc, input=error["input"], ctx=error.get("ctx", {}))
