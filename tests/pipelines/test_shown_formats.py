"""How views show keys and values: in the format that they have at each place of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.test_avro_values import FLIGHT, SUPPRESSED, avro
from tests.pipelines.test_protobuf_values import protobuf
from tests.pipelines.test_rules import COUNTS, pipeline
from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.values import Avro, AvroOutput, Protobuf
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.suppression import SuppressionConfig
from tidegate.operators.views import as_received, shown_columns

pytestmark = pytest.mark.fast

WRITTEN = {"encode": {"avro": {"schema": {**FLIGHT, "fields": FLIGHT["fields"][:2]}, "number": 3}}}
DELAY = {"select": {"delay": "delay::bigint"}}
LONG = {"encode": "int64", "name": "long"}


def formats(config: PipelineConfig, step: str | None = None) -> tuple[ShownAs, ShownAs]:
    found = config.shown(step)
    return found.key_format, found.value_format


def test_values_that_no_step_changes_have_the_type_of_the_input(tmp_path: Path) -> None:
    for value, type in ((avro(tmp_path), Avro), (protobuf(tmp_path), Protobuf)):
        config = pipeline(SUPPRESSED, key="int32", value=value)
        for step in (None, "held"):
            key, shown = formats(config, step)
            assert key == "int32" and isinstance(shown, type)
    assert formats(pipeline(SUPPRESSED, key="uuid", value="float64"), "held") == ("string", "float64")


def test_keys_have_the_type_of_the_input_until_a_step_changes_them(tmp_path: Path) -> None:
    config = pipeline(SUPPRESSED, key=avro(tmp_path))
    assert isinstance(formats(config, "held")[0], Avro) and isinstance(formats(config)[0], Avro)
    assert config.shown_formats() >= {formats(config)[0]}
    rekeyed = pipeline({"select_key": "key.carrier"}, key=avro(tmp_path), output="b", output_partitions=4)
    assert formats(rekeyed)[0] == "string"
    assert formats(pipeline(SUPPRESSED, key=avro(tmp_path), key_format="bytes"))[0] == "bytes"


def test_results_have_the_format_in_which_a_step_writes_them(tmp_path: Path) -> None:
    config = pipeline(DELAY, SUPPRESSED, LONG, value=avro(tmp_path))
    assert (formats(config)[1], formats(config, "held")[1], formats(config, "long")[1]) == ("int64", "json", "bytes")
    assert isinstance(formats(pipeline(SUPPRESSED, WRITTEN, value={"json": FIELDS}))[1], AvroOutput)
    assert formats(pipeline(COUNTS, value="int64"))[1] == "json"


FIELDS: dict[str, Any] = {"carrier": "string", "delay": "int32"}


def test_rows_of_a_step_without_a_name_are_results() -> None:
    encoded = {each: value for each, value in LONG.items() if each != "name"}
    assert formats(pipeline(SUPPRESSED, encoded, value={"json": {"delay": "int64"}}), "2")[1] == "int64"


def test_views_whose_rows_have_several_formats_show_bytes(tmp_path: Path) -> None:
    steps = [SUPPRESSED, {"to": "as-they-came"}, DELAY, LONG]
    assert formats(pipeline(*steps, value=avro(tmp_path)))[1] == "bytes"


def test_a_format_that_is_given_counts(tmp_path: Path) -> None:
    config = pipeline(SUPPRESSED, key="int64", value=avro(tmp_path), key_format="bytes", value_format="bytes")
    assert formats(config) == formats(config, "held") == ("bytes", "bytes")


def test_late_and_rejected_rows_show_the_bytes_that_came() -> None:
    config = SuppressionConfig(input="in", output="out", until={"time_limit": "1s"}, key_format="int64")
    key, value = shown_columns(config)
    assert key.endswith("(key)") and value == "value"
    assert shown_columns(as_received(config)) == ("key", "value")
    assert as_received(config.model_copy(update={"value_format": "json"})).value_format == "json"
