"""Real agent conversations: imported, read back, exported equal byte for byte.

``tests/data/sample.jsonl`` always; and every ``*.jsonl.gz`` in the folder that SATCHEL_TEST_DATA names (by default
``../shared/data`` beside the repository), if it is there.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from satchel.domain.principal import Principal
from satchel.store import Store
from satchel.stores.memory import MemoryStore
from satchel.stores.mysql import MysqlStore
from satchel.stores.postgres import PostgresStore
from satchel.stores.redis import RedisStore
from satchel.stores.sqlite import SqliteStore
from satchel.testing.chat_grammar import assert_accepted
from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage
from tests.servers import mysql, postgres, redis

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("SATCHEL_TEST_DATA") or ROOT.parent / "shared" / "data")
FILES = [ROOT / "tests" / "data" / "sample.jsonl", *sorted(DATA.glob("*.jsonl.gz"))]
FIVE = ("source", "licence", "session_id", "messages", "meta")
ADA = Principal.operator(tenant_id="acme", acting_for="ada")
EVE = Principal.operator(tenant_id="umbrella", acting_for="eve")


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()


def test_the_real_conversations_are_there() -> None:
    if len(FILES) == 1:
        pytest.skip(f"no *.jsonl.gz in {DATA} (SATCHEL_TEST_DATA): only tests/data/sample.jsonl is tried")
    assert sum(len(lines_of(path)) for path in FILES[1:]) > 500


SERVERS = [pytest.param(name, marks=pytest.mark.full) for name in ("postgres", "mysql", "redis")]


@pytest.fixture(params=["memory", "sqlite", *SERVERS])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    clock = SettableClock()
    store: Store = MemoryStore(clock=clock)
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "real.db", clock=clock)
    elif request.param == "postgres":
        store = PostgresStore(postgres.emptied_database("real", once_for=tmp_path), clock=clock)
    elif request.param == "mysql":
        store = MysqlStore(mysql.emptied_database("real", once_for=tmp_path), clock=clock)
    elif request.param == "redis":
        store = RedisStore(redis.emptied_database("real", once_for=tmp_path), clock=clock)
    made = Stage(store, clock)
    async with made.opened:
        yield made


def members(line: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(line, type=dict[str, msgspec.Raw])


def bodies(line: bytes) -> list[bytes]:
    return [bytes(raw) for raw in msgspec.json.decode(members(line)["messages"], type=list[msgspec.Raw])]


async def exported(stage: Stage, who: Principal, *session_ids: str) -> list[bytes]:
    return b"".join([piece async for piece in stage.sessions(who).export_sessions(session_ids)]).splitlines()


def without_ids(line: bytes) -> Any:
    shown = json.loads(line)
    for name in ("session_id", "user_id"):
        shown["satchel"].pop(name)
    return shown


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
async def test_conversations_come_back_byte_for_byte(stage: Stage, path: Path) -> None:
    lines = lines_of(path)
    reports = [one async for one in stage.sessions(ADA).import_sessions(lines)]
    assert [one.result for one in reports] == ["imported"] * len(lines)
    sessions = stage.sessions(ADA)
    for line, report in zip(lines, reports, strict=True):
        read: list[bytes] = []
        while page := (await sessions.messages(report.session_id, after=len(read), limit=1_000)).items:
            read += [message.body for message in page]
        assert read == bodies(line)
    again = await exported(stage, ADA, *(one.session_id for one in reports))
    for line, back in zip(lines, again, strict=True):
        given, told = members(line), members(back)
        assert list(told) == [*FIVE, "satchel"]
        assert bodies(back) == bodies(line)
        for key in ("source", "licence", "session_id", "meta"):
            assert bytes(told[key]) == bytes(given[key]), key
    copies = [one async for one in stage.sessions(EVE).import_sessions(again)]
    twice = await exported(stage, EVE, *(one.session_id for one in copies))
    assert [without_ids(line) for line in twice] == [without_ids(line) for line in again]


@pytest.mark.parametrize("stage", ["memory"], indirect=True)  # the context is built from what any store gives
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
async def test_a_context_never_parts_a_call_from_its_result(stage: Stage, path: Path) -> None:
    async for report in stage.sessions(ADA).import_sessions(lines_of(path)):
        for max_tokens in (300, 3_000, 1_000_000):
            context = await stage.sessions(ADA).context(report.session_id, max_tokens=max_tokens)
            assert_accepted(context.messages)
            assert context.tokens <= max_tokens
            assert context.messages or max_tokens < 1_000_000


async def test_one_session_of_three_thousand_messages_of_chained_conversations(stage: Stage) -> None:
    """Conversations as runs of one session, each message as it came."""
    conversations = [bodies(line) for path in FILES for line in lines_of(path)]
    agent = Principal.agent("replay", tenant_id="acme")
    made = await stage.sessions(agent).create_session(user_id="ada")
    sid = made.session_id
    given: list[bytes] = []
    for number, messages in enumerate(itertools.cycle(conversations)):
        _, attempt = await stage.started_run(sid, agent, goal=f"conversation {number}")
        for start in range(0, len(messages), 100):
            await stage.sessions(agent).append_messages(sid, messages[start : start + 100], attempt=attempt)
        await stage.runs(agent).complete_run(sid, attempt)
        given += messages
        if len(given) >= 3_000:
            break
    read: list[bytes] = []
    cursor: str | None = None
    while True:
        page = await stage.sessions(agent).messages(sid, limit=1_000, cursor=cursor)
        read += [message.body for message in page]
        cursor = page.next
        if cursor is None:
            break
    assert read == given
    shown = await stage.sessions(agent).get_session(sid)
    assert (shown.message_count, len(shown.messages)) == (len(given), 50)
    assert [message.body for message in shown.messages] == given[-50:]
    context = await stage.sessions(agent).context(sid, max_tokens=20_000)
    assert_accepted(context.messages)
    (line,) = await exported(stage, agent, sid)
    assert bodies(line) == given
    (copy,) = [one async for one in stage.sessions(EVE).import_sessions([line])]
    (back,) = await exported(stage, EVE, copy.session_id)
    told, expected = without_ids(back), without_ids(line)
    for shown_line in (told, expected):
        shown_line["satchel"].pop("external_id")
        shown_line.pop("session_id")
    assert told == expected
