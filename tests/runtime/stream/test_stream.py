"""What can happen to an operator on a streaming DataFrame: crashes, refusals, full buffers, stops."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from threading import Event

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.kill.service import QUICK_START
from tests.runtime.stream.conftest import PARTITIONS, Place, records_in
from tests.runtime.stream.program import KEYS, made
from tidegate.contracts.errors import ConfigurationError, StateError, UserError
from tidegate.runtime.stream.query import BatchGate
from tidegate.spark import start

pytestmark = pytest.mark.spark


def row(number, key="a", at=0, payload=b"x"):
    """One row of the input."""
    return {"id": key, "payload": payload, "at": at, "number": number}


def killed_at(point: str, folder) -> None:
    """The program has died there, all of its processes at once."""
    died = subprocess.run(
        [sys.executable, "-m", "tests.runtime.stream.program", str(folder)],
        env={**os.environ, **QUICK_START, "TIDEGATE_KILL_AT": point},
        start_new_session=True,
        timeout=300,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL


@pytest.mark.kill
@pytest.mark.parametrize("point", ["after_commit:2", "before_commit:2", "after_dirty_header:2"])
def test_a_batch_is_applied_once_though_spark_runs_it_again_after_a_kill(spark, tmp_path, point):
    here, calm = Place(spark, tmp_path / "here"), Place(spark, tmp_path / "calm")
    for piece in made(4):
        here.write(piece)
        calm.write(piece)
    killed_at(point, here.folder)
    committed = here.metas()[-1].query_batch
    assert committed in {"after_commit:2": [1], "before_commit:2": [0], "after_dirty_header:2": [-1, 0]}[point]
    assert {path.name for path in (here.checkpoint / "commits").glob("[0-9]")} == ({"0"} if committed >= 0 else set())
    here.run()
    calm.run()
    assert here.outputs() == calm.outputs()
    assert here.held() == calm.held()
    assert records_in(here.metas()) == 4 * KEYS


def test_null_keys_and_times_are_rejected_and_stop_no_other_record(place):
    here = place()
    here.write([row(1), row(2, key=None), row(3, at=None), row(4, key=None, at=None), row(5, at=5, payload=None)])
    here.run()
    rejected = sorted(here.rows("rejected"), key=lambda found: (found["cause"], found["partition"], found["offset"]))
    assert [found["cause"] for found in rejected] == ["no timestamp: null", "null key", "null key"]
    assert rejected[0]["timestamp"] is None
    assert {found["topic"] for found in rejected} == {"spark:stream"}
    assert here.held() == {b"a": 2}


def test_a_deleted_checkpoint_a_different_query_and_other_partitions_are_refused_with_the_remedy(place):
    here = place()
    here.write([row(1)])
    here.run()
    with pytest.raises(StateError, match="a different number of partitions") as refused:
        here.run(partitions=PARTITIONS + 1)
    assert f"partitions={PARTITIONS}" in refused.value.remedy
    aside = here.folder / "aside"
    shutil.move(here.checkpoint, aside)
    with pytest.raises(StateError, match="checkpoint folder is gone") as refused:
        here.run()
    assert "bring that query's checkpoint folder back" in refused.value.remedy
    assert not here.checkpoint.exists()
    here.checkpoint.mkdir()
    (here.checkpoint / "metadata").write_text(json.dumps({"id": "another"}))
    with pytest.raises(StateError, match="another Spark query"):
        here.run()
    here.write([row(2, at=90)])
    here.run(checkpoint=aside)
    assert [found["offset"] for found in here.rows("emission")] == [1]  # held since offset 0: at 90 it is due


def test_a_full_buffer_stops_before_the_record_and_a_larger_bound_continues_there(place):
    buffer = {"max_keys": 2, "when_full": "shut_down"}
    here = place(until=None, buffer=buffer)
    here.write([row(number, key=f"{number:02}", at=number) for number in range(20)])
    with pytest.raises(StreamingQueryException, match=r"stopped before record 2 of partition"):
        here.run()
    assert here.metas()[-1].query_batch == -1
    larger = place(until=None, buffer=buffer | {"max_keys": 100})
    larger.run()
    assert larger.metas()[-1].query_batch == 0
    assert len(larger.held()) == 20
    assert records_in(larger.metas()) == 20


def test_the_driver_retries_a_task_whose_worker_died(place):
    here = place()
    here.write([row(number, key=f"{number}") for number in range(50)])
    flag = here.folder / "died"
    from pyspark.sql import functions as F

    @F.udf("string")
    def deadly(key):
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return key

    here.run(key=deadly("id"))
    assert flag.exists()
    assert len(here.held()) == records_in(here.metas()) == 50
    assert here.metas()[-1].epoch == 2


def test_a_query_is_stopped_between_batches(place, capfd):
    here = place()
    here.write([row(1)])
    query = here.start(trigger={"processingTime": "0 seconds"})
    here.await_batch(0)
    for number in range(2, 5):
        here.write([row(number)])
    query.stop()
    assert not query.isActive
    assert "StackOverflow" not in capfd.readouterr().err
    here.run()
    assert records_in(here.metas()) == 4


def test_a_batch_that_begins_during_a_stop_is_refused_and_runs_again_later(place, capfd, monkeypatch):
    arrived, pass_on = Event(), BatchGate.batch

    def arrive_late(gate, rows, spark_batch):
        if spark_batch:
            arrived.set()
            time.sleep(2)
        pass_on(gate, rows, spark_batch)

    monkeypatch.setattr(BatchGate, "batch", arrive_late)
    here = place()
    here.write([row(1)])
    query = here.start(trigger={"processingTime": "0 seconds"})
    here.await_batch(0)
    here.write([row(2)])
    assert arrived.wait(120)
    query.stop()
    assert not query.isActive
    assert records_in(here.metas()) == 1
    assert "StackOverflow" not in capfd.readouterr().err
    monkeypatch.undo()
    here.run()
    assert records_in(here.metas()) == 2


def test_unusable_columns_and_frames_are_refused_before_anything_is_written(spark, place):
    here = place()
    here.write([row(1)])
    with pytest.raises(ConfigurationError) as refused:
        here.run(key=F.col("number") / 2, timestamp="payload")
    assert {problem.where for problem in refused.value.problems} == {"key", "timestamp"}
    named = {"key": "id", "value": "id", "timestamp": "id", "order_by": "id"}
    with pytest.raises(UserError, match="not a stream"):
        start(spark.createDataFrame([("a",)], "id string"), here.rules, lake=here.folder / "lake", **named)
    assert not (here.folder / "lake").exists()
