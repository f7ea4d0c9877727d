"""Windows that keep their elements, over real parts: evictions survive every fault, and SQL shows what is left."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from tests.end_to_end.test_windows import results
from tidegate.cli.main import main
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.driver import Driver
from tidegate.spark import register_views
from tidegate.state.committed_windows import CommittedWindows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

FUNCTIONS = "tidegate.operators.testing.evictors"
WINDOWS = {
    "kind": "windowed_aggregation",
    "window": {"hopping": "10s", "advance": "5s", "grace": "20s"},
    "aggregate": {"count": True, "collect": True},
    "emit": "on_time",
    "key_format": "string",
}


@pytest.fixture
def evicting(world):
    """`evicting(evictor=...)`: a world whose operator keeps elements, and may call the functions of `testing`."""

    def make(**operator):
        here = world(**WINDOWS, evictor={"count": 3})
        here.raw["allow"] = [FUNCTIONS]
        return here.changed(**operator)

    return make


@pytest.mark.parametrize(
    "operator",
    [
        {"evictor": {"count": 2, "when": "after"}},
        {"evictor": {"function": {"before": f"{FUNCTIONS}:older_half", "after": f"{FUNCTIONS}:multiple_of_3"}}},
        {"evictor": {"count": 5}, "window": {"session": "1s", "grace": "20s"}},
    ],
)
def test_evictions_outlast_restarts_compactions_and_a_deleted_state(evicting, broker, operator):
    here, rng = evicting(**operator), random.Random(5)
    made = [
        (0, b"k%d" % rng.randrange(5), b"%d" % rng.randrange(100), max(0, at * 100 - rng.randrange(15_000)))
        for at in range(1_000)
    ]
    for step in range(5):
        here.feed(made[step * 200 : (step + 1) * 200])
        driver = here.run()
        if step in (1, 3):
            driver.claim.operator.compact()
        if step in (2, 3):
            shutil.rmtree(here.application.state)
    each_sequentially = Driver(operator_for(here.application.operators[here.name]))
    expected = [emission for _, key, value, at in made for emission in each_sequentially.pipe(key, value, at)]
    assert len(expected) > 300
    assert results(broker, here.output) == [
        (each.key.decode(), each.window_start, each.window_end, each.value and json.loads(each.value), each.cause)
        for each in expected
    ]


@pytest.mark.spark_reads
def test_windows_show_their_last_result_and_the_elements_that_are_left(evicting, tmp_path, capsys):
    """[0, 10) ends with 1, 2 and 3, and keeps 2 and 3; [10, 20) has 4 and no result yet"""
    here = evicting(window={"tumbling": "10s", "grace": "1h"}, evictor={"count": 2, "when": "after"})
    here.feed([(0, b"a", b"%d" % at, at * 1_000) for at in (1, 2, 3)] + [(0, b"a", b"4", 14_000)])
    here.run()
    register_views(here.spark, here.application)
    shown = here.spark.sql("SELECT unix_millis(window_start), value, final FROM updates_windows ORDER BY 1").collect()
    assert [tuple(row) for row in shown] == [(0, '{"count":3,"collect":[1,2,3]}', False), (10_000, None, False)]
    shown = here.spark.sql(
        "SELECT key, unix_millis(window_start), CAST(value AS STRING), unix_millis(event_time), offset "
        "FROM updates_elements ORDER BY offset"
    ).collect()
    assert [tuple(row) for row in shown] == [
        ("a", 0, "2", 2_000, 1),
        ("a", 0, "3", 3_000, 2),
        ("a", 10_000, "4", 14_000, 3),
    ]
    assert [(window.start, window.value) for window in CommittedWindows(here.log).fetch(b"a")] == [
        (0, b'{"count":3,"collect":[1,2,3]}'),
        (10_000, None),
    ]
    file = tmp_path / "app.yaml"
    file.write_text(json.dumps(here.raw))
    main(["windows", str(file), "updates", "--json"], standalone_mode=False)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["value"] and line["value"]["count"] for line in lines] == [3, None]


@pytest.mark.spark_reads
def test_the_elements_of_a_session_are_shown_with_its_bounds(evicting):
    """the gap is 2 s: 1 and 5 are apart until 3 comes; 17 closes their session, but not that of 9 and 10"""
    here = evicting(window={"session": "2s", "grace": "8s"}, evictor={"count": 10}, emit="final", retention="1h")
    here.feed([(0, b"a", b"%d" % at, at * 1_000) for at in (1, 5, 3, 9, 10)])
    here.run()
    here.feed([(0, b"a", b"17", 17_000)])
    here.run()
    register_views(here.spark, here.application)
    shown = here.spark.sql(
        "SELECT unix_millis(window_start), unix_millis(window_end), CAST(value AS STRING) "
        "FROM updates_elements ORDER BY offset"
    ).collect()
    assert [tuple(row) for row in shown] == [
        (9_000, 10_000, "9"),
        (9_000, 10_000, "10"),
        (17_000, 17_000, "17"),
    ]


def test_an_invalid_function_result_stops_the_operator_and_names_the_function(evicting):
    here = evicting(emit="updates", evictor={"function": f"{FUNCTIONS}:length_apart"})
    here.feed([(0, b"a", b"1", 1_000)])
    with pytest.raises(Exception, match=f"{FUNCTIONS}:length_apart"):
        here.run()
