"""Hypothesis strategies for configurations of pipelines: random chains of up to five steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tidegate.operators.pipeline.config import PipelineConfig

FILTER, REQUIRE, REASON = "key <> 'a'::BLOB", "key <> 'ab'::BLOB", "it is of the wrong key"
FEW = "count < 3"
_FUNCTIONS = "tidegate.operators.testing.batch_functions"
_STATELESS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"filter": FILTER},
        {"require": REQUIRE, "reason": REASON},
        {"select": {"n": "octet_length(key)"}},
        {"filter": {"function": f"{_FUNCTIONS}:other_than_a"}},
        {"map": f"{_FUNCTIONS}:measured", "emits": {"n": "int64"}},
        {"flat_map": f"{_FUNCTIONS}:repeated", "emits": {"n": "int64"}},
    ]
)
_OF_COUNTS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"filter": FEW},
        {"require": FEW, "reason": REASON},
        {"with_columns": {"more": "count + 1"}},
    ]
)
"""Steps that read what windows have counted."""
_WINDOWS = st.sampled_from(
    [
        {"tumbling": "5ms", "grace": "3ms"},
        {"hopping": "5ms", "advance": "2ms", "grace": "0ms"},
        {"session": "3ms", "grace": "2ms"},
    ]
)
_LIMITS = st.sampled_from(["0ms", "4ms", "9ms"])
_BUFFERS = st.sampled_from([{"max_keys": keys, "when_full": when} for when in ("emit", "shut_down") for keys in (1, 2)])
_BUFFER: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries({"buffer": _BUFFERS})
JOINED_TABLES = ("table", "prices")
_GRACES = st.sampled_from(["3ms", "6ms", "12ms"])
_WAITS = st.sampled_from(
    [{}, *({"grace": grace, **wait} for grace in ("3ms", "12ms") for wait in ({}, {"wait_for_table": "9ms"}))]
)


@st.composite
def _holding(draw: st.DrawFn, windowed: bool) -> dict[str, Any]:
    """A step that holds records back, or remembers them."""
    if draw(st.booleans()):
        return {"kind": "deduplicate", "within": draw(st.sampled_from(["3ms", "8ms"])), "grace": draw(_LIMITS)}
    if windowed and draw(st.booleans()):
        return {"kind": "suppression", "until": "window_close"}
    late = {"max_lateness": draw(_LIMITS)} if draw(st.booleans()) else {}
    return {"kind": "suppression", "until": {"time_limit": draw(_LIMITS)}, **late, **draw(_BUFFER)}


@st.composite
def _counting(draw: st.DrawFn) -> dict[str, Any]:
    emit = draw(st.sampled_from(["updates", "updates", "final", "on_time"]))
    window, aggregate = draw(_WINDOWS), {"count": True}
    return {"kind": "windowed_aggregation", "window": window, "aggregate": aggregate, "emit": emit}


def _reading_counts() -> st.SearchStrategy[list[dict[str, Any]]]:
    """At most one step that reads what the step before it has counted."""
    return st.lists(_OF_COUNTS, max_size=1)


@st.composite
def _steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Up to five steps, of which one at least holds state."""
    before = draw(st.lists(_STATELESS | _holding(windowed=False), max_size=2))
    windows = [draw(_counting()), *draw(_reading_counts())] if draw(st.booleans()) else []
    behind = draw(st.lists(_STATELESS | _holding(windowed=bool(windows)), max_size=2))
    steps = [*before, *windows, *behind]
    return steps if any("kind" in step for step in steps) else [*steps, draw(_holding(windowed=False))]


class _Rows(NamedTuple):
    """The rows at a place: whether a step before it holds state, whether they have windows, and what made their form.

    Rows of one form can be merged, if a step that holds state stands before all of them, or before none.
    """

    taken: bool = False
    windowed: bool = False
    form: tuple[str, ...] = ()

    def behind(self, step: dict[str, Any]) -> _Rows:
        """Return the rows behind the step."""
        windowed = "window" in step
        made = [repr([step[option] for option in sorted(step.keys() - _WIRES)])] if _FORMS & step.keys() else []
        return _Rows(self.taken or "kind" in step, self.windowed or windowed, (*self.form, *made))


