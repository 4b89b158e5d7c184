"""What the SQLite store promises beside the contract: plans, files, processes, faults of the disk."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest

from satchel.domain.event import CORRUPT_BODY, Event
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.record import SessionRecord, SessionStatus
from satchel.domain.run import RunRow
from satchel.domain.state import Clock, SessionState, Want
from satchel.domain.tool_call import CallRow
from satchel.errors import InvalidInput, SchemaMismatch, StoreBusy, StoreCorrupt, StoreMisused, StoreUnavailable
from satchel.store import Change, Loaded, Outcome
from satchel.stores.sqlite import SqliteStore
from satchel.stores.sqlite import schema as schema_module
from satchel.stores.sqlite.clock import machine_clock

ADA = SessionRef("acme", "sess_ada")
BOB = SessionRef("acme", "sess_bob")


def new_record(ref: SessionRef, **fields: Any) -> SessionRecord:
    values: dict[str, Any] = {"user_id": "ada", "revision": 7, "created_at": 1, "updated_at": 1} | fields
    return SessionRecord(tenant_id=ref.tenant_id, session_id=ref.session_id, active_at=1, clock_from=1, **values)


def creation(ref: SessionRef, *, metadata: bytes | None = None, **fields: Any) -> Change:
    return Change(ref=ref, base=None, record=new_record(ref, **fields), metadata=metadata)


def message(seq: int, body: bytes = b'{"role":"user","content":"hello"}', **fields: Any) -> Event:
    values: dict[str, Any] = {"kind": "message", "version": seq, "at": 1, "actor": "user:ada"} | fields
    return Event(seq=seq, body=body, **values)


def append(old: SessionRecord, *events: Event, **more: Any) -> Change:
    fields = {"revision": old.revision + 1, "last_seq": old.last_seq + len(events)} | more.pop("fields", {})
    return Change(ref=old.ref, base=old.revision, record=msgspec.structs.replace(old, **fields), events=events, **more)


async def record_of(store: SqliteStore, ref: SessionRef) -> SessionRecord:
    record = (await store.snapshot(ref)).record
    assert record is not None
    return record


async def say(store: SqliteStore, ref: SessionRef, body: bytes = b'{"role":"user","content":"hello"}') -> list[Outcome]:
    old = await record_of(store, ref)
    return await store.commit([append(old, message(old.last_seq + 1, body))])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path)
    await opened.open()
    yield opened
    await opened.close()


async def open_and_close(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.close()


# -- hot reads


async def test_the_newest_messages_are_found_at_once_behind_100_000_other_events(
    store: SqliteStore, path: Path
) -> None:
    await store.commit([creation(ADA)])
    old = await record_of(store, ADA)
    said = [message(seq) for seq in range(1, 101)]
    steps = [message(seq, b"{}", kind="run_step") for seq in range(101, 100_001)]
    assert await store.commit([append(old, *said, *steps)]) == [Outcome.APPLIED]
    started = time.perf_counter()
    for _ in range(20):
        snapshot = await store.snapshot(ADA, messages=50)
        assert [event.seq for event in snapshot.messages] == list(range(51, 101))
        page = await store.events(ADA, kind="message", newest_first=True, limit=50)
        assert [event.seq for event in page.events] == list(range(100, 50, -1))
    assert (time.perf_counter() - started) / 40 < 0.02


@pytest.mark.parametrize("sessions", [20_000, pytest.param(100_000, marks=pytest.mark.full)])
async def test_one_users_list_is_quick_among_many_sessions(store: SqliteStore, path: Path, sessions: int) -> None:
    refs = [SessionRef("acme", f"sess_{n:06d}") for n in range(sessions)]
    every = sessions // 100
    await store.commit(
        [
            creation(ref, user_id="ada" if n % every == 0 else f"user{n % 977}", updated_at=n)
            for n, ref in enumerate(refs)
        ]
    )
    started = time.perf_counter()
    for _ in range(20):
        page = await store.sessions("acme", user_id="ada", limit=50)
        assert [listed.record.updated_at for listed in page.sessions] == list(range(99 * every, 49 * every, -every))
    assert (time.perf_counter() - started) / 20 < 0.02


# -- files


async def test_files_are_for_their_owner_only(store: SqliteStore, path: Path) -> None:
    await store.commit([creation(ADA)])
    for name in path.parent.iterdir():
        assert stat.S_IMODE(name.stat().st_mode) == 0o600, name


@pytest.mark.parametrize("wrong", [":memory:", "", "file:a.db", "a\0b"])
def test_a_path_that_is_no_file_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput):
        SqliteStore(wrong)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no folder .*missing"):
        await SqliteStore(tmp_path / "missing" / "agent.db").open()
    with pytest.raises(InvalidInput, match="is a folder"):
        await SqliteStore(tmp_path).open()


async def test_a_path_with_odd_characters_is_a_path(tmp_path: Path) -> None:
    odd = tmp_path / "a b?mode=memory#%41'ß.db"
    await open_and_close(odd)
    assert odd.exists()


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    path.write_bytes(b"a letter to a friend" * 100)
    with pytest.raises(StoreCorrupt):
        await SqliteStore(path).open()
    assert path.read_bytes() == b"a letter to a friend" * 100


async def test_the_last_close_leaves_one_file_with_all_in_it(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.commit([creation(ADA)])
    await store.close()
    await store.close()
    assert not path.with_name("agent.db-wal").exists()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
    connection.close()


async def test_a_thousand_messages_of_500_bytes_take_at_most_1_8_times_their_size(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    ref = SessionRef("acme", "sess_" + "a" * 24)
    await store.commit([creation(ref, title="Flask will not start", updated_at=1_790_000_000_000_000)])
    body = b'{"role":"user","content":"' + b"x" * 472 + b'"}'
    assert len(body) == 500
    old = await record_of(store, ref)
    for n in range(1, 1001):
        now = 1_790_000_000_000_000 + n
        change = append(
            old,
            message(n, body, at=now, actor="agent:shop"),
            fields={"updated_at": now, "version": n},
            idempotency=(IdempotencyRecord(os.urandom(16), os.urandom(16), Answer(version=n, at=now, seqs=(n,))),),
        )
        assert await store.commit([change]) == [Outcome.APPLIED]
        old = change.record
    await store.close()
    assert path.stat().st_size / 500_000 <= 1.8


async def test_the_log_stays_small_under_writes_and_reads(store: SqliteStore, path: Path) -> None:
    await store.commit([creation(ADA)])
    body = b'{"content":"' + b"x" * 100_000 + b'"}'
    for _ in range(400):  # 40 MB
        await asyncio.gather(say(store, ADA, body), store.snapshot(ADA, messages=5))
    assert path.with_name("agent.db-wal").stat().st_size <= 24 * 1024 * 1024


# -- erasure

MARKER = "xyzzy-secret-"


def traces(path: Path) -> dict[str, int]:
    """By another process: to close the file here would drop SQLite's locks on it."""
    found = {}
    for name in sorted(path.parent.iterdir()):
        grep = subprocess.run(["grep", "-a", "-o", MARKER, str(name)], capture_output=True, check=False, text=True)
        found[name.name] = grep.stdout.count(MARKER)
    return {name: count for name, count in found.items() if count}


