"""What becomes of requests to an object store when answers are lost, late or doubled, and when the store refuses."""

from __future__ import annotations

import itertools
import os
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lake.fault_proxy import FaultProxy
from tests.lake.s3_server import LOGIN, REGION, S3Server
from tidegate.contracts.errors import TidegateError, Unavailable, UserError
from tidegate.state.lake import stores
from tidegate.state.lake.object_lake import DELETED_AT_ONCE
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake

NUMBERS = itertools.count()
KEY = "_delta_log/00000000000000000001.json"


@pytest.fixture
def lake(proxy: FaultProxy) -> Lake:
    return open_lake(proxy.server.place(f"faults-{os.getpid()}-{next(NUMBERS)}"))


@pytest.mark.parametrize("fate", ["lost", "failed", "late", "delayed", "doubled", "reset", "busy", "conflict"])
def test_a_conditional_put_is_settled_by_what_is_in_the_lake(lake: Lake, proxy: FaultProxy, fate) -> None:
    proxy.next(fate)
    assert lake.put_if_absent(KEY, b"mine")
    time.sleep(0.4 if fate == "late" else 0)
    assert lake.get(KEY) == b"mine"
    assert not lake.put_if_absent(KEY, b"other")
    assert lake.get(KEY) == b"mine"


@pytest.mark.parametrize("fate", ["lost", "failed", "late", "delayed", "doubled", "reset", "busy", "conflict"])
def test_a_conditional_put_never_replaces_another_object(lake: Lake, proxy: FaultProxy, fate) -> None:
    assert lake.put_if_absent(KEY, b"theirs")
    proxy.next(fate)
    assert not lake.put_if_absent(KEY, b"mine")
    time.sleep(0.4 if fate == "late" else 0)
    assert lake.get(KEY) == b"theirs"


def test_one_writer_wins_while_answers_are_lost_doubled_and_refused(lake: Lake, proxy: FaultProxy) -> None:
    with ThreadPoolExecutor(20) as pool:
        for number in range(8):
            for fate in ("lost", "conflict", "doubled", "failed", "reset", "late", "busy"):
                proxy.next(fate)
            won = list(pool.map(lambda writer: lake.put_if_absent(f"x/{number}", b"%d" % writer), range(20)))  # noqa: B023
            assert won.count(True) == 1
            assert lake.get(f"x/{number}") == b"%d" % won.index(True)
            proxy.heal()


def test_a_put_that_nobody_explains_ends_as_unavailable(proxy: FaultProxy) -> None:
    from tidegate.state.lake.object_lake import ObjectLake

    class NoWaiting:
        def sleep(self, seconds: float) -> None:
            waited.append(seconds)

    waited: list[float] = []
    proxy.next("conflict", times=100)
    with pytest.raises(Unavailable, match="refuses to write"):
        ObjectLake(proxy.server.place("unexplained"), NoWaiting()).put_if_absent(KEY, b"mine")  # type: ignore[arg-type]
    assert 5 < sum(waited) < 10


@pytest.mark.parametrize("fate", ["lost", "failed", "delayed", "doubled", "reset", "busy"])
def test_reads_puts_listings_and_deletes_are_repeated(lake: Lake, proxy: FaultProxy, fate) -> None:
    proxy.next(fate, kind="PUT")
    tag = lake.put("d/a", b"content")
    proxy.next(fate, kind="GET")
    assert lake.get("d/a") == b"content"
    proxy.next(fate, kind="HEAD")
    assert lake.etag("d/a") == tag
    proxy.next(fate, kind="LIST")
    assert [found.key for found in lake.list_after("d")] == ["d/a"]
    proxy.next(fate, kind="POST")
    lake.delete(["d/a"])
    assert lake.get("d/a") is None


def test_a_stale_listing_decides_nothing(lake: Lake, proxy: FaultProxy) -> None:
    assert list(lake.list_after("_delta_log")) == []
    assert lake.put_if_absent(KEY, b"theirs")
    proxy.next("stale", kind="LIST")
    assert list(lake.list_after("_delta_log")) == []
    assert not lake.put_if_absent(KEY, b"mine")


def test_a_thousand_keys_are_deleted_by_one_request(lake: Lake, proxy: FaultProxy) -> None:
    lake.delete([f"d/{number}" for number in range(DELETED_AT_ONCE + 1)])
    assert proxy.count("POST") == 2
    assert proxy.count("DELETE") == 0


def test_small_objects_take_one_request_and_large_ones_pieces(lake: Lake, proxy: FaultProxy) -> None:
    lake.put("small", b"x" * 8 * 2**20)
    assert (proxy.count("PUT"), len(lake.get("small") or b""), proxy.count("GET")) == (1, 8 * 2**20, 1)
    lake.put("large", b"x" * 20 * 2**20)
    assert proxy.count("PUT") == 1 + 3
    assert lake.get("large") == b"x" * 20 * 2**20
    assert proxy.count("GET") == 1 + 3


def test_a_store_that_is_away_is_unavailable_and_works_again(lake: Lake, proxy: FaultProxy) -> None:
    assert lake.put_if_absent(KEY, b"mine")
    proxy.always("reset")
    for call in (
        lambda: lake.put_if_absent("b", b"x"),
        lambda: lake.put("b", b"x"),
        lambda: lake.get(KEY),
        lambda: lake.etag(KEY),
        lambda: list(lake.list_after("")),
        lambda: lake.delete(["b"]),
    ):
        with pytest.raises(Unavailable, match="does not answer"):
            call()
    proxy.heal()
    assert lake.get(KEY) == b"mine"


