"""Expressions and functions of a pipeline read headers of records as typed columns."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tests.application.programs import application
from tests.pipelines.test_stateless_steps import place, sift, values_of
from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.records import Row
from tidegate.contracts.values import Values, schema_of
from tidegate.kernels.record_format.record_headers import encode_headers
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.pipeline.rules.places import Place
from tidegate.operators.pipeline.rules.steps import Filter, WithColumns
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Partition

pytestmark = pytest.mark.fast

TYPES = (("trace", "string"), ("retries", "int32"))
RECORDS = [
    [(b"trace", b"a"), (b"retries", b"\0\0\0\2")],
    [(b"trace", b"b"), (b"other", b"x"), (b"trace", b"c")],
    [(b"retries", None)],
    [],
    [(b"trace", b"\xff"), (b"retries", b"\0\0\0\1")],
    [(b"trace", b"d"), (b"retries", b"\0\1")],
]


def at() -> Place:
    return place(Values.of_bytes(), headers=TYPES)


def rows() -> list[Row]:
    return [Row(b"k", b"%d" % n, 10 + n, n, encode_headers(headers)) for n, headers in enumerate(RECORDS)]


def test_a_filter_reads_headers_by_name_and_of_several_the_last_one_counts() -> None:
    sifted = sift([Filter(filter="headers.trace = 'c' OR headers.retries = 2")], rows()[:4], at())
    assert (values_of(sifted), sifted.rejected.tolist()) == ([b"0", b"1"], [])


def test_a_header_that_a_record_lacks_or_that_is_null_is_null() -> None:
    sifted = sift([Filter(filter="headers.retries IS NULL")], rows()[:4], at())
    assert values_of(sifted) == [b"1", b"2", b"3"]


def test_a_record_whose_header_is_not_of_its_type_is_rejected_with_the_name_of_the_header() -> None:
    sifted = sift([Filter(filter="headers.retries > 0 OR headers.trace > ''")], rows(), at())
    assert dict(zip(sifted.rejected.tolist(), sifted.causes, strict=True)) == {
        4: "header trace: not UTF-8",
        5: "header retries: not int32",
    }


def test_a_header_that_no_step_reads_rejects_no_record() -> None:
    sifted = sift([Filter(filter="headers.retries = 1")], rows()[:5], at())
    assert (values_of(sifted), sifted.rejected.tolist()) == ([b"4"], [])


def test_a_value_gets_a_header_as_a_field() -> None:
    step = WithColumns(with_columns={"trace": "headers.trace"})
    shown = place(Values.of_fields(schema_of({"n": "int64"})), headers=TYPES)
    records = [Row(b"k", b'{"n":1}', 10, 0, encode_headers(RECORDS[0]))]
    assert values_of(sift([step], records, shown)) == [b'{"n":1,"trace":"a"}']


def test_a_field_of_the_value_hides_the_headers() -> None:
    shown = place(Values.of_fields(schema_of({"headers": "int64"})), headers=TYPES)
    assert values_of(sift([Filter(filter="headers = 1")], [Row(b"k", b'{"headers":1}', 10, 0)], shown))


def test_headers_are_there_behind_a_suppression_and_null_behind_windows() -> None:
    suppression = {"name": "slow", "kind": "suppression", "until": {"time_limit": "0ms"}}
    count = {"name": "n", "kind": "windowed_aggregation", "window": {"tumbling": "5ms", "grace": 0}}
    behind = {"filter": "headers.trace IS NOT NULL"}
    for step, kept in ((suppression, [b"0", b"1"]), (count | {"aggregate": {"count": True}, "emit": "updates"}, [])):
        partition = Partition(operator_for(config(steps=[step, behind])), 0)
        partition.play(rows()[:4])
        assert [row["value"] for row in partition.trace.emissions] == kept


def test_headers_are_written_in_a_program_as_in_a_file() -> None:
    app = application()
    stream = app.stream("gates", name="traced", headers={"trace": tg.string(), "retries": tg.int32()})
    stream.filter("headers.retries > 1").to("retried")
    assert app.check() is None
    assert "headers:\n      trace: string\n      retries: int32\n" in app.to_yaml()
    assert tg.Application.from_yaml(app.to_yaml()) == app


@pytest.mark.parametrize(
    ("headers", "cause"),
    [
        ({"trace": tg.json()}, "header trace has no format of Kafka's own serializers"),
        ({"trace": "string"}, "header trace has no format of Kafka's own serializers"),
        (["trace"], "not the headers that steps read"),
        ({"": tg.string()}, "'' is not the name of a header"),
        ({"a": tg.string(), "A": tg.string()}, "two headers differ in upper and lower case alone"),
    ],
)
def test_headers_that_mean_nothing_are_one_problem_of_their_call(headers: Any, cause: str) -> None:
    app = application()
    app.stream("gates", name="traced", headers=headers).filter("headers.trace = 'a'").to("some")
    with pytest.raises(ConfigurationError) as caught:
        app.check()
    [problem] = caught.value.problems
    assert problem.cause == cause and ".stream() of traced, headers" in problem.where
    assert "write headers" in problem.remedy or "name one of them" in problem.remedy


def test_a_header_without_a_type_is_an_unknown_column() -> None:
    with pytest.raises(ConfigurationError, match="no field trace_id in headers"):
        config(steps=[{"filter": "headers.trace_id = 'a'"}])


def test_types_of_headers_change_while_the_pipeline_runs() -> None:
    before, after = config(headers={}), config()
    assert not [each for each in after.part_changes(before)["steps"] if each.refused]


def config(**options: Any) -> PipelineConfig:
    given = {"kind": "pipeline", "input": "gates", "headers": dict(TYPES), "steps": [{"filter": "key IS NOT NULL"}]}
    found = read(PipelineConfig, given | options)
    assert isinstance(found, PipelineConfig)
    return found