def marked(seed: int) -> bytes:
    return f'{{"content":"{MARKER * (1 + seed * 7 % 90)}"}}'.encode()


async def write_everything(store: SqliteStore, ref: SessionRef) -> SessionRecord:
    await store.commit([creation(ref, title=MARKER, metadata=marked(3))])
    old = await record_of(store, ref)
    change = append(
        old,
        *(message(seq, marked(seq), metadata=marked(1)) for seq in range(1, 5)),
        fields={"title": MARKER * 2},
        working_memory=marked(70),
        metadata=marked(40),
        runs=(
            RunRow(
                run_id="run_1",
                number=1,
                status="READY",
                created_at=1,
                version=1,
                goal=MARKER,
                input=msgspec.Raw(marked(5)),
                input_metadata=msgspec.Raw(marked(1)),
                metadata=msgspec.Raw(marked(2)),
            ),
        ),
        calls=(
            CallRow(
                seq=1,
                version=1,
                tool=MARKER,
                arguments_hash=b"h" * 16,
                status="succeeded",
                start_time=1,
                result_seq=2,
                tool_call_id=MARKER,
            ),
        ),
        idempotency=(IdempotencyRecord(b"k" * 16, b"f" * 16, Answer(version=1, at=1, ids=(MARKER,))),),
    )
    assert await store.commit([change]) == [Outcome.APPLIED]
    return change.record