_WIRES, _FORMS = {"name", "from", "keep"}, {"window", "emits", "select", "table", "with_columns"}
_OF_INPUT = _Rows()


def _places(steps: list[dict[str, Any]], begin: str = "input", rows: _Rows = _OF_INPUT) -> dict[str, _Rows]:
    """Return the rows at the beginning of a chain, and behind each of its steps, by name."""
    found = {begin: rows}
    for step in steps:
        rows = found[step["name"]] = rows.behind(step)
    return found


@st.composite
def _branches(
    draw: st.DrawFn, steps: list[dict[str, Any]], joins: Sequence[dict[str, Any]] = ()
) -> list[dict[str, Any]]:
    """One or two more chains, each of which begins at a step or at the input; perhaps some of them meet again.

    `joins`: steps that stand somewhere in these chains, or where they meet.
    """
    found, places, ends, left = list(steps), _places(steps), [steps[-1]["name"]], list(joins)
    for letter in ("b", "c")[: draw(st.integers(1, 2))]:
        begin = draw(st.sampled_from(list(places)))
        drawn = draw(_branch(places[begin]))
        if bool(left) and draw(st.booleans()):
            drawn.insert(draw(_place_of_join(drawn)), left.pop())
        branch = [{"name": f"{letter}{at}", **step} for at, step in enumerate(drawn)]
        places |= _places(branch, begin, places[begin])
        branch[0] = branch[0] if begin == found[-1]["name"] else {"from": begin, **branch[0]}
        found += branch
        ends = [*(end for end in ends if end != begin), branch[-1]["name"]]
    alike = [end for end in ends if places[end] == places[ends[0]]]
    if len(alike) < 2 or draw(st.integers(0, 3)) == 0:
        return found
    if bool(left) and draw(st.booleans()):
        return [*found, {"from": alike, "name": "met", **left.pop()}]
    met = draw(_holding(windowed=places[ends[0]].windowed)) | {"name": "met"} if draw(st.booleans()) else {"to": "both"}
    return [*found, {"from": alike, **met}]


@st.composite
def _branch(draw: st.DrawFn, rows: _Rows) -> list[dict[str, Any]]:
    """Up to three steps behind such rows, of which one holds state unless one before does; perhaps with windows."""
    before = draw(st.lists(_STATELESS | _holding(windowed=rows.windowed), max_size=1))
    windows = [draw(_counting()), *draw(_reading_counts())] if not rows.windowed and draw(st.booleans()) else []
    windowed = rows.windowed or bool(windows)
    steps = [*before, *windows, *draw(st.lists(_STATELESS | _holding(windowed=windowed), max_size=1))]
    needed = not steps or not (rows.taken or any("kind" in step for step in steps))
    return [*steps, draw(_holding(windowed=windowed))] if needed else steps


