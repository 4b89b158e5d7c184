"""The ads database of the demo, and the one tool that reads it."""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

from satchel.demo.tools import ToolFailed, ToolResult, require_text

ROW_LIMIT = 200
RESULT_LIMIT = 256 * 1024
SQL_LIMIT = 16 * 1024
VALUE_LIMIT = 64 * 1024

DAY_BEFORE = "2026-03-09"
YESTERDAY = "2026-03-10"
MEDIA = {
    "media_A": range(1, 7),
    "media_C": range(7, 13),
    "media_B": range(13, 19),
    "media_D": range(19, 25),
}
ODD_MEDIA, ODD_POSITION = "media_B", "position_17"

SCHEMA = """
CREATE TABLE positions (
  position TEXT PRIMARY KEY,
  media    TEXT NOT NULL,
  kind     TEXT NOT NULL             -- banner, feed, splash
) STRICT;

CREATE TABLE ads_daily (
  date        TEXT    NOT NULL,      -- YYYY-MM-DD
  media       TEXT    NOT NULL,
  position    TEXT    NOT NULL REFERENCES positions (position),
  impressions INTEGER NOT NULL,
  clicks      INTEGER NOT NULL,
  income      INTEGER NOT NULL,      -- yuan; eCPM = 1000.0 * sum(income) / sum(impressions)
  PRIMARY KEY (date, position)
) STRICT;

-- The days are fixed, so "yesterday" is the latest day that the data holds.
CREATE VIEW latest_days AS
SELECT max(date) AS yesterday,
       (SELECT max(date) FROM ads_daily WHERE date < (SELECT max(date) FROM ads_daily)) AS day_before
FROM ads_daily;
"""

Row = tuple[str, str, str, int, int, int]


def build_ads_database(path: str | Path, *, seed: int = 17) -> Path:
    """Writes the database, replacing what is there at once. The same seed gives the same rows.

    Two days. Overall, yesterday's income is 20 % below the day before and eCPM 35 % below, so impressions are up
    by 23 %. The drop is media_B's, and there position_17's: twice the impressions at a fraction of the price.
    """
    target = Path(path).resolve()
    unfinished = target.with_name(f"{target.name}.unfinished-{os.getpid()}")
    try:
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.executescript(SCHEMA)
            with connection:
                connection.executemany(
                    "INSERT INTO positions (position, media, kind) VALUES (?, ?, ?)",
                    [
                        (_name(number), media, ("banner", "feed", "splash")[number % 3])
                        for media, numbers in MEDIA.items()
                        for number in numbers
                    ],
                )
                connection.executemany(
                    "INSERT INTO ads_daily (date, media, position, impressions, clicks, income)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    ads_rows(seed),
                )
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def ads_rows(seed: int) -> list[Row]:
    """(date, media, position, impressions, clicks, income) of both days."""
    chance = random.Random(seed)
    before: list[Row] = []
    after: list[Row] = []
    for media, numbers in MEDIA.items():
        for number in numbers:
            if _name(number) == ODD_POSITION:
                continue
            impressions = chance.randrange(420_000, 780_000)
            income = round(impressions * chance.uniform(4.6, 6.2) / 1000)
            rate = chance.uniform(0.010, 0.018)
            before.append((DAY_BEFORE, media, _name(number), impressions, round(impressions * rate), income))
            growth = chance.uniform(0.985, 1.015)
            impressions = round(impressions * growth)
            income = round(income * growth * chance.uniform(0.99, 1.01))
            after.append((YESTERDAY, media, _name(number), impressions, round(impressions * rate), income))
    before.append((DAY_BEFORE, ODD_MEDIA, ODD_POSITION, 3_200_000, 41_600, 28_800))
    # The odd position takes what is missing, so that the totals are met to the last yuan.
    impressions = round(sum(row[3] for row in before) * 0.80 / 0.65) - sum(row[3] for row in after)
    income = round(sum(row[5] for row in before) * 0.80) - sum(row[5] for row in after)
    after.append((YESTERDAY, ODD_MEDIA, ODD_POSITION, impressions, round(impressions * 0.002), income))
    return sorted(before + after)


def _name(number: int) -> str:
    return f"position_{number:02d}"


class DataTools:
    """One read-only SQL tool over a SQLite file. `time_limit` is in seconds, per statement."""

    def __init__(self, path: str | Path, *, time_limit: float = 2.0) -> None:
        self._path = Path(path).resolve()
        self._time_limit = time_limit

    async def run_sql(self, sql: str) -> ToolResult:
        """`{"columns": [name, ...], "rows": [[value, ...], ...], "truncated": bool}` of one SELECT.

        At most 200 rows and about 256 KiB of values; `truncated` tells that there was more. The file is opened
        read-only, and the statement may only select, read, and call functions: writes, ATTACH, PRAGMA, extensions,
        recursive CTEs and a second statement are refused. The tables are found in `sqlite_master`. A blob comes as
        `x'…'`, an infinite number as "Infinity". Every refusal, error and overrun is a ToolFailed.
        """
        require_text("sql", sql, SQL_LIMIT)
        if not _SELECT.match(sql):
            raise ToolFailed("only one SELECT (or WITH … SELECT, or VALUES) is allowed")
        stop = threading.Event()
        try:
            return await asyncio.to_thread(self._select, sql, stop)
        finally:
            stop.set()  # after a cancellation the thread is still running: its next progress check ends it

    def _select(self, sql: str, stop: threading.Event) -> ToolResult:
        deadline = time.monotonic() + self._time_limit

        def must_stop() -> bool:
            return stop.is_set() or time.monotonic() > deadline

        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
                reader.text_factory = lambda value: value.decode("utf-8", "replace")
                reader.execute("PRAGMA query_only = ON")
                for limit, value in _LIMITS:
                    reader.setlimit(limit, value)
                reader.set_authorizer(_authorize)
                reader.set_progress_handler(must_stop, 1000)
                return _result(reader.execute(sql))
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # a Warning is how 3.11 refuses two statements
            if must_stop() and "interrupted" in str(error):
                raise ToolFailed(f"the statement took longer than {self._time_limit:g} s") from error
            raise ToolFailed(f"the statement was refused: {error}") from error


_SELECT = re.compile(r"(?:\s|;|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*(?:select|with|values)\b", re.IGNORECASE | re.DOTALL)
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, VALUE_LIMIT),
    (sqlite3.SQLITE_LIMIT_COLUMN, 100),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
)


def _authorize(action: int, _first: str | None, second: str | None, *_where: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        is_allowed = (second or "").lower() != "load_extension"
    else:
        is_allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _result(cursor: sqlite3.Cursor) -> ToolResult:
    columns = [column[0] for column in cursor.description or ()]
    rows: list[list[object]] = []
    size = 0
    for found in cursor:
        row = [_plain(value) for value in found]
        size += sum(len(value.encode()) if isinstance(value, str) else 8 for value in row)
        if len(rows) == ROW_LIMIT or (rows and size > RESULT_LIMIT):
            return {"columns": columns, "rows": rows, "truncated": True}
        rows.append(row)
    return {"columns": columns, "rows": rows, "truncated": False}


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
