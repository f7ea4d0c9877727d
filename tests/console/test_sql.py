"""The SQL page: what a query may be, in which process it runs, and what the page makes of its result."""

from __future__ import annotations

import csv
import json
import re
from html import unescape
from io import BytesIO, StringIO
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from tests.console.conftest import Browser
from tests.console.logs import PIPELINE, START_MS, SUPPRESSION, TABLE, WINDOWS, Written, application, record
from tests.console.test_pages import HOSTILE, shown
from tidegate.console.pages.known_logs import KnownLogs
from tidegate.console.sql.checking import Names, check
from tidegate.console.sql.results import NO_CALENDAR, cells_of, chart_of, csv_of
from tidegate.console.sql.running import run
from tidegate.console.sql.views import OperatorViews, columns_of, views_of
from tidegate.console.tables import Cell
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application

NAMES = Names({"held", "sent"}, {"as_of"})


def checked(query: str) -> set[str]:
    """The names that the query uses."""
    with duckdb.connect() as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    assert row is not None
    return check(json.loads(row[0]), NAMES)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("query", "used"),
    [
        ("SELECT * FROM held", {"held"}),
        ("FROM Held ORDER BY ALL LIMIT 3; -- a comment", {"held"}),
        ("SELECT key, count(*) FILTER (n > 1) FROM held JOIN sent USING (key) GROUP BY ALL", {"held", "sent"}),
        ("WITH newest AS (SELECT max(batch) FROM held) SELECT * FROM newest", {"held"}),
        ("SELECT * FROM as_of(TIMESTAMP '2013-01-01') WHERE value ->> 'n' LIKE '1%'", {"as_of"}),
        ("SELECT row_number() OVER (PARTITION BY key) FROM held UNION ALL BY NAME SELECT 1", {"held"}),
        ("SELECT 1::DECIMAL(9, 2), [1], {'a': 1}, CASE WHEN true THEN 1 END WHERE 1 IN (SELECT 1)", set()),
        ("VALUES (1, 2)", set()),
    ],
)
def test_queries_of_views_are_let_through(query: str, used: set[str]) -> None:
    assert checked(query) == used


NUMBERS = SUPPRESSION | {"output": "numbers", "key_format": "int32", "value_format": "int32"}
"""An operator whose views show numbers, and null for what is none."""

INJECTIONS = [
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM held, glob('/*')",
    "SELECT * FROM (SELECT content FROM read_blob('/etc/passwd'))",
    "SELECT * FROM held WHERE EXISTS (SELECT 1 FROM duckdb_settings())",
    "SELECT * FROM as_of((SELECT content FROM read_text('/etc/passwd')))",
    "SELECT * FROM query('DROP TABLE held')",
    "SELECT * FROM query_table('secret')",
    "SELECT * FROM range(1000000000)",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM other.main.held",
    "SELECT * FROM secret, (WITH secret AS (SELECT 1) SELECT * FROM secret)",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT getvariable('x')",
    "SELECT nextval('x')",
    "SELECT repeat('x', 3000000000)",
    "SELECT * FROM held ORDER BY getenv('HOME')",
    "SELECT * FROM held LIMIT (SELECT current_setting('threads')::INT)",
    "SELECT list_transform([1], lambda x: getenv('HOME'))",
    "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a",
    "SHOW TABLES",
    "DESCRIBE held",
    "SUMMARIZE held",
    "EXPLAIN ANALYZE SELECT 1",
    "PIVOT held ON key",
    "SELECT 1; SELECT 2",
    "SELECT $1",
    "SELECT 1::my_type",
    "INSERT INTO held VALUES (1)",
    "DELETE FROM held",
    "DROP VIEW held",
    "CREATE TABLE x AS SELECT 1",
    "COPY held TO '/tmp/x'",
    "COPY (SELECT 1) TO PROGRAM 'sh'",
    "ATTACH '/tmp/x'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "CALL pragma_version()",
    "EXPORT DATABASE '/tmp/x'",
    "USE other",
    "CHECKPOINT",
    "",
    "'",
    "SELECT '" + "(" * 5_000,
    "(" * 5_000 + "1",
]
"""What is no query of views."""


@pytest.mark.fast
@pytest.mark.parametrize("query", INJECTIONS, ids=lambda query: query[:40])
def test_what_is_no_query_of_views_is_refused(query: str) -> None:
    with pytest.raises(UserError):
        checked(query)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Application:
    """An application with operators of several kinds that have read hostile records.

    Those of the pipeline are UTF-8: its views have strings, and Arrow refuses others that come from Spark.
    """
    found = application(
        tmp_path_factory.mktemp("sql"),
        limited=SUPPRESSION,
        table=TABLE,
        counts=WINDOWS,
        chain=PIPELINE,
        numbers=NUMBERS,
    )
    for name in found.operators:
        log = Written(found, name)
        values = [value for value in HOSTILE if name != "chain" or value.isascii()]
        log.batch([record(b"k%d" % at, value, 0, at) for at, value in enumerate(values)])
        if name != "chain":
            log.batch([record(b"\x00\x00\x00\x07", b"\xff\xff\xff\xfe", 0, 40)])
        log.batch([record(b"later", b'{"delay": 1}', 100, 50), record(b"k0", b'{"delay": 2}', 101, 51)])
    return found


