"""A place names a folder in the lake, and travels as text."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tidegate.contracts.errors import UserError
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place, options_problem, place_named, problem_of

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("url", ["/data/lake", "s3://bucket/lake", "gs://bucket/lake", "az://container/lake"])
def test_a_place_has_names_below_it_and_a_parent(url: str) -> None:
    place = Place.of(url + "/", {"region": "eu-west-1"})
    below = place / "flights"
    assert (str(below), below.name, below.parent) == (f"{url}/flights", "flights", place)
    assert below.options == place.options == (("region", "eu-west-1"),)


def test_a_place_is_its_text_and_options_after_a_pickle_too() -> None:
    place = Place.of("s3://bucket/lake", {"profile": "prod", "endpoint": "http://127.0.0.1:9000"})
    assert pickle.loads(pickle.dumps(place)) == place
    assert place != Place.of("s3://bucket/lake")
    assert len({place, pickle.loads(pickle.dumps(place))}) == 1


def test_a_place_is_a_folder_unless_it_has_a_scheme() -> None:
    assert Place.of("/data/lake").is_local
    assert Place.of(Path("/data/lake")).folder == Path("/data/lake")
    assert not Place.of("s3://bucket/lake").is_local
    with pytest.raises(AssertionError):
        Place.of("s3://bucket/lake").folder  # noqa: B018


def test_spark_reads_s3_by_the_scheme_of_hadoops_client() -> None:
    assert Place.of("s3://bucket/lake").for_spark == "s3a://bucket/lake"
    assert Place.of("/data/lake").for_spark == "/data/lake"


def test_only_a_relative_path_starts_at_the_folder_of_the_configuration() -> None:
    assert Place.of("lake").within(Path("/conf")) == Place.of("/conf/lake")
    assert Place.of("/data/lake").within(Path("/conf")) == Place.of("/data/lake")
    assert Place.of("s3://bucket/lake").within(Path("/conf")) == Place.of("s3://bucket/lake")


@pytest.mark.parametrize(
    "url", ["hdfs://namenode/lake", "hdfs:/lake", "S3://bucket/lake", "https://example.com/lake", "s3://", "s3:///lake"]
)
def test_a_url_of_another_storage_or_without_a_bucket_is_refused(url: str) -> None:
    assert problem_of(Place.of(url)) is not None


def test_options_are_known_names_for_an_object_store() -> None:
    assert options_problem({"profile": "prod"}, Place.of("s3://bucket/lake")) is None
    assert options_problem({"secret_key": "x"}, Place.of("s3://bucket/lake")) is not None
    assert options_problem({"profile": "prod"}, Place.of("/data/lake")) is not None


def test_a_place_is_opened_once_in_a_process(tmp_path: Path) -> None:
    assert open_lake(Place.of(tmp_path)) is open_lake(Place.of(str(tmp_path)))


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("s3://bucket/lake/log", {"password": "hunter2"}, "no option of s3://: password"),
        ("lake/log", {"region": "eu-west-1"}, "a folder has no options"),
        ("s3a://bucket/lake/log", None, "write s3://BUCKET/FOLDER"),
    ],
)
def test_a_program_that_names_a_lake_wrongly_is_told_what_to_write(url, options, message):
    with pytest.raises(UserError) as error:
        place_named(url, options)
    assert message in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_program_names_folders_and_secret_files_from_where_it_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert place_named("lake/log") == Place.of(tmp_path / "lake" / "log")
    found = place_named("s3://bucket/log", {"secret_file": "keys", "region": "eu-west-1"})
    assert found == Place.of("s3://bucket/log", {"secret_file": str(tmp_path / "keys"), "region": "eu-west-1"})
