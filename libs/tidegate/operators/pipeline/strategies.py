"""Hypothesis strategies for configurations of pipelines: random chains of up to five steps."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.operators.pipeline.config import PipelineConfig

FILTER, REQUIRE, REASON = "key <> 'a'::BLOB", "key <> 'ab'::BLOB", "it is of the wrong key"
_FUNCTIONS = "tidegate.operators.testing.batch_functions"
_STATELESS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"filter": FILTER},
        {"require": REQUIRE, "reason": REASON},
        {"filter": {"function": f"{_FUNCTIONS}:other_than_a"}},
        {"map": f"{_FUNCTIONS}:measured", "emits": {"n": "int64"}},
        {"flat_map": f"{_FUNCTIONS}:repeated", "emits": {"n": "int64"}},
    ]
)
_WINDOWS = st.sampled_from(
    [
        {"tumbling": "5ms", "grace": "3ms"},
        {"hopping": "5ms", "advance": "2ms", "grace": "0ms"},
        {"session": "3ms", "grace": "2ms"},
    ]
)
_LIMITS = st.sampled_from(["0ms", "4ms", "9ms"])
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
    full = {"buffer": {"max_keys": 2, "when_full": "emit"}} if draw(st.booleans()) else {}
    return {"kind": "suppression", "until": {"time_limit": draw(_LIMITS)}, **late, **full}


@st.composite
def _counting(draw: st.DrawFn) -> dict[str, Any]:
    emit = draw(st.sampled_from(["updates", "updates", "final", "on_time"]))
    window, aggregate = draw(_WINDOWS), {"count": True}
    return {"kind": "windowed_aggregation", "window": window, "aggregate": aggregate, "emit": emit}


@st.composite
def _steps(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Up to five steps, of which one at least holds state."""
    before = draw(st.lists(_STATELESS | _holding(windowed=False), max_size=2))
    windows = [draw(_counting())] if draw(st.booleans()) else []
    behind = draw(st.lists(_STATELESS | _holding(windowed=bool(windows)), max_size=2))
    steps = [*before, *windows, *behind]
    return steps if any("kind" in step for step in steps) else [*steps, draw(_holding(windowed=False))]


@st.composite
def _branches(draw: st.DrawFn, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A second chain, which begins at one of the steps or at the input; perhaps both meet again."""
    at = draw(st.integers(-1, len(steps) - 1))
    begin = "input" if at < 0 else steps[at]["name"]
    windowed = any("window" in step for step in steps[: at + 1])
    branch = draw(st.lists(_STATELESS | _holding(windowed=windowed), min_size=1, max_size=2))
    if not any("kind" in step for step in [*steps[: at + 1], *branch]):
        branch.append(draw(_holding(windowed=False)))
    branch = [{"name": f"b{at}", **step} for at, step in enumerate(branch)]
    branch[0] = branch[0] if at == len(steps) - 1 else {"from": begin, **branch[0]}
    same_fields = not any({"emits", "table"} & step.keys() for step in [*steps[at + 1 :], *branch])
    same_rows = same_fields and windowed == any("window" in step for step in steps)
    if not same_rows or at == len(steps) - 1 or not draw(st.booleans()):
        return [*steps, *branch]
    met = [steps[-1]["name"], branch[-1]["name"]]
    return [*steps, *branch, {"name": "met", "from": met, **draw(_holding(windowed=windowed))}]


@st.composite
def _written(draw: st.DrawFn, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps, some of whose results are kept, or written to topics in between."""
    found: list[dict[str, Any]] = []
    of_branch = any(step["name"] == "met" for step in steps)
    for at, step in enumerate(steps):
        holds = "kind" in step and not (of_branch and step["name"].startswith("b"))
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
    if draw(st.integers(0, 2)) == 0:
        every = [{"name": f"s{at}", **step} for at, step in enumerate(named)]
        named = draw(_written(draw(_branches(every))))
    return _config(draw, named)


@st.composite
def passing_configs(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of pipelines with results that no step which holds state has taken."""
    steps = [{"name": f"s{at}", **step} for at, step in enumerate(draw(st.lists(_STATELESS, max_size=3)))]
    copied = [{"to": "copied"}] if draw(st.booleans()) else []
    written = [each for step in steps for each in (step, *([{"to": f"to_{step['name']}"}] * draw(st.booleans())))]
    begin = {"from": "input"} if steps else {}
    branch = [{"name": "held", **begin, **draw(_holding(windowed=False))}] if draw(st.booleans()) else []
    return _config(draw, [*copied, *written, *branch])


@st.composite
def joined_pipeline_configs(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of chains in which joins with a grace stand somewhere, one or two."""
    return _config(draw, _named(draw(_with_joins(_GRACES.map(lambda grace: {"grace": grace})))))


@st.composite
def pipelines_with_a_join(draw: st.DrawFn) -> PipelineConfig:
    """Configurations of pipelines of any shape in which any joins stand somewhere, one or two."""
    named = _named(draw(_with_joins(_WAITS)))
    if draw(st.integers(0, 2)) == 0:
        every = [{"name": f"s{at}", **step} for at, step in enumerate(named)]
        named = draw(_written(draw(_branches(every))))
    return _config(draw, named)


@st.composite
def _with_joins(draw: st.DrawFn, waits: st.SearchStrategy[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps with joins among them, each of a table of its own. `waits`: how one waits for its table."""
    steps = draw(_steps())
    for table in JOINED_TABLES[: draw(st.integers(1, 2))]:
        join = {"kind": "stream_table_join", "table": table, "before_history": "join"}
        join |= {"join": draw(st.sampled_from(["left", "left", "inner"])), **draw(waits)}
        at = draw(st.integers(0, len(steps)))
        steps = [*steps[:at], join, *steps[at:]]
    return steps


def _named(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": f"s{at}", **step} if "kind" in step else step for at, step in enumerate(steps)]


def _config(draw: st.DrawFn, named: list[dict[str, Any]]) -> PipelineConfig:
    time = draw(st.sampled_from(["pipeline", "pipeline", "records"]))
    return PipelineConfig.model_validate({"input": "in", "steps": named, "time": time, "windows": "ignore"})