@st.composite
def _written(draw: st.DrawFn, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps, some of whose results are kept, or written to topics in between."""
    found: list[dict[str, Any]] = []
    for at, step in enumerate(steps):
        holds = "kind" in step
        keep = {"keep": True} if holds and _is_read(steps, at) and draw(st.integers(0, 3)) == 0 else {}
        found.append({**step, **keep})
        if holds and draw(st.integers(0, 3)) == 0:
            found.append({"to": f"to_{step['name']}"})
    return found


def _is_read(steps: list[dict[str, Any]], at: int) -> bool:
    name = steps[at]["name"]
    return "from" not in steps[at + 1] if at + 1 < len(steps) else any(name in step.get("from", ()) for step in steps)


@st.composite
def pipeline_configs(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of pipelines: chains, and some with branches and several outputs."""
    named = _named(draw(_steps()))
    if draw(st.booleans()):
        every = [{"name": f"s{at}", **step} for at, step in enumerate(named)]
        named = draw(_written(draw(_branches(every))))
    return _config(draw, named)


@st.composite
def passing_configs(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of pipelines with results that no step which holds state has taken."""
    steps = [{"name": f"s{at}", **step} for at, step in enumerate(draw(st.lists(_STATELESS, max_size=3)))]
    copied = [{"to": "copied"}] if draw(st.booleans()) else []
    written = [each for step in steps for each in (step, *([{"to": f"to_{step['name']}"}] * draw(st.booleans())))]
    merges = draw(_merges(_places(steps)))
    merged = [{"from": merge, "to": f"merged_{at}"} for at, merge in enumerate(merges)] if draw(st.booleans()) else []
    begin = draw(st.sampled_from(["input", *merges]))
    apart = {} if not steps or (merged and begin in merges) else {"from": begin}  # a topic's rows go on by themselves
    branch = [{"name": "held", **apart, **draw(_holding(windowed=False))}] if draw(st.booleans()) else []
    return _config(draw, [*copied, *written, *merged, *branch])


@st.composite
def _merges(draw: st.DrawFn, places: dict[str, _Rows]) -> list[list[str]]:
    """At most one merge of what stands at several of the places, in any order."""
    several = [name for name in places if sum(rows == places[name] for rows in places.values()) > 1]
    if not several or draw(st.booleans()):
        return []
    first = draw(st.sampled_from(several))
    others = st.sampled_from([name for name in several if name != first and places[name] == places[first]])
    return [[first, *draw(st.lists(others, min_size=1, max_size=2, unique=True))]]


@st.composite
def joined_pipeline_configs(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of chains in which joins with a grace stand somewhere, one or two."""
    joins = draw(_joins(_GRACES.map(lambda grace: {"grace": grace})))
    return _config(draw, _named(draw(_with_joins(joins))))


@st.composite
def pipelines_with_a_join(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of pipelines of any shape in which any joins stand somewhere, one or two."""
    joins = draw(_joins(_WAITS))
    if draw(st.integers(0, 1)):
        return _config(draw, _named(draw(_with_joins(joins))))
    first = draw(st.integers(0, len(joins)))
    chain = _named(draw(_with_joins(joins[:first])))
    every = [{"name": f"s{at}", **step} for at, step in enumerate(chain)]
    written = draw(_written(draw(_branches(every, joins[first:]))))
    return _config(draw, [_never_stopped(step) for step in written])


def _never_stopped(step: dict[str, Any]) -> dict[str, Any]:
    """Return the step with a bound that lets results go: no record causes what a table releases to reach one."""
    return step | {"buffer": step["buffer"] | {"when_full": "emit"}} if "buffer" in step else step


@st.composite
def _joins(draw: st.DrawFn, waits: st.SearchStrategy[dict[str, Any]]) -> list[dict[str, Any]]:
    """One or two joins, each of a table of its own. `waits`: how one waits for its table."""
    joins = []
    for table in JOINED_TABLES[: draw(st.integers(1, 2))]:
        join = {"kind": "stream_table_join", "table": table, "before_history": "join"}
        joins.append(join | {"join": draw(st.sampled_from(["left", "left", "inner"])), **draw(waits)})
    return joins


def _place_of_join(steps: Sequence[dict[str, Any]]) -> st.SearchStrategy[int]:
    """A place among the steps: not between windows and what reads their counts, which a join has in another place."""
    return st.sampled_from([at for at in range(len(steps) + 1) if at == len(steps) or not reads_counts(steps[at])])


def reads_counts(step: Mapping[str, Any]) -> bool:
    """Return whether the step is one of those that read what windows have counted."""
    return "with_columns" in step or FEW in (step.get("filter"), step.get("require"))


@st.composite
def _with_joins(draw: st.DrawFn, joins: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps with these joins among them."""
    steps = [_never_stopped(step) for step in draw(_steps())]
    for join in joins:
        at = draw(_place_of_join(steps))
        steps = [*steps[:at], join, *steps[at:]]
    return steps


def _named(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": f"s{at}", **step} if "kind" in step else step for at, step in enumerate(steps)]


def _config(draw: st.DrawFn, named: list[dict[str, Any]]) -> PipelineConfig:
    time = draw(st.sampled_from(["pipeline", "pipeline", "records"]))
    return PipelineConfig.model_validate({"input": "in", "steps": named, "time": time, "windows": "ignore"})