@pytest.fixture(scope="module")
def views(given: Application) -> list[OperatorViews]:
    return views_of(KnownLogs(given).as_of(None, None), given.operators)


@pytest.mark.fast
def test_the_columns_of_each_view_are_known_without_rows(views: list[OperatorViews]) -> None:
    columns = columns_of(views)
    assert columns["limited_buffer"][-1] == "held_since"
    assert {"chain_limited_buffer", "table_history", "counts_windows"} <= set(columns)


@pytest.mark.process
def test_typed_keys_and_values_are_numbers(views: list[OperatorViews]) -> None:
    rows = run("SELECT key, value FROM numbers_emissions WHERE key = 7", views, 10)
    assert rows.to_pylist() == [{"key": 7, "value": -2}]


@pytest.mark.process
def test_a_query_reads_views_and_functions(views: list[OperatorViews]) -> None:
    at = "TIMESTAMP '2023-11-14 22:13:20'"
    query = f"SELECT count(*) AS n, max(valid_from) AS newest FROM table_as_of({at}) WHERE valid_from <= {at}"
    [row] = run(query, views, 10).to_pylist()
    assert row["n"] == len(HOSTILE) + 1 and row["newest"].timestamp() * 1_000 <= START_MS + 1e9
    rows = run('SELECT key, "offset" FROM limited_log ORDER BY batch, seq', views, 3)
    assert rows.to_pylist()[0] == {"key": b"k0", "offset": 0} and len(rows) == 3


@pytest.mark.process
@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT key + 1 FROM limited_log", "the query failed"),
        ("SELECT * FROM '/etc/passwd'", "may not use this"),
        ("SELECT string_agg(a.value, b.value) FROM limited_log a, limited_log b", "the query"),
        ("SELECT rpad('x', 2000000000, 'y')", "the query"),
        ("SELECT " + "+".join(f"x{at}.batch" for at in range(9)) + " AS n FROM " + ", ".join(
            f"limited_log x{at}" for at in range(9)) + " ORDER BY n DESC", "the query"),
    ],
    ids=["a wrong type", "a file", "much text", "a long text", "many rows"],
)  # fmt: skip
def test_a_query_that_fails_or_needs_too_much_ends_with_its_process(
    views: list[OperatorViews], query: str, problem: str
) -> None:
    began = monotonic()
    with pytest.raises(UserError, match=problem):
        run(query, views, 10, deadline_s=15.0)
    assert monotonic() - began < 20


@pytest.mark.process
def test_the_page_shows_the_result_and_gives_it_as_files(browser: Browser, given: Application) -> None:
    client = browser(given)
    query = "SELECT key, value, epoch_ms(timestamp) AS t FROM limited_log WHERE kind = 'state' ORDER BY batch, seq"
    text = client.get(f"/sql?query={quote(query)}").text
    assert "<script>alert" not in text and "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "1,000,000 bytes in all" in text and "0xfffe80" in text
    links = dict(re.findall(r'href="(/sql/rows\.(?:csv|parquet)[^"]*)" download>(\w+)<', text))
    files = {form: client.get(link.replace("&amp;", "&")) for link, form in links.items()}
    assert pq.read_table(BytesIO(files["parquet"].content))["key"].to_pylist()[0] == b"k0"
    assert files["csv"].text.startswith('"key","value","t"\n"k0",')
    assert files["csv"].headers["content-disposition"] == 'attachment; filename="rows.csv"'


@pytest.mark.process
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM read_csv('</textarea><script>')", "the table function read_csv"),
        ("FROM '/etc/passwd'", "the view /etc/passwd"),
        ("DROP VIEW limited_log", "cannot be read"),
        ("SELECT 1; COPY (SELECT 1) TO 'x'", "cannot be read"),
    ],
)
def test_an_attack_is_refused_beside_the_query_and_in_place_of_a_file(
    browser: Browser, given: Application, query: str, said: str
) -> None:
    client = browser(given)
    answer = client.get(f"/sql?query={quote(query)}")
    assert answer.status_code == 400
    assert said in shown(answer.text) and "</textarea><script>" not in answer.text and "root:" not in answer.text
    assert client.get(f"/sql/rows.csv?query={quote(query)}").status_code == 404


@pytest.mark.fast
def test_the_page_lists_views_with_their_columns(browser: Browser, given: Application) -> None:
    text = browser(given).get("/sql").text
    assert "<code>limited_buffer</code></dt><dd><code>partition</code>" in text
    assert "<code>table_as_of</code>" in text


@pytest.mark.fast
def test_numbers_over_a_time_or_a_number_are_lines() -> None:
    rows = pa.table({"t": pa.array([2_000, 1_000], pa.timestamp("ms")), "n": [1, 2], "who": ["a", "b"]})
    chart = chart_of(rows)
    assert chart is not None and chart["is_time"] and chart["time"] == [1.0, 2.0]
    assert chart["charts"] == [{"title": "By t", "lines": {"n": [2.0, 1.0]}}]
    assert chart_of(rows.select(["who", "n"])) is None and chart_of(rows.select(["t", "who"])) is None