async def bury(store: SqliteStore, old: SessionRecord) -> None:
    tombstone = new_record(
        old.ref, status="DELETED", revision=old.revision + 1, last_seq=old.last_seq + 1, erasing=True
    )
    gone = Change(
        ref=old.ref,
        base=old.revision,
        record=tombstone,
        events=(message(old.last_seq + 1, b"{}", kind="session_deleted"),),
        working_memory=b"",
        metadata=b"",
    )
    assert await store.commit([gone]) == [Outcome.APPLIED]


async def erase(store: SqliteStore, ref: SessionRef, step: int = 3) -> int:
    total = 0
    while erased := await store.erase(ref, step):
        assert 0 < erased <= step
        total += erased
    assert await store.scrub()
    return total


async def test_no_trace_of_an_erased_session_is_in_the_files(store: SqliteStore, path: Path) -> None:
    draw = random.Random(5)
    refs = [SessionRef("acme", f"sess_{draw.randrange(10**9):024d}") for _ in range(60)]
    for ref in refs:  # neighbours of all sizes, so that rows are moved within and between pages
        await store.commit([creation(ref)])
    for _ in range(600):
        size = draw.choice([20, 300, 900, 3000])
        await say(store, draw.choice(refs), b'{"content":"' + b"x" * size + b'"}')
    secret = [SessionRef("acme", f"sess_{draw.randrange(10**9):024d}") for _ in range(10)]
    records = [await write_everything(store, ref) for ref in secret]
    for n in range(400):
        index = n % len(records)
        old = records[index]
        change = append(old, message(old.last_seq + 1, marked(draw.randrange(90))), fields={"title": MARKER * (n % 9)})
        await store.commit([change])
        records[index] = change.record
        size = draw.choice([20, 300, 900, 3000])
        await say(store, draw.choice(refs), b'{"content":"' + b"x" * size + b'"}')
    assert traces(path)
    for old in records:
        await bury(store, old)
    assert all(await asyncio.gather(*(erase(store, ref) for ref in secret)))
    assert traces(path) == {}
    for ref in secret:
        assert await store.erase(ref, 100) == 0
        assert (await record_of(store, ref)).status == "DELETED"  # the tombstone stays
        assert (await store.events(ref, limit=10)).events == ()
    assert (await store.snapshot(refs[0], messages=1)).messages


async def test_a_large_file_is_not_scrubbed_unasked(store: SqliteStore, path: Path) -> None:
    await bury(store, await write_everything(store, ADA))
    while await store.erase(ADA, 100):
        pass
    assert not await store.scrub(most=path.stat().st_size - 1)
    assert await store.scrub(most=path.stat().st_size)
    assert traces(path) == {}


async def test_only_a_tombstone_is_erased(store: SqliteStore) -> None:
    await write_everything(store, ADA)
    assert await store.erase(ADA, 100) == 0
    assert await store.erase(BOB, 100) == 0
    assert len((await store.events(ADA, limit=10)).events) == 4


async def test_a_scrub_waits_for_readers_and_can_be_taken_up_again(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.stores.sqlite.store.SCRUB_PATIENCE", 0.1)
    await bury(store, await write_everything(store, ADA))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    while await store.erase(ADA, 100):
        pass
    assert not await store.scrub()
    reader.execute("COMMIT")
    assert await store.scrub()
    assert traces(path) == {}
    reader.close()


# -- opening


async def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    await open_and_close(path)
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO schema_version (version, applied_at) VALUES (9000, 1)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch) as raised:
        await SqliteStore(path).open()
    assert (raised.value.found, raised.value.known) == (9000, schema_module.KNOWN)
    assert path.read_bytes() == before


async def test_a_migration_that_fails_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await open_and_close(path)
    broken = "-- Breaks.\nCREATE TABLE half (a TEXT) STRICT;\nINSERT INTO nowhere VALUES (1);\n"
    with monkeypatch.context() as patch:
        patch.setattr(schema_module, "MIGRATIONS", schema_module.MIGRATIONS | {schema_module.KNOWN + 1: broken})
        patch.setattr(schema_module, "KNOWN", schema_module.KNOWN + 1)
        with pytest.raises(StoreUnavailable):
            await SqliteStore(path).open()
    store = SqliteStore(path)
    await store.open()
    assert await store.commit([creation(ADA)]) == [Outcome.APPLIED]
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").fetchone() == (0,)
    connection.close()


