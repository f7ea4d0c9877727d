"""The configuration file is checked as a whole before anything starts."""

from pathlib import Path

import pytest
import yaml

from tidegate.contracts.errors import ConfigurationError, UserError
from tidegate.runtime.configuration.application import application_of, config_hash, load, override
from tidegate.state.lake.place import Place

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
    assert (application.lake.folder, application.state) == (tmp_path / "lake", tmp_path / "state")
    assert application.keep_output == 30 * 86_400_000


def test_all_problems_are_reported_at_once_wherever_they_are(tmp_path):
    bad = {**changed(surprise=1, max_ahead="5"), "trigger": "fast", "kafka": {}}
    del bad["keep_output"]
    found = problems_of(tmp_path, bad)
    assert {"operators.updates.surprise", "operators.updates.max_ahead", "trigger", "kafka", "keep_output"} <= set(
        found
    )
    assert all(problem.cause and problem.remedy for problem in found.values())


def test_the_error_of_an_unknown_kind_lists_all_kinds(tmp_path):
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
def test_settings_that_make_spark_retry_a_task_are_refused(tmp_path, name, value):
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


CANARY = "s3cr3t-canary"
POSTGRESQL = f"postgresql+psycopg://tidegate:{CANARY}@db:5432/control"


def control_of(tmp_path, content):
    return load(written(tmp_path, content)).control_database


def test_the_control_database_is_a_file_beside_the_configuration_unless_another_is_named(tmp_path):
    assert control_of(tmp_path, GOOD).url == f"sqlite:///{tmp_path}/control.db"
    assert control_of(tmp_path, {**GOOD, "control": "sqlite:////var/x.db"}).url == "sqlite:////var/x.db"
    assert control_of(tmp_path, {**GOOD, "control": POSTGRESQL}).url == POSTGRESQL
    assert control_of(tmp_path, {**GOOD, "control": None}) is None