@pytest.mark.fast
def test_columns_of_equal_names_and_all_types_are_shown_and_written() -> None:
    rows = pa.table([pa.array([1]), pa.array([None], pa.binary()), pa.array([[1, 2]])], names=["a", "a", "b"])
    assert [[cell.text for cell in row] for row in cells_of(rows).rows] == [["1", "null", "[1, 2]"]]
    assert csv_of(rows) == b'"a","a","b"\n1,,"[1, 2]"\n'


@pytest.mark.fast
@pytest.mark.parametrize(
    ("sql", "form", "text"),
    [
        ("{'n': 1, 'raw': '\\xFF'::BLOB, 'said': 'a'::BLOB}", "text", '{"n": 1, "raw": "0xff", "said": "a"}'),
        ("[TIMESTAMP '2023-11-14 22:13:20', NULL]", "text", '["2023-11-14 22:13:20.000", null]'),
        ("[{'at': DATE '2023-11-14', 'price': 1.50}]", "text", '[{"at": "2023-11-14", "price": "1.50"}]'),
        ("histogram('a')", "text", '{"a": 1}'),
        ("['\u202e']", "text", '["\\u202e"]'),
        ("TIMESTAMP '2023-11-14 22:13:20'", "time", "2023-11-14 22:13:20.000"),
        ("TIMESTAMPTZ '2023-11-14 23:13:20+01'", "time", "2023-11-14 22:13:20.000"),
        ("TIME '01:02:03'", "text", "01:02:03"),
        ("INTERVAL '3 months 2 days 1.5 seconds'", "text", "3 months 2 days 1.5 s"),
        ("TIMESTAMP 'infinity'", "text", NO_CALENDAR),
        ("[TIMESTAMP 'infinity']", "text", NO_CALENDAR),
        ("1.50::DECIMAL(9, 2)", "number", "1.50"),
    ],
)
def test_values_of_every_type_are_shown_as_people_read_them(sql: str, form: str, text: str) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(f"SELECT {sql} AS x").to_arrow_table()
    assert cells_of(rows).rows == [[Cell(text, form)]]


@pytest.mark.fast
def test_records_lists_and_maps_are_json_in_csv_too() -> None:
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT {'n': [1], 'raw': '\\xFF'::BLOB} AS x, map(['k'], [2]) AS y").to_arrow_table()
    [line] = list(csv.DictReader(StringIO(csv_of(rows).decode())))
    assert {name: json.loads(text) for name, text in line.items()} == {"x": {"n": [1], "raw": "0xff"}, "y": {"k": 2}}


@pytest.mark.process
def test_a_query_is_as_of_a_batch_and_of_others_as_they_were_then(browser: Browser, tmp_path: Path) -> None:
    """
    clock        0 s      1 s    2 s
    limited      claim    a      b
    other        claim    c      d
    """
    given = application(tmp_path, limited=SUPPRESSION, other=SUPPRESSION | {"output": "o"}, later=TABLE)
    limited, other = Written(given, "limited"), Written(given, "other")
    limited.batch([record(b"a", b"1", 0, 0)])
    limited.batch([record(b"b", b"1", 1, 1)])
    other.batch([record(b"c", b"1", 0, 0)])
    other.batch([record(b"d", b"1", 0, 1)])
    query = "SELECT key FROM limited_buffer UNION ALL SELECT key FROM other_buffer ORDER BY key"
    client = browser(given)
    found = {}
    for batch in (0, 1, 2, None):
        asked = {"query": query, "operator": "limited", **({} if batch is None else {"batch": batch})}
        answer = client.get("/sql/rows.csv", params=asked)
        found[batch] = answer.text.replace('"', "").split()[1:]
    assert found == {0: [], 1: ["a", "c"], 2: ["a", "b", "c", "d"], None: ["a", "b", "c", "d"]}
    text = client.get("/sql", params={"query": query, "operator": "limited", "batch": 1}).text
    assert "2 rows." in shown(text) and 'class="slider"' in text and "batch=1" in text.split("rows.csv")[1][:200]
    assert "Not there then, or no longer readable: later" in shown(text)


@pytest.mark.fast
def test_operator_pages_lead_to_queries_as_of_their_batch(browser: Browser, given: Application) -> None:
    client = browser(given)
    for address in ("/operators/limited?batch=1", "/operators/limited/emissions?batch=1"):
        link = re.search(r'href="([^"]+)">SQL as of this batch', client.get(address).text)
        assert link is not None
        text = client.get(unescape(link[1])).text
        assert 'type="hidden" name="batch" value="1"' in text and 'name="operator" value="limited"' in text
    assert client.get("/sql?operator=nobody&batch=1").status_code == 404
    assert client.get("/sql?operator=limited&batch=1;DROP").status_code == 400


@pytest.mark.fast
def test_the_sql_page_needs_a_login(stranger: Browser, given: Application) -> None:
    client: TestClient = stranger(given)
    assert [client.get(path).status_code for path in ("/sql", "/sql/rows.csv?query=SELECT%201")] == [401, 401]