def test_a_refusal_is_the_users_to_mend_and_writes_nothing(lake: Lake, proxy: FaultProxy) -> None:
    proxy.always("denied")
    for call in (lambda: lake.put_if_absent(KEY, b"x"), lambda: lake.get(KEY), lambda: list(lake.list_after("d"))):
        with pytest.raises(UserError, match="refuses the credentials") as refused:
            call()
        assert "AccessDenied" in str(refused.value)
    proxy.heal()
    assert lake.get(KEY) is None


def test_expired_credentials_are_waited_for(lake: Lake, proxy: FaultProxy) -> None:
    proxy.always("expired")
    with pytest.raises(Unavailable, match="have expired"):
        lake.put_if_absent(KEY, b"x")
    proxy.heal()
    assert lake.put_if_absent(KEY, b"x")


def test_a_missing_bucket_is_named(s3: S3Server) -> None:
    nowhere = open_lake(Place.of("s3://no-such-bucket/x", {"endpoint": s3.endpoint, "region": REGION}))
    for call in (
        lambda: nowhere.put_if_absent(KEY, b"x"),
        lambda: nowhere.put("b", b"x"),
        lambda: nowhere.get(KEY),
        lambda: list(nowhere.list_after("d")),
    ):
        with pytest.raises(UserError, match="bucket does not exist"):
            call()


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of credentials instead of keys in the environment."""
    for name in LOGIN:
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    write_profile(file, LOGIN["AWS_SECRET_ACCESS_KEY"])
    return file


def write_profile(file: Path, secret: str) -> None:
    file.write_text(f"[team]\naws_access_key_id = {LOGIN['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {secret}\n")


def with_options(server: S3Server, **options: str) -> Lake:
    place = server.place(f"profile-{next(NUMBERS)}")
    return open_lake(Place.of(place.url, {**dict(place.options), **options}))


def test_a_profile_of_a_mounted_file_gives_the_keys(s3: S3Server, profile: Path) -> None:
    lake = with_options(s3, profile="team", secret_file=str(profile))
    assert lake.put_if_absent(KEY, b"mine")


def test_a_replaced_file_of_credentials_is_read_when_the_store_refuses_the_old_ones(
    s3: S3Server, profile: Path
) -> None:
    write_profile(profile, "of-yesterday")
    lake = with_options(s3, profile="team", secret_file=str(profile))
    with pytest.raises(UserError, match="SignatureDoesNotMatch"):
        lake.put_if_absent(KEY, b"mine")
    write_profile(profile, LOGIN["AWS_SECRET_ACCESS_KEY"])
    assert lake.put_if_absent(KEY, b"mine")


def test_a_missing_profile_is_named(s3: S3Server, profile: Path) -> None:
    with pytest.raises(UserError, match="no access keys of this profile") as refused:
        with_options(s3, profile="another", secret_file=str(profile)).get("a")
    assert LOGIN["AWS_SECRET_ACCESS_KEY"] not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("role_arn = arn:aws:iam::1:role/x\nsource_profile = team", "config"),
        ("sso_session = corporate", "config"),
        ("credential_process = /bin/keys", "credentials"),
    ],
)
def test_a_profile_that_takes_its_keys_from_elsewhere_is_refused_with_what_to_do(
    s3: S3Server, profile: Path, monkeypatch: pytest.MonkeyPatch, setting: str, where: str
) -> None:
    config = profile.with_name("config")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    config.write_text(f"[profile corporate]\n{setting}\n" if where == "config" else "")
    if where == "credentials":
        profile.write_text(f"{profile.read_text()}[corporate]\n{setting}\n")
    with pytest.raises(UserError, match="takes its keys from elsewhere") as refused:
        with_options(s3, profile="corporate", secret_file=str(profile)).get("a")
    assert setting.partition(" ")[0] in refused.value.problem
    assert "export-credentials --profile corporate" in refused.value.remedy


def test_no_error_address_or_text_has_a_part_of_the_credentials(s3: S3Server, profile: Path) -> None:
    write_profile(profile, "another-secret")
    lake = with_options(s3, profile="team", secret_file=str(profile))
    with pytest.raises(TidegateError) as refused:
        lake.get("a")
    shown = "".join(traceback.format_exception(refused.value)) + repr(lake) + str(lake) + repr(vars(lake))
    for secret in ("another-secret", "StringToSign", "AWSAccessKeyId", "Signature="):
        assert secret not in shown


@pytest.mark.parametrize("url", ["s3://lake--use1-az4--x-s3/flights", "s3://user:password@lake/flights", "s3:///x"])
def test_places_that_cannot_hold_a_lake_are_refused(url: str) -> None:
    with pytest.raises(UserError) as refused:
        open_lake(Place.of(url))
    assert "password" not in str(refused.value)


def test_a_process_forked_after_the_first_use_is_told(lake: Lake) -> None:
    assert lake.put_if_absent(KEY, b"mine")
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lake.get(KEY)
        except BaseException as error:
            os.write(tell, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"before this process was forked" in os.read(told, 1000)


def test_a_store_is_opened_once_for_all_logs_of_a_bucket(s3: S3Server) -> None:
    bucket = stores.bucket_of(s3.place("one"))
    assert stores.store_of(bucket) is stores.store_of(stores.bucket_of(s3.place("another/log")))
