"""The doctor tries a lake in an object store: rights, who wins, what is listed, and how long it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.lake.fault_proxy import FaultProxy
from tests.lake.s3_server import S3Server
from tidegate.runtime.doctor import object_stores
from tidegate.runtime.doctor.object_stores import (
    FOLDER,
    SLOW_PUT_MS,
    STORE_CHECKS,
    WRITERS,
    StoreProbe,
    collect_probe,
    is_remote,
)
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place

FINE = StoreProbe(place=Place.of("s3://data/lake"), winners=(1, 1, 1), put_ms=40.0, get_ms=15.0)


def found(probe: StoreProbe) -> list[str]:
    return [finding.problem for check in STORE_CHECKS for finding in check(probe)]


def test_a_real_store_passes_and_nothing_of_the_probe_is_left(s3: S3Server) -> None:
    [probe] = collect_probe(s3.place("doctor"))
    assert found(replace(probe, put_ms=1.0)) == []
    assert (probe.winners, probe.listed, probe.left) == ([1, 1, 1], True, 0)
    assert probe.get_ms > 0 and probe.put_ms > 0
    assert list(open_lake(s3.place("doctor")).list_after(FOLDER)) == []


def test_a_refusal_is_reported_with_its_remedy(proxy: FaultProxy) -> None:
    proxy.always("denied")
    [probe] = collect_probe(proxy.server.place("doctor"))
    [finding] = [finding for check in STORE_CHECKS for finding in check(probe)]
    assert finding.problem == "the lake refuses the credentials of this machine"
    assert "policy" in finding.remedy


def test_a_folder_of_a_disk_is_not_probed_and_one_of_a_network_is(tmp_path: Path, monkeypatch) -> None:
    place = Place.of(tmp_path)
    assert collect_probe(place) == []
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/lake {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(object_stores, "_MOUNTS", mounts)
    [probe] = collect_probe(place)
    assert (probe.winners, probe.listed, probe.left) == ([1, 1, 1], True, 0)
    assert collect_probe(place / "missing") == []


@pytest.mark.parametrize(
    ("folder", "remote"),
    [("/data/lake", True), ("/data/local/x", False), ("/home/x", False), ("/my mount/x", True), ("/hidden/x", False)],
)
def test_the_file_system_of_a_folder_is_that_of_the_closest_mount(folder: str, remote: bool) -> None:
    mounts = "\n".join(
        (
            "/dev/vda / ext4 rw 0 0",
            "server:/a /data nfs rw 0 0",
            "/dev/vdb /data/local xfs rw 0 0",
            r"bucket /my\040mount fuse.s3fs rw 0 0",
            "server:/b /hidden nfs4 rw 0 0",
            "/dev/vdc /hidden ext4 rw 0 0",
        )
    )
    assert is_remote(Path(folder), mounts) == remote


@pytest.mark.parametrize(
    ("probe", "problem"),
    [
        (replace(FINE, winners=(1, WRITERS, 1)), "does not decide between writers"),
        (replace(FINE, winners=(1, 0, 1)), "does not decide between writers"),
        (replace(FINE, listed=False), "does not list"),
        (replace(FINE, left=3), "cannot be deleted"),
        (replace(FINE, put_ms=SLOW_PUT_MS + 1.0), "is slow"),
    ],
)
def test_what_a_probe_shows_is_reported(probe: StoreProbe, problem: str) -> None:
    assert found(FINE) == []
    [reported] = found(probe)
    assert problem in reported
