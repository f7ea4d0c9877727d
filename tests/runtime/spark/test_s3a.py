"""Hadoop's settings for a lake on S3: those of its bucket, without keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.contracts.errors import UserError
from tidegate.runtime.spark import s3a
from tidegate.runtime.spark.s3a import jars_for, settings
from tidegate.state.lake.place import Place

pytestmark = pytest.mark.fast

_PROVIDER = "fs.s3a.bucket.data.aws.credentials.provider"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")


def test_a_bucket_of_the_cloud_needs_the_credentials_of_the_machine_only() -> None:
    assert settings(Place.of("s3://data/lake")) == {_PROVIDER: s3a._OF_THE_MACHINE}


def test_another_server_is_reached_by_path_and_without_tls_if_it_has_none() -> None:
    found = settings(Place.of("s3://data/lake", {"endpoint": "http://store:9000", "region": "eu-west-1"}))
    assert {name.removeprefix("fs.s3a.bucket.data."): value for name, value in found.items()} == {
        "aws.credentials.provider": s3a._OF_THE_MACHINE,
        "endpoint": "http://store:9000",
        "endpoint.region": "eu-west-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    assert "connection.ssl.enabled" not in str(settings(Place.of("s3://data/lake", {"endpoint": "https://store"})))


def test_the_environment_names_the_server_as_it_does_for_the_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://store")
    assert settings(Place.of("s3://data/lake"))["fs.s3a.bucket.data.endpoint"] == "https://store"


def test_a_profile_is_named_and_read_by_each_machine() -> None:
    found = settings(Place.of("s3://data/lake", {"profile": "team", "secret_file": "/run/secrets/s3"}))
    assert found == {
        _PROVIDER: s3a._OF_A_PROFILE,
        "fs.s3a.bucket.data.auth.profile.name": "team",
        "fs.s3a.bucket.data.auth.profile.file": "/run/secrets/s3",
    }


def test_only_a_lake_on_s3_needs_more_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_HOME", str(tmp_path))
    assert jars_for(None) == jars_for(Place.of("/lake")) == jars_for(Place.of("gs://data/lake")) == []
    with pytest.raises(UserError, match="jars with which Spark reads S3") as missing:
        jars_for(Place.of("s3://data/lake"))
    assert "setup --s3" in missing.value.remedy