def test_every_migration_says_what_it_changes_and_for_whom() -> None:
    for script in schema_module.MIGRATIONS.values():
        assert re.match(r"-- .*\bcode\b", script)


_WORKER = textwrap.dedent(
    """
    import asyncio, sys, time
    from satchel.domain.ids import SessionRef
    from satchel.domain.record import SessionRecord
    from satchel.store import Change, Outcome
    from satchel.stores.sqlite import SqliteStore

    async def main(path, name):
        store = SqliteStore(path)
        await store.open()
        for n in range(50):
            record = SessionRecord(
                tenant_id="acme", session_id=f"{name}-{n}", user_id="ada", revision=1,
                created_at=1, updated_at=1, active_at=1, clock_from=1,
            )
            assert await store.commit([Change(ref=record.ref, base=None, record=record)]) == [Outcome.APPLIED]
        await store.close()

    asyncio.run(main(*sys.argv[1:]))
    """
)


async def test_several_processes_may_open_a_new_file_at_once(path: Path) -> None:
    workers = [
        await asyncio.create_subprocess_exec(sys.executable, "-W", "error", "-c", _WORKER, str(path), f"w{n}")
        for n in range(4)
    ]
    assert [await worker.wait() for worker in workers] == [0, 0, 0, 0]
    store = SqliteStore(path)
    await store.open()
    assert len((await store.sessions("acme", limit=1000)).sessions) == 200
    await store.close()


async def test_opening_waits_for_whoever_has_the_file(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    other.execute("CREATE TABLE theirs (a)")
    store = SqliteStore(path)
    opening = asyncio.create_task(store.open())
    await asyncio.sleep(0.3)
    assert not opening.done()
    other.execute("COMMIT")
    other.close()
    await opening
    await store.close()


# -- not open, closed, forked


async def test_a_store_that_is_not_open_says_so(path: Path) -> None:
    store = SqliteStore(path)
    for _ in range(2):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.load({}),
            lambda: store.commit([]),
            lambda: store.transact({}, lambda _: []),
            lambda: store.snapshot(ADA),
            lambda: store.wait(ADA, 0, 1),
            lambda: store.erase(ADA, 1),
            lambda: store.due("sweep", limit=1),
        ]
        for call in calls:
            with pytest.raises(StoreMisused):
                await call()
        await store.open()
        await store.open()
        await store.close()


