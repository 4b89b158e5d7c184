"""What the MySQL store promises beside the contract: what is its own; the rest is every server's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncmy
import asyncmy.errors
import msgspec
import pytest

import satchel
from satchel import Principal, SessionManager
from satchel.domain.ids import SessionRef
from satchel.errors import InvalidInput, StoreUnavailable
from satchel.servers import MariadbServer
from satchel.store import Change, Outcome
from satchel.stores.mysql import MysqlStore, schema
from satchel.stores.mysql.checking import findings
from satchel.stores.mysql.connection import Line
from satchel.stores.mysql.faults import meaning_of
from satchel.stores.mysql.literals import Statement, literal, rows
from satchel.testing.rows import REF, event, put, record
from tests.open_files import open_files
from tests.servers.certificates import write_certificate
from tests.servers.mysql import emptied_database, new_database, server
from tests.stores.on_a_server import ADA, OTHER, OnAServer, option, said


async def connect(url: str) -> Any:
    database = url.rpartition("/")[2].partition("?")[0]
    return await asyncmy.connect(
        host="127.0.0.1", port=server().port, user="satchel", database=database, autocommit=True
    )


async def ask(url: str, statement: str) -> Any:
    connection = await connect(url)
    async with connection.cursor() as cursor:
        await cursor.execute(statement)
        found = await cursor.fetchall()
    connection.close()
    return found[0][0] if found else None


_OURS = "FROM information_schema.processlist WHERE user = 'satchel' AND db = DATABASE() AND id <> CONNECTION_ID()"


class TestMysql(OnAServer):
    known = schema.KNOWN

    def new_database(self) -> str:
        return new_database()

    def port(self) -> int:
        return server().port

    async def ask(self, url: str, statement: str) -> Any:
        return await ask(url, statement)

    async def end_connections(self, url: str) -> None:
        connection = await connect(url)
        async with connection.cursor() as cursor:
            await cursor.execute(f"SELECT id {_OURS}")
            for (number,) in await cursor.fetchall():
                with contextlib.suppress(asyncmy.errors.OperationalError):  # it went by itself
                    await cursor.execute(f"KILL {number}")
        connection.close()

    async def connections(self, url: str) -> int:
        await asyncio.sleep(0.1)  # the server hears of a goodbye a moment later
        found: int = await ask(url, f"SELECT count(*) {_OURS} AND command <> 'Quit'")
        return found

    async def lock_a_session(self, url: str) -> Any:
        rival = await connect(url)
        await rival.query("START TRANSACTION")
        await rival.query("SELECT 1 FROM sessions FOR UPDATE")
        return rival

    async def unlock(self, rival: Any) -> None:
        rival.close()

    async def test_two_hundred_creates_at_once_all_succeed(self, url: str) -> None:
        """And none needs a second try: where a row is missing nothing is locked."""
        before = await deadlocks(url)
        await super().test_two_hundred_creates_at_once_all_succeed(url)
        assert await deadlocks(url) == before

    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return emptied_database("store", once_for=request.node.nodeid)


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return emptied_database("store", once_for=request.node.nodeid)


@pytest.fixture
async def store(url: str) -> AsyncIterator[MysqlStore]:
    opened = MysqlStore(url)
    await opened.open()
    yield opened
    await opened.close()


# -- addresses


@pytest.mark.parametrize(
    "url",
    [
        "mysql://h",
        "mysql://h/",
        "mysql://h/a/b",
        "mysql://h:port/d",
        "mysql://h/d?pool_size=0",
        "mysql://h/d?connect_timeout=nan",
        "mysql://h/d?tls=maybe",
        "mysql://h/d?durability=most",
        "mysql://h/d?sslmode=require",
        "mysql://h/d%00",
    ],
)
def test_an_address_that_is_none_is_refused_by_name(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"^url: "):
        satchel.open(url)


async def test_a_server_that_is_not_there_is_unavailable_and_the_password_stays_unsaid() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await satchel.open("mysql://ada:secret@127.0.0.1:1/d?connect_timeout=1").open()
    assert "secret" not in str(caught.value)


async def test_a_database_that_is_missing_and_a_stranger_are_told_so_at_once(url: str) -> None:
    with pytest.raises(StoreUnavailable, match="there is no database 'missing'"):
        await satchel.open(url.replace("/store?", "/missing?")).open()
    with pytest.raises(StoreUnavailable, match=r"the password .* was refused"):
        await satchel.open(url.replace("//satchel@", "//stranger:p@")).open()


async def test_a_store_is_opened_through_the_servers_socket(url: str) -> None:
    through = option(url.replace("127.0.0.1", "nowhere.invalid"), f"unix_socket={server().socket}")
    await ask(url, "CREATE USER IF NOT EXISTS 'ada'@'localhost' IDENTIFIED BY 'pässword'")
    await ask(url, "GRANT ALL ON *.* TO 'ada'@'localhost'")
    async with satchel.open(through.replace("//satchel@", "//ada:p%C3%A4ssword@")) as opened:
        assert (await SessionManager(opened, ADA).create_session()).version == 0


@pytest.mark.full
async def test_a_connection_is_encrypted_and_goes_to_nobody_else() -> None:
    server()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server has an account of its own
        certificate, key = write_certificate(folder, "127.0.0.1")
        with MariadbServer(settings={"ssl_cert": str(certificate), "ssl_key": str(key)}) as safe:
            for option_, cipher in (
                ("tls=off", b""),
                ("tls=on", b"TLS_"),
                (f"tls=verify&tls_ca={certificate}", b"TLS_"),
            ):
                async with satchel.open(option(safe.url(), option_)) as opened:
                    assert isinstance(opened.store, MysqlStore)
                    ((row,),) = await opened.store._fetch(b"SHOW STATUS LIKE 'Ssl_cipher'")  # noqa: SLF001  # a statement on its own connection
                    assert row[1][:4] == cipher
            with pytest.raises(StoreUnavailable):
                await satchel.open(option(safe.url(), "tls=verify")).open()
            with pytest.raises(InvalidInput, match="tls_ca"):
                await satchel.open(option(safe.url(), f"tls=verify&tls_ca={key}.missing")).open()


# -- migrations


async def test_a_step_that_fails_may_be_tried_again_and_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables stay where they were made, each for itself; the step counts only when its last statement was run."""
    url = new_database()
    with monkeypatch.context() as broken:
        step = (
            schema.MIGRATIONS[1].partition("CREATE TABLE IF NOT EXISTS events")[0] + "CREATE TABLE half (a NOTHING);\n"
        )
        broken.setattr(schema, "MIGRATIONS", {1: step})
        with pytest.raises(StoreUnavailable):
            await MysqlStore(url).open()
    assert await ask(url, "SELECT count(*) FROM schema_version") == 0
    async with satchel.open(url) as opened:
        assert (await SessionManager(opened, ADA).create_session()).version == 0