def test_the_control_database_is_named_by_a_variable_too(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGATE_CONTROL", POSTGRESQL)
    assert control_of(tmp_path, GOOD).url == POSTGRESQL


def test_a_shown_configuration_does_not_contain_the_control_database_s_password(tmp_path):
    application = load(written(tmp_path, {**GOOD, "control": POSTGRESQL}))
    assert application.control_database.redacted_url == "postgresql+psycopg://db:5432/control"
    assert CANARY not in f"{application!r} {application.model_dump()} {application.control_database!r}"
    assert CANARY not in application.model_dump_json()


@pytest.mark.parametrize(
    "wrong",
    [
        {"control": f"mysql://tidegate:{CANARY}@db/control"},
        {"control": f"postgresql://tidegate:{CANARY}@db/control"},
        {"control": f"postgresql+psycopg://tidegate:x@{CANARY}@db/control"},
        {"control": f"postgresql+psycopg://tidegate:x/{CANARY}@db/control"},
        {"control": f"postgresql+psycopg://tidegate@db:{CANARY}/control"},
        {"control": [POSTGRESQL]},
        {"contrl": POSTGRESQL},
        {"control": POSTGRESQL, "trigger": "fast"},
        {"control": POSTGRESQL, "lake": None},
    ],
)
def test_no_problem_of_a_configuration_shows_the_password(tmp_path, wrong):
    with pytest.raises(ConfigurationError) as raised:
        load(written(tmp_path, {**GOOD, **wrong}))
    assert CANARY not in f"{raised.value} {raised.value.problems!r}"


def test_the_error_of_a_missing_key_does_not_show_the_other_values(tmp_path):
    without = {**GOOD, "control": POSTGRESQL}
    del without["lake"]
    problem = problems_of(tmp_path, without)["lake"]
    assert CANARY not in repr(problem)


def test_a_line_that_is_not_yaml_is_named_and_not_shown(tmp_path):
    with pytest.raises(UserError) as raised:
        load(written(tmp_path, f"application: flights\ncontrol: {POSTGRESQL}: x\n"))
    assert "line 2" in str(raised.value)
    assert CANARY not in str(raised.value)


URLS = (
    "s3a://bucket/lake",
    "S3://bucket/lake",
    "abfss://lake@account.dfs.core.windows.net/lake",
    "hdfs:/lake",
    "dbfs:/lake",
    "file:///lake",
    "https://host/lake",
)


@pytest.mark.parametrize("name", ["lake", "state"])
@pytest.mark.parametrize("url", URLS)
def test_a_url_is_not_accepted_as_a_folder(tmp_path, name, url):
    problem = problems_of(tmp_path, GOOD | {name: url})[name]
    assert "a URL" in problem.cause
    assert "name a folder" in problem.remedy
    assert problem.value == url


def test_a_url_in_the_environment_is_not_accepted_as_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGATE_LAKE", "hdfs://namenode/lake")
    assert "lake" in problems_of(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("url", "why", "instead"),
    [
        ("hdfs://namenode/lake", "HDFS, which has no put that succeeds only if", "name a folder, or a url"),
        ("s3a://bucket/lake", "no storage that Tidegate can use", "or write s3://"),
        ("abfss://c@account.dfs.core.windows.net/lake", "no storage that Tidegate can use", "or write az://"),
    ],
)
def test_a_url_of_another_storage_is_refused_with_what_to_write_instead(tmp_path, url, why, instead):
    problem = problems_of(tmp_path, GOOD | {"lake": url})["lake"]
    assert why in problem.cause
    assert instead in problem.remedy


@pytest.mark.parametrize("url", ["s3://bucket/lake", "gs://bucket/lake/", "az://container/lake"])
def test_a_lake_can_be_in_an_object_store(tmp_path, url):
    lake = load(written(tmp_path, GOOD | {"lake": url})).lake
    assert (str(lake), lake.is_local) == (url.rstrip("/"), False)


def test_options_of_a_lake_go_with_its_place_and_a_file_of_secrets_is_relative_to_the_file(tmp_path):
    options = {"endpoint": "http://127.0.0.1:9000", "secret_file": "keys"}
    lake = load(written(tmp_path, GOOD | {"lake": "s3://bucket/lake", "lake_options": options})).lake
    assert dict((lake / "op").options) == {"endpoint": "http://127.0.0.1:9000", "secret_file": str(tmp_path / "keys")}


def test_options_of_a_lake_are_merged_however_the_application_is_described():
    lake, options = "s3://data/x", {"region": "eu-west-1"}
    raw = {**GOOD, "lake": lake, "lake_options": options}
    assert application_of(raw).lake == Place.of(lake, options)
    assert application_of({**raw, "lake": Place.of(lake, {"endpoint": "http://store"})}).lake == Place.of(
        lake, {"endpoint": "http://store", **options}
    )


@pytest.mark.parametrize(
    ("lake", "options"),
    [
        ("lake", {"profile": "prod"}),
        ("s3://bucket/lake", {"secret_access_key": "x"}),
        ("gs://b/lake", {"endpoint": "x"}),
        ("az://b/lake", {"profile": "p"}),
    ],
)
def test_options_that_the_lake_does_not_have_are_refused(tmp_path, lake, options):
    problem = problems_of(tmp_path, GOOD | {"lake": lake, "lake_options": options})["lake_options"]
    assert problem.remedy


@pytest.mark.parametrize("wrong", ["1", 1, "1 EUR/day", "0 USD/day", "-1 USD/day", "1 USD/month", "", None])
def test_a_budget_is_written_as_dollars_a_day(tmp_path: Path, wrong: object) -> None:
    if wrong is None:
        assert load(written(tmp_path, {**GOOD, "lake_budget": None})).lake_budget is None
        return
    with pytest.raises(ConfigurationError) as refused:
        load(written(tmp_path, {**GOOD, "lake": "s3://bucket/lake", "lake_budget": wrong}))
    assert "1 USD/day" in str(refused.value)


def test_a_budget_is_refused_where_requests_cost_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cost nothing"):
        load(written(tmp_path, {**GOOD, "lake_budget": "1 USD/day"}))


def test_batches_wait_longer_by_default_where_requests_cost_money(tmp_path: Path) -> None:
    bare = {name: value for name, value in GOOD.items() if name != "trigger"}
    local, remote = (load(written(tmp_path, {**bare, "lake": lake})) for lake in ("lake", "s3://bucket/lake"))
    assert (local.trigger_ms, remote.trigger_ms) == (200, 5_000)
    limited = load(written(tmp_path, {**bare, "lake": "s3://bucket/lake", "lake_budget": "0.50 USD/day"}))
    assert (limited.lake_budget, limited.longest_pause_s) == (0.5, 30.0)
    assert load(written(tmp_path, {**bare, "trigger": "0"})).trigger_ms == 0