async def test_what_was_handed_in_is_finished_by_close(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    writes = [asyncio.create_task(store.commit([creation(SessionRef("acme", f"s{n}"))])) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writes) == [[Outcome.APPLIED]] * 20


def test_a_store_opened_before_a_fork_refuses_to_work_in_the_child(path: Path) -> None:
    store = SqliteStore(path)
    asyncio.run(store.open())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # to fork with threads is what this is about
        child = os.fork()
    if child == 0:
        try:
            asyncio.run(store.commit([creation(ADA)]))
        except StoreMisused:
            asyncio.run(store.close())
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert asyncio.run(store.commit([creation(ADA)])) == [Outcome.APPLIED]
    asyncio.run(store.close())


# -- faults


async def test_a_corrupt_record_is_that_sessions_error_alone(store: SqliteStore, path: Path) -> None:
    await store.commit([creation(ADA), creation(BOB)])
    outside(path, "UPDATE sessions SET record = '{\"tenant_id\":' WHERE session_id = 'sess_ada'")
    loaded = await store.load({ADA: Want(), BOB: Want()})
    assert isinstance(loaded.sessions[ADA], StoreCorrupt)
    assert isinstance(loaded.sessions[BOB], SessionState)
    with pytest.raises(StoreCorrupt, match="sess_ada"):
        await store.snapshot(ADA)
    with pytest.raises(StoreCorrupt, match="sess_ada"):
        await store.events(ADA, limit=1)
    assert (await record_of(store, BOB)).revision == 7

    def decide(found: Loaded) -> list[Change]:
        assert isinstance(found.sessions[ADA], StoreCorrupt)
        bob = found.sessions[BOB]
        assert isinstance(bob, SessionState)
        return [append(bob.existing, message(1))]

    assert await store.transact({ADA: Want(), BOB: Want()}, decide) == [Outcome.APPLIED]


async def test_a_corrupt_row_is_named_and_is_no_empty_history(store: SqliteStore, path: Path) -> None:
    await store.commit([creation(ADA)])
    await say(store, ADA)
    outside(path, "UPDATE events SET body = '{\"role\":' WHERE seq = 1")
    (shown,) = (await store.events(ADA, limit=1)).events
    assert (shown.seq, shown.kind, shown.is_corrupt, shown.body) == (1, "message", True, CORRUPT_BODY)
    assert (await store.snapshot(ADA, messages=1)).messages == (shown,)
    loaded = await store.load({ADA: Want(event_seqs=(1,))})
    error = loaded.sessions[ADA]
    assert isinstance(error, StoreCorrupt)
    assert "event 1 of session sess_ada" in str(error)


def outside(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, timeout=5)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "bad",
    [
        (message(1), message(1)),
        (message(2**63),),
        (message(1, actor="\udc80"),),
        (message(1, actor=cast(Any, None)),),
    ],
    ids=["the same seq twice", "a number beyond 64 bits", "no Unicode", "no actor"],
)
async def test_a_change_that_cannot_be_stored_harms_no_neighbour(store: SqliteStore, bad: tuple[Event, ...]) -> None:
    await store.commit([creation(ADA), creation(BOB)])
    ada, bob = await record_of(store, ADA), await record_of(store, BOB)
    outcomes = await store.commit([append(ada, *bad), append(bob, message(1))])
    assert outcomes == [Outcome.REJECTED, Outcome.APPLIED]
    assert await store.commit([append(ada, *bad)]) == [Outcome.REJECTED]
    assert await record_of(store, ADA) == ada
    assert (await store.events(ADA, limit=10)).events == ()
    assert await say(store, ADA) == [Outcome.APPLIED]


async def test_a_decision_that_fails_leaves_no_transaction_open(store: SqliteStore) -> None:
    def fail(loaded: Loaded) -> list[Change]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.transact({ADA: Want()}, fail)
    assert await store.commit([creation(ADA)]) == [Outcome.APPLIED]