def test_every_statement_of_a_migration_may_be_repeated() -> None:
    for script in schema.MIGRATIONS.values():
        assert all(one.startswith("CREATE TABLE IF NOT EXISTS") for one in schema.statements_of(script))


# -- what is stored


async def test_ids_that_differ_in_case_or_spaces_are_different_ids(store: MysqlStore) -> None:
    refs = [SessionRef(tenant, name) for tenant in ("t", "T", "t ") for name in ("s1", "S1", "s1 ", "ß", "ss", "s1\0")]
    for n, ref in enumerate(refs):
        assert await put(store, ref, record=record(ref, title=str(n))) is Outcome.APPLIED
    for n, ref in enumerate(refs):
        found = (await store.snapshot(ref)).record
        assert found is not None
        assert (found.ref, found.title) == (ref, str(n))
    for tenant in ("t", "T", "t "):
        page = await store.sessions(tenant, limit=99)
        assert {listed.record.session_id for listed in page.sessions} == {"s1", "S1", "s1 ", "ß", "ss", "s1\0"}


@pytest.mark.parametrize(
    "text", ["\0", "'", "\\", "\\'", "');DROP TABLE sessions;--", '\x1a\r\n\t"', "早上好🙂", "$1 %s ?"]
)
async def test_every_character_comes_back_and_none_ends_a_statement(store: MysqlStore, text: str) -> None:
    body = json.dumps({"role": "user", "content": text}, ensure_ascii=False).encode() + b" " + text.encode() * 0
    ref = SessionRef("t" + text, "s" + text)
    told = msgspec.structs.replace(event(1, body=body), actor="user:" + text)
    assert await put(store, ref, record=record(ref, last_seq=1), events=(told,)) is Outcome.APPLIED
    (found,) = (await store.events(ref, limit=9)).events
    assert (found.body, found.actor) == (body, told.actor)


def test_values_stand_in_statements_as_what_they_are() -> None:
    assert literal(None) == b"NULL"
    assert (literal(True), literal(-3)) == (b"1", b"-3")
    assert literal("a'b\\c\0") == b"'a\\'b\\\\c\\0'"
    assert (
        Statement("a = $2 AND b IN ($1)")(rows([("$2", 1), (None, b"x")]), "$1")
        == b"a = '$1' AND b IN (('$2',1),(NULL,'x'))"
    )
    for bad in (2**63, -(2**63) - 1, "\udc80"):
        with pytest.raises(ValueError, match=r"64 bits|surrogates"):
            literal(bad)
    with pytest.raises(TypeError):
        literal(1.5)


