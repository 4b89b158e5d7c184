"""Scene 3: three runs of one session, each of which goes deeper from what the last one found."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

from satchel import Session
from satchel.demo.checks import parts_found
from satchel.demo.data import build_ads_database
from satchel.demo.scenes.evidence import check_runs, last_answer, memory_of
from satchel.demo.stage import Stage

TITLE = "Data: three runs, each of which builds on the memory of the last"
DRILLED = "scene 3, before the last question"  # an interlude

ASKED = ("昨天收入为什么下降?", "继续看看是哪个媒体。", "那再按广告位拆。")
GOAL = "找出昨天收入下降的原因"


async def play(stage: Stage) -> None:
    stage.begin(3, TITLE)
    await stage.serve()
    await stage.stand_by()
    await stage.new_session("收入下降分析")
    database = await asyncio.to_thread(stage.workplace, build_ads_database, agent="data")
    stage.show.note("a small ads database is ready: two days, four media, 24 positions")
    stream = stage.follow()
    overall = await stage.talk(stream, ASKED[0], meaning="Why did income drop yesterday?", agent="data")
    stage.next_door()
    media = await stage.talk(stream, ASKED[1], meaning="Go on: which media is it?", agent="data")
    await stage.interlude(DRILLED)
    stage.next_door()
    position = await stage.talk(stream, ASKED[2], meaning="Now split it by ad position.", agent="data")

    truth = Truth(database)
    _check_answer(stage, 1, overall, "income and eCPM, as computed from the tables", truth.overall())
    _check_answer(
        stage, 2, media, "the media that lost most, and the drop that run 1 found", [truth.worst("media"), truth.drop()]
    )
    _check_answer(
        stage,
        3,
        position,
        "the position that lost most, in the media that run 2 found",
        [truth.worst("position"), truth.worst("media")],
    )
    stage.check(
        "what those tables say",
        expected=["收入 -20%", "eCPM -35%", "media_B", "position_17"],
        found=[*truth.overall(), truth.worst("media"), truth.worst("position")],
    )
    sql = position.tool_history[-1].arguments["sql"]
    stage.check(
        "run 3 asked for a media that only memory could tell: in Ada's words, in its SQL",
        expected=[False, True],
        found=["media_B" in ASKED[2], "WHERE media = 'media_B'" in sql],
    )
    memories = [memory_of(session) for session in (overall, media, position)]
    stage.check("the goal stays the same", expected=[GOAL] * 3, found=[memory["goal"] for memory in memories])
    for number in (2, 3):
        before, after = memories[number - 2]["completed"], memories[number - 1]["completed"]
        stage.check(
            f"run {number} added one finding to those before it",
            expected=[*before, *after[-1:]],
            found=after[: len(before) + 1] if len(after) == len(before) + 1 else after,
        )
    check_runs(stage, position, count=3)


def _check_answer(stage: Stage, number: int, session: Session, what: str, parts: list[str]) -> None:
    answer = last_answer(session, number=number)
    stage.check(f"answer {number} names {what}", expected=parts, found=parts_found(answer, parts))


class _Row(NamedTuple):
    date: str
    media: str
    position: str
    impressions: int
    income: int


class Truth:
    """What the ads database says, asked by the demo itself, and computed without the agent's SQL."""

    def __init__(self, database: Path) -> None:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT date, media, position, impressions, income FROM ads_daily")
            self._rows = [_Row(*row) for row in found]
        self._before, self._after = sorted({row.date for row in self._rows})

    def overall(self) -> list[str]:
        before, after = self._day(self._before), self._day(self._after)
        return [f"收入 {after[0] / before[0] - 1:+.0%}", f"eCPM {after[1] / before[1] - 1:+.0%}"]

    def drop(self) -> str:
        return f"{1 - self._day(self._after)[0] / self._day(self._before)[0]:.0%}"

    def worst(self, what: Literal["media", "position"]) -> str:
        """The media, or the position, with the greatest loss of income."""
        change: dict[str, int] = {}
        for row in self._rows:
            name = row.media if what == "media" else row.position
            change[name] = change.get(name, 0) + (row.income if row.date == self._after else -row.income)
        return min(change, key=lambda name: change[name])

    def _day(self, date: str) -> tuple[int, float]:
        """Income and eCPM of one day."""
        rows = [row for row in self._rows if row.date == date]
        income = sum(row.income for row in rows)
        return income, 1000 * income / sum(row.impressions for row in rows)