async def test_another_writer_is_waited_for_and_in_the_end_named_busy(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.stores.sqlite.writer.PATIENCE", 0.5)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    write = asyncio.create_task(store.commit([creation(ADA)]))
    await asyncio.sleep(0.1)
    assert not write.done()
    other.execute("COMMIT")
    assert await write == [Outcome.APPLIED]
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        await store.commit([creation(BOB)])
    other.execute("COMMIT")
    other.close()
    assert await store.commit([creation(BOB)]) == [Outcome.APPLIED]


_COMMIT_FAILS = textwrap.dedent(
    """
    import asyncio, resource, sys
    from pathlib import Path
    from satchel.domain.ids import SessionRef
    from satchel.domain.record import SessionRecord
    from satchel.errors import OutcomeUnknown
    from satchel.store import Change, Outcome
    from satchel.stores.sqlite import SqliteStore

    def creation(name):
        record = SessionRecord(
            tenant_id="acme", session_id=name, user_id="ada", revision=1,
            created_at=1, updated_at=1, active_at=1, clock_from=1,
        )
        return Change(ref=record.ref, base=None, record=record)

    async def main(path):
        store = SqliteStore(path)
        await store.open()
        assert await store.commit([creation("before")]) == [Outcome.APPLIED]
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (Path(path + "-wal").stat().st_size + 100, hard))
        for _ in range(3):
            outcomes = await store.commit([creation("a"), creation("b")])
            assert outcomes == [Outcome.UNKNOWN, Outcome.UNKNOWN], outcomes
        try:
            await store.setting("keys", value=b"[1]")
        except OutcomeUnknown:
            pass
        else:
            raise AssertionError("a plain yes")
        assert (await store.snapshot(SessionRef("acme", "before"))).record is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        outcomes = await store.commit([creation("a"), creation("b")])
        assert outcomes == [Outcome.APPLIED, Outcome.APPLIED], outcomes
        assert (await store.setting("keys", value=b"[1]")).value == b"[1]"
        await store.close()

    asyncio.run(main(sys.argv[1]))
    """
)


def test_an_error_at_commit_is_unknown_for_all(path: Path) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", _COMMIT_FAILS, str(path)], check=True)


async def shell(*command: str) -> int:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


async def say_for_ever(store: SqliteStore, ref: SessionRef, body: bytes) -> None:
    while True:
        await say(store, ref, body)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
async def test_a_full_disk_stores_nothing_and_recovers_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    if shutil.which("mount") is None or await shell("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)):
        pytest.skip("may not mount")
    store = SqliteStore(folder / "agent.db")
    try:
        await store.open()
        await store.commit([creation(ADA)])
        body = b'{"content":"' + b"x" * 50_000 + b'"}'
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await asyncio.wait_for(say_for_ever(store, ADA, body), 60)
        kept = (await record_of(store, ADA)).last_seq
        assert len((await store.events(ADA, limit=1000)).events) == kept
        with pytest.raises(StoreUnavailable):
            await say(store, ADA, body)
        assert await shell("mount", "-o", "remount,size=16m", str(folder)) == 0
        assert await say(store, ADA, body) == [Outcome.APPLIED]
        assert (await record_of(store, ADA)).last_seq == kept + 1
    finally:
        await store.close()
        assert await shell("umount", str(folder)) == 0


async def test_a_cancelled_call_leaves_the_store_usable(store: SqliteStore) -> None:
    for n in range(50):
        ref = SessionRef("acme", f"s{n}")
        call = asyncio.create_task(store.commit([creation(ref)]))
        read = asyncio.create_task(store.snapshot(ref))
        for _ in range(n % 5):
            await asyncio.sleep(0)
        call.cancel()
        read.cancel()
        await asyncio.gather(call, read, return_exceptions=True)
    assert await store.commit([creation(ADA)]) == [Outcome.APPLIED]
    assert (await record_of(store, ADA)).revision == 7


async def test_leases_count_on_the_time_since_this_boot(store: SqliteStore) -> None:
    clock = (await store.load({})).clock
    assert abs(clock.now - time.time_ns() // 1000) < 60_000_000
    boot = Path("/proc/sys/kernel/random/boot_id")
    if boot.exists():
        assert clock.lease_clock == boot.read_text().strip()
        assert (await store.load({})).clock.lease_now >= clock.lease_now


# -- several stores on one file


async def test_a_wait_ends_with_an_own_commit_and_with_another_stores(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    await other.open()
    await store.commit([creation(ADA), creation(BOB)])
    for writer in (store, other):
        old = await record_of(store, ADA)
        waiting = asyncio.create_task(store.wait(ADA, old.last_seq, 30))
        await asyncio.sleep(0.1)
        await say(writer, BOB)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await say(writer, ADA)
        await asyncio.wait_for(waiting, 1)
    started = time.perf_counter()
    await store.wait(ADA, 0, 30)  # there already
    await store.wait(SessionRef("acme", "nobody"), 0, 30)
    assert time.perf_counter() - started < 1
    await store.wait(ADA, 99, 0.05)
    await other.close()


async def test_equal_reads_that_wait_for_a_thread_are_one(store: SqliteStore) -> None:
    await store.commit([creation(ADA)])
    shared = 0
    for seq in range(1, 21):
        early = [asyncio.create_task(store.events(ADA, limit=1_000)) for _ in range(20)]
        await asyncio.sleep(0)
        early[seq % 20].cancel()  # a reader that goes away takes nobody with it
        await say(store, ADA)
        late = await asyncio.gather(*(store.events(ADA, limit=1_000) for _ in range(20)))
        assert {len(page.events) for page in late} == {seq}
        shared += 20 - len({id(page) for page in late})
        pages = await asyncio.gather(*early, return_exceptions=True)
        assert sum(isinstance(page, BaseException) for page in pages) == 1
    assert shared > 100


async def test_a_read_that_has_begun_is_nobody_elses(path: Path) -> None:
    """It may have seen the past already."""
    begun, goes_on = threading.Event(), threading.Event()

    def clock() -> Clock:
        if threading.current_thread().name == "satchel-sqlite-read" and not begun.is_set():
            begun.set()
            goes_on.wait(20)
        return machine_clock()

    store = SqliteStore(path, clock=clock)
    await store.open()
    await store.commit([creation(ADA)])
    first = asyncio.create_task(store.events(ADA, limit=10))
    await asyncio.to_thread(begun.wait, 20)
    await store.commit([append(new_record(ADA), message(1))])
    try:
        second = await asyncio.wait_for(store.events(ADA, limit=10), 10)
    finally:
        goes_on.set()
    assert [event.seq for event in second.events] == [1]
    await first
    await store.close()


async def test_a_read_that_fails_harms_none_that_goes_with_it(store: SqliteStore, path: Path) -> None:
    await store.commit([creation(ADA), creation(BOB)])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE sessions SET record = '{' WHERE session_id = ?", (BOB.session_id,))
    for _ in range(50):
        unbindable = SessionRef("acme", "\ud800")
        asked = [store.snapshot(ref) for ref in (ADA, unbindable, ADA, BOB, ADA)]
        found = await asyncio.gather(*asked, store.events(ADA, limit=10), return_exceptions=True)
        assert [type(one).__name__ for one in found] == [
            "Snapshot",
            "InvalidInput",
            "Snapshot",
            "StoreCorrupt",
            "Snapshot",
            "EventPage",
        ]


async def test_close_wakes_whoever_waits(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.commit([creation(ADA)])
    waiting = asyncio.create_task(store.wait(ADA, 0, 30))
    await asyncio.sleep(0.1)
    await store.close()
    await asyncio.wait_for(waiting, 1)


async def test_a_decision_sees_what_another_process_wrote(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    await other.open()
    await store.commit([creation(ADA)])
    for writer in (store, other, store, store, other, other, store):
        seen: list[int] = []

        def decide(loaded: Loaded, seen: list[int] = seen) -> list[Change]:
            state = loaded.sessions[ADA]
            assert isinstance(state, SessionState)
            seen.append(state.existing.last_seq)
            return [append(state.existing, message(state.existing.last_seq + 1))]

        before = (await record_of(store, ADA)).last_seq
        assert await writer.transact({ADA: Want()}, decide) == [Outcome.APPLIED]
        assert seen == [before]
    assert [event.seq for event in (await other.events(ADA, limit=100)).events] == list(range(1, 8))
    await other.close()


_BUSY_PROCESS = textwrap.dedent(
    """
    import asyncio, sys
    import msgspec
    from satchel.domain.event import Event
    from satchel.domain.record import SessionRecord
    from satchel.store import Change, Outcome
    from satchel.stores.sqlite import SqliteStore

    async def main(path):
        store = SqliteStore(path)
        await store.open()
        records = [
            SessionRecord(
                tenant_id="acme", session_id=f"busy-{n}", user_id="ada", revision=1,
                created_at=1, updated_at=1, active_at=1, clock_from=1,
            )
            for n in range(64)
        ]
        changes = [Change(ref=record.ref, base=None, record=record) for record in records]
        print("ready", flush=True)
        seq = 0
        while True:
            assert await store.commit(changes) == [Outcome.APPLIED] * 64
            seq += 1
            event = Event(seq=seq, version=seq, kind="message", at=1, actor="user:ada", body=b'"' + b"x" * 500 + b'"')
            records = [msgspec.structs.replace(r, revision=r.revision + 1, last_seq=seq) for r in records]
            changes = [Change(ref=r.ref, base=r.revision - 1, record=r, events=(event,)) for r in records]

    asyncio.run(main(sys.argv[1]))
    """
)


@pytest.mark.slow
async def test_a_lone_writer_is_not_starved_by_a_busy_process(store: SqliteStore, path: Path) -> None:
    busy = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _BUSY_PROCESS, str(path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert busy.stdout is not None
        await busy.stdout.readline()
        await store.commit([creation(ADA)])
        waits = []
        for _ in range(200):
            old = await record_of(store, ADA)
            started = time.perf_counter()
            assert await store.commit([append(old, message(old.last_seq + 1))]) == [Outcome.APPLIED]
            waits.append(time.perf_counter() - started)
            await asyncio.sleep(0.005)
        assert busy.returncode is None
        assert sorted(waits)[197] <= 0.25  # 0.05 on a machine that does nothing else
    finally:
        busy.kill()
        await busy.wait()


def test_statuses_are_known_to_the_lists() -> None:
    """The lists leave DELETED out and work EXPIRED out by its instant; another status would need a look there."""
    assert set(get_args(SessionStatus)) == {"ACTIVE", "CLOSED", "EXPIRED", "DELETED"}