async def test_a_connection_that_was_idle_for_long_is_closed_when_it_is_replaced(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.stores.mysql.connection.IDLE", 0.05)
    async with satchel.open(url) as opened:
        manager = SessionManager(opened, ADA)
        sid = (await manager.create_session()).session_id
        before = len(open_files())
        for _ in range(4):
            await asyncio.gather(*(manager.get_session(sid) for _ in range(8)))
            await asyncio.sleep(0.1)
        assert len(open_files()) <= before + 8


async def test_the_largest_messages_go_in_batches_that_a_packet_holds(url: str) -> None:
    """What has to be escaped takes two bytes of a packet for one: more than one packet for all of it."""
    text = "\\'" * (1 << 20)
    async with satchel.open(url) as opened:
        manager = SessionManager(opened, ADA)
        session = await manager.create_session()
        before = [manager.append_message(session.session_id, {"role": "assistant", "content": text}) for _ in range(3)]
        await asyncio.gather(*before)
        assert [one.content == text for one in await manager.messages(session.session_id)] == [True] * 3


async def test_a_row_that_no_packet_holds_is_refused_and_harms_no_neighbour(store: MysqlStore) -> None:
    await put(store)
    huge = b'"' + b"\\\\" * (5 << 20) + b'"'
    changes = [
        Change(ref=REF, base=7, record=record(revision=8, last_seq=1), events=(event(1, body=huge),)),
        Change(ref=OTHER, base=None, record=record(OTHER)),
    ]
    assert await store.commit(changes) == [Outcome.REJECTED, Outcome.APPLIED]


async def test_conversations_come_back_byte_for_byte(url: str) -> None:
    """Those of this folder; `make test-full` takes all that there are."""
    lines = (Path(__file__).parents[1] / "data" / "sample.jsonl").read_bytes().splitlines()
    async with satchel.open(url) as opened:
        sessions = SessionManager(opened, Principal.operator(tenant_id="acme", acting_for="ada"))
        ids = [report.session_id async for report in sessions.import_sessions(lines)]
        told = b"".join([piece async for piece in sessions.export_sessions(ids)]).splitlines()
    for line, back in zip(lines, told, strict=True):
        given, shown = (msgspec.json.decode(one, type=dict[str, msgspec.Raw]) for one in (line, back))
        assert msgspec.json.decode(shown["messages"], type=list[msgspec.Raw]) == msgspec.json.decode(
            given["messages"], type=list[msgspec.Raw]
        )
        assert bytes(shown["meta"]) == bytes(given["meta"])


# -- transactions


class Failing:
    """Makes statements that begin with some word fail as the server would say it, a number of times."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, word: bytes, code: int, times: int, *, done: bool = False
    ) -> None:
        self.left = times
        real = Line.run

        async def run(line: Line, *statements: bytes) -> Any:
            at = [index for index, one in enumerate(statements) if one.startswith(word)]
            if not at or not self.left:
                return await real(line, *statements)
            self.left -= 1
            await real(line, *statements[: at[0] + done])
            line.answered = at[0]
            raise asyncmy.errors.OperationalError(code, "said by the test")

        monkeypatch.setattr(Line, "run", run)


@pytest.mark.parametrize("code", [1213, 1205])
@pytest.mark.parametrize("word", [b"SELECT tenant_id, session_id, revision", b"INSERT INTO events", b"COMMIT"])
async def test_deadlocks_and_locks_that_were_waited_for_are_tried_again_wherever_they_come(
    url: str, monkeypatch: pytest.MonkeyPatch, code: int, word: bytes
) -> None:
    async with satchel.open(url) as opened:
        manager = SessionManager(opened, ADA)
        session_id = (await manager.create_session()).session_id
        failing = Failing(monkeypatch, word, code, {1213: 3, 1205: 1}[code])
        assert (await manager.append_message(session_id, said("once"))).seq == 1
        assert failing.left == 0
        assert (await manager.get_session(session_id)).message_count == 1


@pytest.mark.parametrize("done", [False, True])
async def test_an_error_at_the_commit_is_no_success_and_its_write_lands_once(
    url: str, monkeypatch: pytest.MonkeyPatch, *, done: bool
) -> None:
    async with satchel.open(url) as opened:
        manager = SessionManager(opened, ADA)
        session_id = (await manager.create_session()).session_id
        failing = Failing(monkeypatch, b"COMMIT", 1180, 1, done=done)
        assert (await manager.append_message(session_id, said("once"))).seq == 1
        assert failing.left == 0
        assert (await manager.get_session(session_id)).message_count == 1


async def test_batches_over_the_same_sessions_in_any_order_meet_no_deadlock(store: MysqlStore, url: str) -> None:
    other = MysqlStore(url)
    await other.open()
    refs = [SessionRef("t", f"s{n}") for n in range(30)]
    await store.commit([Change(ref=ref, base=None, record=record(ref)) for ref in refs])
    before = await deadlocks(url)

    async def write(mine: MysqlStore, seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(25):
            drawn = draw.sample(refs, 12)
            states = (await mine.load({ref: satchel_want() for ref in drawn})).sessions
            changes = []
            for ref in drawn:
                found = states[ref].record  # type: ignore[union-attr]  # it is no error
                assert found is not None
                seq = found.last_seq + 1
                changed = msgspec.structs.replace(found, revision=found.revision + 1, last_seq=seq)
                changes.append(Change(ref=ref, base=found.revision, record=changed, events=(event(seq),)))
            assert set(await mine.commit(changes)) <= {Outcome.APPLIED, Outcome.STALE}

    await asyncio.gather(*(write(mine, seed) for seed, mine in enumerate([store, other] * 3)))
    assert await deadlocks(url) == before
    for ref in refs:
        page = await store.events(ref, limit=999)
        assert page.record is not None
        assert [one.seq for one in page.events] == list(range(1, page.record.last_seq + 1))
    await other.close()


def satchel_want() -> Any:
    from satchel.domain.state import Want

    return Want()


async def deadlocks(url: str) -> int:
    """That InnoDB met since it was started; MariaDB and MySQL count them in different places."""
    for source in (
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_DEADLOCKS'",
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'",
    ):
        with contextlib.suppress(asyncmy.errors.MySQLError):
            return int(await ask(url, source))
    raise AssertionError("the server counts no deadlocks")


# -- what an operator should know


def test_no_text_of_the_servers_reaches_a_caller() -> None:
    secret = "password=hunter2"
    for error in (
        *(asyncmy.errors.OperationalError(code, secret) for code in (1045, 1205, 1213, 1290, 1021, 2003, 2013, 1064)),
        asyncmy.errors.IntegrityError(1062, secret),
        asyncmy.errors.InterfaceError(0, secret),
        asyncmy.errors.InternalError(secret),
        ConnectionRefusedError(secret),
        TimeoutError(secret),
    ):
        assert "hunter2" not in str(meaning_of(error))


async def test_a_server_that_loses_what_it_acknowledged_is_refused_unless_the_address_accepts_it() -> None:
    with MariadbServer(settings={"innodb_flush_log_at_trx_commit": "2"}) as weak:
        with pytest.raises(InvalidInput, match="innodb_flush_log_at_trx_commit=2"):
            await satchel.open(weak.url()).open()
        async with satchel.open(weak.url() + "?durability=relaxed") as opened:
            assert not opened.store.capabilities.durable
            found = {one.what: one for one in await opened.store.check() if not one.is_ok}
    assert {what: one.level for what, one in found.items()} == {"innodb_flush_log_at_trx_commit=2": "error"}
    assert all(one.mend.startswith("SET GLOBAL ") for one in found.values())
    with MariadbServer() as sound:
        async with satchel.open(sound.url()) as opened:
            assert opened.store.capabilities.durable
            told = await opened.store.check()
    assert {one.level for one in told} == {"ok"}
    assert {one.what.partition("=")[0] for one in told} >= {"version", "clock difference", "innodb_doublewrite"}


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"version": "10.3.39-MariaDB"}, "version=10.3.39-MariaDB"),
        ({"version": "5.7.44-log"}, "version=5.7.44-log"),
        ({"innodb_flush_log_at_trx_commit": "0"}, "innodb_flush_log_at_trx_commit=0"),
        ({"innodb_doublewrite": "OFF"}, "innodb_doublewrite=OFF"),
        ({"innodb_flush_method": "nosync"}, "innodb_flush_method=nosync"),
        ({"log_bin": "ON", "sync_binlog": "0"}, "sync_binlog=0"),
        ({"log_bin": "ON", "sync_binlog": "1", "binlog_format": "STATEMENT"}, "binlog_format=STATEMENT"),
    ],
)
def test_settings_that_break_a_promise_are_found(variables: dict[str, str], what: str) -> None:
    good = {"version": "8.0.36", "innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"}
    assert {found.level for found in findings(good)} == {"ok"}
    (found,) = [found for found in findings({**good, **variables}) if not found.is_ok]
    assert (found.what, found.level) == (what, "error")
    assert found.why
    assert found.mend


def test_replicas_that_nobody_waits_for_are_warned_of() -> None:
    good = {"version": "11.4.2-MariaDB"}
    (found,) = [found for found in findings(good, replicas=1) if not found.is_ok]
    assert (found.what, found.level) == ("rpl_semi_sync_master_enabled=OFF", "warning")
    for waited in ({"rpl_semi_sync_master_enabled": "ON"}, {"rpl_semi_sync_source_enabled": "ON"}, {"wsrep_on": "ON"}):
        assert {one.level for one in findings({**good, **waited}, replicas=2)} == {"ok"}
