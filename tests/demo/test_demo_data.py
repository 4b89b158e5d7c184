"""Promises of the ads database and of the data agent's tool."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from satchel.demo import DataTools, ToolFailed, build_ads_database

BY_DAY = """
SELECT date, sum(income) AS income, sum(impressions) AS impressions, 1000.0 * sum(income) / sum(impressions) AS ecpm
FROM ads_daily, latest_days WHERE date IN (yesterday, day_before) GROUP BY date ORDER BY date
"""
DROP = """
SELECT {column}, sum(CASE WHEN date = yesterday THEN income ELSE -income END) AS change
FROM ads_daily, latest_days WHERE media LIKE '{media}' GROUP BY {column} ORDER BY change
"""
ENDLESS = "SELECT count(*) FROM ads_daily a, ads_daily b, ads_daily c, ads_daily d, ads_daily e, ads_daily f"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return build_ads_database(tmp_path / "广告 #1?.db")


@pytest.fixture
def tools(database: Path) -> DataTools:
    return DataTools(database)


async def test_income_is_down_20_and_ecpm_down_35_percent(tools: DataTools) -> None:
    before, after = (await tools.run_sql(BY_DAY))["rows"]
    assert [round(100 * (new / old - 1)) for old, new in zip(before[1:], after[1:], strict=True)] == [-20, 23, -35]


async def test_the_drop_is_media_b_and_there_position_17(tools: DataTools) -> None:
    by_media = (await tools.run_sql(DROP.format(column="media", media="%")))["rows"]
    assert by_media[0][0] == "media_B"
    assert by_media[0][1] < 0.9 * sum(change for _, change in by_media) < 0
    by_position = (await tools.run_sql(DROP.format(column="position", media="media_B")))["rows"]
    assert by_position[0][0] == "position_17"
    assert by_position[0][1] < 0.9 * sum(change for _, change in by_position) < 0
    assert all(abs(change) < 200 for _, change in by_position[1:])


async def test_the_latest_day_is_in_the_data(tools: DataTools) -> None:
    assert await tools.run_sql("SELECT yesterday, day_before FROM latest_days;") == {
        "columns": ["yesterday", "day_before"],
        "rows": [["2026-03-10", "2026-03-09"]],
        "truncated": False,
    }


async def test_the_same_seed_builds_the_same_rows_over_an_older_file(tmp_path: Path) -> None:
    contents = []
    for seed in (17, 17, 18):
        path = build_ads_database(tmp_path / "ads.db", seed=seed)
        contents.append((await DataTools(path).run_sql("SELECT * FROM ads_daily ORDER BY date, position"))["rows"])
    assert contents[0] == contents[1] != contents[2]
    assert [path.name for path in tmp_path.iterdir()] == ["ads.db"]


@pytest.mark.parametrize("seed", range(20))
async def test_every_seed_tells_the_same_story(tmp_path: Path, seed: int) -> None:
    tools = DataTools(build_ads_database(tmp_path / "ads.db", seed=seed))
    before, after = (await tools.run_sql(BY_DAY))["rows"]
    assert [round(100 * (new / old - 1)) for old, new in zip(before[1:], after[1:], strict=True)] == [-20, 23, -35]
    assert (await tools.run_sql(DROP.format(column="position", media="%")))["rows"][0][0] == "position_17"


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO positions VALUES ('x', 'y', 'z')",
        "UPDATE ads_daily SET income = 0",
        "DELETE FROM ads_daily",
        "DROP TABLE ads_daily",
        "CREATE TEMP TABLE copy AS SELECT * FROM ads_daily",
        "WITH odd AS (SELECT 'x') INSERT INTO positions SELECT 'x', 'y', 'z' FROM odd",
        "WITH odd AS (SELECT 'x') DELETE FROM ads_daily RETURNING *",
        "ATTACH DATABASE '{folder}/made.db' AS made",
        "/* SELECT */ ATTACH '{folder}/made.db' AS made -- SELECT",
        "VACUUM INTO '{folder}/made.db'",
        "VACUUM",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "SELECT * FROM pragma_database_list",
        "SELECT load_extension('{folder}/made.so')",
        "SELECT 1; SELECT 2",
        "SELECT 1; DELETE FROM ads_daily",
        "BEGIN",
        "EXPLAIN SELECT 1",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "",
        " -- SELECT",
        "/* SELECT 1",
        "SELECT nothing FROM ads_daily",
        "SELECT 1\0",
        "SELECT '\ud800'",
        "SELECT " + "1," * 20_000 + "1",
        "SELECT zeroblob(1000000000)",
    ],
)
async def test_anything_but_one_select_is_refused_and_changes_nothing(
    tools: DataTools, database: Path, sql: str
) -> None:
    before = database.read_bytes()
    with pytest.raises(ToolFailed):
        await tools.run_sql(sql.replace("{folder}", str(database.parent)))
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "  -- why\n /* and \n how */ ; SELECT 1 ; -- end",
        "WITH one AS (SELECT 1) SELECT * FROM one",
        "VALUES (1)",
    ],
)
async def test_a_select_may_be_written_in_many_ways(tools: DataTools, sql: str) -> None:
    assert (await tools.run_sql(sql))["rows"] == [[1]]


async def test_tables_can_be_found(tools: DataTools) -> None:
    found = await tools.run_sql("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
    assert [name for (name,) in found["rows"]] == ["ads_daily", "latest_days", "positions"]


async def test_at_most_200_rows_are_answered(tools: DataTools) -> None:
    pairs = "SELECT a.position FROM positions a, positions b LIMIT {}"
    whole, cut = [await tools.run_sql(pairs.format(limit)) for limit in (200, 201)]
    assert (len(whole["rows"]), whole["truncated"]) == (200, False)
    assert (len(cut["rows"]), cut["truncated"]) == (200, True)


async def test_large_values_do_not_make_a_large_result(tools: DataTools) -> None:
    result = await tools.run_sql("SELECT printf('%060000d', 1) FROM positions a, positions b LIMIT 200")
    assert result["truncated"] is True
    assert len(json.dumps(result)) < 400_000


async def test_a_long_statement_is_stopped_in_time(database: Path) -> None:
    start = time.monotonic()
    with pytest.raises(ToolFailed, match=r"longer than 0\.3 s"):
        await DataTools(database, time_limit=0.3).run_sql(ENDLESS)
    assert time.monotonic() - start < 3


async def test_a_cancelled_statement_stops_its_thread(database: Path) -> None:
    call = asyncio.create_task(DataTools(database, time_limit=60).run_sql(ENDLESS))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    start = time.monotonic()
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for the thread
    assert time.monotonic() - start < 3


async def test_every_value_is_plain_json(tools: DataTools) -> None:
    result = await tools.run_sql(
        "SELECT x'00ff' AS a, 9e999 AS a, -9e999, NULL, 9223372036854775807, cast(x'ff41' AS TEXT)"
    )
    assert result["columns"][:2] == ["a", "a"]
    assert result["rows"] == [["x'00ff'", "Infinity", "-Infinity", None, 9223372036854775807, "\ufffdA"]]
    json.dumps(result, allow_nan=False)


async def test_an_absent_database_fails_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed):
        await DataTools(tmp_path / "absent.db").run_sql("SELECT 1")
    assert list(tmp_path.iterdir()) == []


async def test_a_writer_beside_it_is_not_disturbed(tools: DataTools, database: Path) -> None:
    with closing(sqlite3.connect(database)) as writer, writer:
        writer.execute("DELETE FROM ads_daily WHERE date = '2026-03-09'")
        assert (await tools.run_sql("SELECT count(DISTINCT date) FROM ads_daily"))["rows"] == [[2]]
    assert (await tools.run_sql("SELECT count(DISTINCT date) FROM ads_daily"))["rows"] == [[1]]
