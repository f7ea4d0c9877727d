"""Expressions: what is refused before any row is there, and what a row's values are."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.expressions import page
from tidegate.contracts.errors import UserError
from tidegate.contracts.values import schema_of
from tidegate.expressions.checking import check, check_condition
from tidegate.expressions.column import Column, col, literal
from tidegate.expressions.evaluation import EVALUATED, evaluate, is_true

pytestmark = pytest.mark.fast

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("weather", pa.struct([("gust", pa.float64()), ("at", pa.timestamp("ms"))])),
        ("at", pa.int64()),
    ]
)


def rows(**columns):
    """Rows with these columns of SCHEMA."""
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def values(text, /, **columns):
    """The values of one expression, and which rows could not be evaluated."""
    found = evaluate([check(text, SCHEMA)], rows(**columns))
    return found.values[0].to_pylist(), (found.failed != EVALUATED).tolist()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("trim(text)", "a b"),
        ("trim(both ' ' from text)", "a b"),
        ("trim(leading ' ' from text)", "a b "),
        ("substring(text, 2, 1)", "a"),
        ("substring(text from 2 for 1)", "a"),
        ("position('b' in text)", 4),
        ("extract(year from weather.at)", 2013),
        ("[n, 2][1]", 1),
        ("{'m': n}.m", 1),
        ("row(n, 2) = row(1, 2)", True),
        ("n in (1, 2)", True),
        ("text similar to '.*b.*'", True),
        ("text like '%b_'", True),
        ("weather.at::date + interval 1 day", datetime(2013, 1, 2)),
    ],
)
def test_functions_may_be_written_in_the_grammar_that_sql_has_for_them(text, value):
    found, failed = values(text, n=[1], text=[" a b "], weather=[{"gust": 1.0, "at": datetime(2013, 1, 1)}])
    assert (found, failed) == ([value], [False])


def test_the_page_lists_the_functions():
    assert page.PAGE.read_text() == page.text()


@pytest.mark.parametrize("fields", [{"o": {"a": "int64", "A": "int64"}}, {"p": {"o": {"É": "int64", "é": "int64"}}}])
def test_fields_differ_in_more_than_upper_and_lower_case_at_every_depth(fields):
    with pytest.raises(UserError, match="more than upper and lower case"):
        check("1 = 1", schema_of(fields))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cuont < 3", "no column cuont"),
        ("n <", "cannot be read"),
        ("1; drop table x", "cannot be read"),
        ("n) from x where (1", "cannot be read"),
        ("n from other", "without further clauses"),
        ("n where true", "without further clauses"),
        ("n limit 1", "without further clauses"),
        ("distinct n", "without further clauses"),
        ("n as m", "without further clauses"),
        ("n, n", "without further clauses"),
        ("(select 1)", "contains a query"),
        ("exists(select 1)", "contains a query"),
        ("n = any([1])", "contains a query"),
        ("sum(n) over ()", "looks at other rows"),
        ("*", "has several values"),
        ("columns('n')", "has several values"),
        ("$1", "has a parameter"),
        ("#1", "by its position"),
        ("list_transform([n], lambda x: x + 1)", "do not have the function list_transform"),
        ("sum(n)", "do not have the function sum"),
        ("count(*)", "do not have the function count_star"),
        ("now()", "do not have the function now"),
        ("current_timestamp", "no column current_timestamp"),
        ("random() < 0.5", "do not have the function random"),
        ("read_csv('/etc/passwd')", "do not have the function read_csv"),
        ("getvariable('x')", "do not have the function getvariable"),
        ("error('x')", "do not have the function error"),
        ("system.main.abs(n)", "do not have the function abs"),
        ("main.error('x')", "do not have the function error"),
        ("abs(distinct n)", "is a function of one row"),
        ("weather.wind > 3", "no field wind in weather"),
        ("n + text", "does not fit its columns"),
        ("n collate nocase", "names a collation"),
    ],
)
def test_what_is_not_a_value_of_one_row_is_refused_with_the_reason(text, says):
    with pytest.raises(UserError, match=says) as refused:
        check(text, SCHEMA)
    assert text in str(refused.value)
    assert refused.value.remedy


def test_an_expression_reads_the_paths_that_it_names():
    found = check("n + coalesce(WEATHER.Gust, weather['gust'])", SCHEMA)
    assert found.paths == {("n",), ("weather", "gust"), ("weather",)}
    assert check("weather.gust > 3", SCHEMA).paths == {("weather", "gust")}


def test_a_condition_must_be_true_or_false():
    assert check_condition("n < 3 and text is not null", SCHEMA).columns == {"n", "text"}
    with pytest.raises(UserError, match="must be true or false"):
        check_condition("n + 1", SCHEMA)


def test_columns_that_differ_in_case_only_are_refused():
    with pytest.raises(UserError, match="upper and lower case"):
        check("1", pa.schema([("a", pa.int64()), ("A", pa.int64())]))


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("n + 1", {"n": [1, None]}, [2, None]),
        ("weather.gust > 40", {"weather": [{"gust": 41.0}, {"gust": 3.0}, None]}, [True, False, None]),
        ('"at" // 10', {"at": [25]}, [2]),
        ("N * 2 -- twice", {"n": [4]}, [8]),
        ("case when n > 1 then text else 'few' end", {"n": [1, 2], "text": ["a", "b"]}, ["few", "b"]),
        ("coalesce(text, 'none')", {"text": [None, "x"]}, ["none", "x"]),
        ("date_trunc('hour', weather.at)::varchar", {"weather": [{"at": 3_700_000}]}, ["1970-01-01 01:00:00"]),
        ("regexp_matches(text, '^a+$')", {"text": ["aa", "ab"]}, [True, False]),
        ("n in (1, 3)", {"n": [1, 2]}, [True, False]),
        ("octet_length(bytes)", {"bytes": [b"\x00\xff"]}, [2]),
    ],
)
def test_an_expression_has_the_value_that_sql_defines(text, columns, expected):
    assert values(text, **columns) == (expected, [False] * len(expected))


@pytest.mark.parametrize(
    ("text", "columns", "failed"),
    [
        ("text::int", {"text": ["1", "x", None, "99999999999", "5"]}, [False, True, False, True, False]),
        ("n * n", {"n": [3, 2**62]}, [False, True]),
        ("strptime(text, '%Y-%m-%d')", {"text": ["2013-01-01", "soon"]}, [False, True]),
    ],
)
def test_a_row_that_cannot_be_evaluated_does_not_stop_the_others(text, columns, failed):
    assert values(text, **columns)[1] == failed


def test_the_first_expression_that_failed_is_named_per_row():
    found = evaluate(
        [check("text::int", SCHEMA), check("n * n", SCHEMA)], rows(n=[2**62, 2, 2**62], text=["1", "x", "x"])
    )
    assert found.failed.tolist() == [1, 0, 0]


def test_an_expression_of_no_rows_has_no_values():
    found = evaluate([check("n < 3", SCHEMA)], rows(n=[]))
    assert (len(found.values[0]), len(found.failed)) == (0, 0)
    assert is_true(found.values[0]).tolist() == []


def test_a_null_condition_chooses_no_row():
    found = evaluate([check_condition("n < 3", SCHEMA)], rows(n=[1, None, 5]))
    assert is_true(found.values[0]).tolist() == [True, False, False]


def test_expressions_reach_nothing_outside(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    for text in (f"read_text('{secret}')", "getenv('HOME')", "current_setting('home_directory')"):
        with pytest.raises(UserError):
            check(text, SCHEMA)


TEXTS = st.sampled_from(
    ["n + 1", "n * n", "text || 'x'", "text::int", "weather.gust / n", "n % 3 = 0", "length(text) > n", "nullif(n, 2)"]
)
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-5, 5) | st.just(2**62),
        "text": st.none() | st.sampled_from(["", "1", "x", "12", "ä"]),
        "weather": st.none() | st.fixed_dictionaries({"gust": st.none() | st.floats(-9, 9)}),
    }
)


@given(texts=st.lists(TEXTS, min_size=1, max_size=3), made=st.lists(ROW, max_size=12), cut=st.integers(0, 12))
def test_values_do_not_depend_on_where_a_batch_is_cut(texts, made, cut):
    expressions = [check(text, SCHEMA) for text in texts]
    batch = rows(**{name: [row[name] for row in made] for name in ("n", "text", "weather")})
    whole = evaluate(expressions, batch)
    first, second = (evaluate(expressions, part) for part in (batch.slice(0, cut), batch.slice(min(cut, len(made)))))
    assert whole.failed.tolist() == [*first.failed.tolist(), *second.failed.tolist()]
    good = whole.failed == EVALUATED
    for place in range(len(texts)):
        apart = [*first.values[place].to_pylist(), *second.values[place].to_pylist()]
        assert [repr(v) for v, ok in zip(whole.values[place].to_pylist(), good, strict=True) if ok] == [
            repr(v) for v, ok in zip(apart, good, strict=True) if ok
        ]


LEAVES = st.one_of(
    st.sampled_from([("n", col("n")), ("at", col("at"))]),
    st.integers(-3, 3).map(lambda number: (repr(number), number)),
)


def combined(parts):
    (left, one), (right, other) = parts
    return st.sampled_from([(f"({left} {sign} {right})", sign) for sign in "+-*"]).map(
        lambda found: (found[0], {"+": _sum, "-": _difference, "*": _product}[found[1]](one, other))
    )


def _sum(one, other):
    return one + other


def _difference(one, other):
    return one - other


def _product(one, other):
    return one * other


@given(
    pair=st.recursive(LEAVES, lambda inner: st.tuples(inner, inner).flatmap(combined), max_leaves=6),
    n=st.integers(-9, 9),
    at=st.integers(-9, 9),
)
def test_what_python_operators_write_is_what_they_mean(pair, n, at):
    text, built = pair
    found, _ = values(literal(built), n=[n], at=[at])
    assert found == [eval(text, {"n": n, "at": at})]


@pytest.mark.parametrize(
    ("built", "columns", "expected"),
    [
        (col("text") == "it's", {"text": ["it's", "its"]}, [True, False]),
        (~(col("n") > 1) | (col("n") == 7), {"n": [1, 2, 7]}, [True, False, True]),
        ((col("n") >= 2) & (col("n") != 3), {"n": [1, 2, 3]}, [False, True, False]),
        (col("weather.gust").is_null(), {"weather": [None, {"gust": 1.0}]}, [True, False]),
        (col("n").is_in(1, 3), {"n": [1, 2]}, [True, False]),
        (col("text").like("a%"), {"text": ["ab", "ba"]}, [True, False]),
        (col("text").cast("bigint") + 1, {"text": ["4"]}, [5]),
        (col("bytes") == b"\x00'", {"bytes": [b"\x00'", b""]}, [True, False]),
        (-col("n") < -1.5, {"n": [1, 2]}, [False, True]),
        (1 - col("n"), {"n": [3]}, [-2]),
        (col("at") / 2, {"at": [3]}, [1.5]),
    ],
)
def test_a_column_writes_quoted_text(built, columns, expected):
    assert isinstance(built, Column)
    assert values(str(built), **columns)[0] == expected


def test_a_column_is_no_condition_of_python():
    with pytest.raises(TypeError, match="combine conditions"):
        bool(col("n") > 1)
    with pytest.raises(TypeError, match="cannot contain a list"):
        literal([1])


def test_a_column_is_compared_with_none_as_with_null() -> None:
    assert str(col("delay") == None) == '("delay" IS NULL)'  # noqa: E711
    assert str(col("delay") != None) == '(NOT ("delay" IS NULL))'  # noqa: E711


@pytest.mark.process
def test_the_time_zone_of_the_machine_changes_nothing() -> None:
    code = (
        "from tidegate.expressions.engine import engine;"
        "print(engine().execute(\"SELECT date_part('hour', '2024-01-01 00:00:00+00'::timestamptz)\").fetchone())"
    )
    answers = {
        subprocess.run([sys.executable, "-c", code], env=os.environ | {"TZ": zone}, stdout=-1, check=True).stdout
        for zone in ("UTC", "America/New_York")
    }
    assert answers == {b"(0,)\n"}
