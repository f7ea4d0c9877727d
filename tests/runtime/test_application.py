"""The configuration file is checked as a whole before anything starts."""

import pytest
import yaml

from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.runtime.application import config_hash, load, override

pytestmark = pytest.mark.fast

GOOD = {
    "application": "flights",
    "lake": "./lake",
    "keep_output": "30d",
    "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
    "operators": {
        "updates": {
            "kind": "suppression",
            "input": "departures",
            "output": "updates",
            "until": {"time_limit": "30m"},
            "buffer": {"max_keys": 1000, "when_full": "emit"},
        }
    },
}


def written(tmp_path, content):
    file = tmp_path / "file.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


def changed(**operator):
    return {**GOOD, "operators": {"updates": {**GOOD["operators"]["updates"], **operator}}}


def problems_of(tmp_path, content):
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, content))
    return {problem.where: problem for problem in raised.value.problems}


def test_paths_are_relative_to_the_file(tmp_path):
    application = load(written(tmp_path, GOOD))
    assert (application.lake, application.state) == (tmp_path / "lake", tmp_path / "state")
    assert application.keep_output == 30 * 86_400_000


def test_all_problems_are_told_at_once_wherever_they_are(tmp_path):
    bad = {**changed(surprise=1, max_ahead="5"), "trigger": "fast", "kafka": {}}
    del bad["keep_output"]
    found = problems_of(tmp_path, bad)
    assert {"operators.updates.surprise", "operators.updates.max_ahead", "trigger", "kafka", "keep_output"} <= set(
        found
    )
    assert all(problem.cause and problem.remedy for problem in found.values())


def test_an_unknown_kind_names_what_there_is(tmp_path):
    found = problems_of(tmp_path, changed(kind="supression"))
    assert "suppression" in found["operators.updates.kind"].remedy


def test_a_name_that_no_table_or_view_can_have_is_refused(tmp_path):
    found = problems_of(tmp_path, {**GOOD, "operators": {"Bad-Name": GOOD["operators"]["updates"]}})
    assert "operators.Bad-Name" in found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.speculation", "true"),
        ("spark.speculation", "TRUE"),
        ("spark.task.maxFailures", "4"),
        ("spark.stage.maxConsecutiveAttempts", "4"),
    ],
)
def test_what_would_make_spark_run_a_task_again_is_refused(tmp_path, name, value):
    refused = problems_of(tmp_path, {**GOOD, "spark": {"conf": {name: value, "spark.executor.memory": "2g"}}})
    assert f"remove {name}" in refused["spark.conf"].remedy
    assert load(written(tmp_path, {**GOOD, "spark": {"conf": {"spark.speculation": "false"}}}))


def test_a_missing_file_and_one_that_is_not_yaml_are_user_errors(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="not YAML"):
        load(written(tmp_path, "a: [1"))
    with pytest.raises(UserError, match="no configuration"):
        load(written(tmp_path, "just text"))


def test_environment_variables_override_the_file():
    environment = {
        "TIDEGATE_KAFKA__BOOTSTRAP_SERVERS": "broker:9",
        "TIDEGATE_TRIGGER": "1s",
        "TIDEGATE_OPERATORS__UPDATES__BUFFER__MAX_KEYS": "5",
        "TIDEGATE_NUMBA": "off",
        "OTHER": "x",
    }
    result = override(GOOD, environment)
    assert result["kafka"]["bootstrap.servers"] == "broker:9"
    assert result["trigger"] == "1s"
    assert result["operators"]["updates"]["buffer"]["max_keys"] == 5
    assert "numba" not in result and "other" not in result


def test_the_hash_of_a_configuration_changes_with_anything_that_decides_output(tmp_path):
    one = load(written(tmp_path, GOOD)).operators["updates"]
    same = load(written(tmp_path, GOOD)).operators["updates"]
    other = load(written(tmp_path, changed(timer="last_update"))).operators["updates"]
    assert config_hash(one) == config_hash(same) != config_hash(other)
