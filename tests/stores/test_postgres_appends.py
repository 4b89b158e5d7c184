"""The most frequent write, appends to several sessions in one statement, stores every value as it is: what is read back is what
was given, whatever stands in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from satchel.domain.event import Event
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.state import Want
from satchel.store import Change, Loaded, Outcome
from satchel.stores.postgres import PostgresStore
from satchel.stores.postgres.applying import statement_of
from satchel.stores.postgres.queries import SQL
from satchel.stores.sql.writing import Basis
from satchel.testing.clock import START
from satchel.testing.rows import event, put, record, state_of
from tests.servers.postgres import emptied_database

REFS = [SessionRef("acme", "sess_1"), SessionRef("Acme, {}", 'sess "2\\'), SessionRef("acme", "null")]
YEAR = 366 * 86_400 * 1_000_000

# Of the event in the middle; those beside it are plain.
ODD: dict[str, dict[str, Any]] = {
    "quotes and backslashes": {"body": rb'{"role":"user","content":"\"\\n\\N\\\\\u0000 {,} NULL null"}'},
    "whitespace between tokens": {"body": b'{ "role":\t"user" ,  "content": "" }  '},
    "Chinese and emoji": {"body": '{"role":"user","content":"早上好 🙂 \u2028\x7f"}'.encode()},
    "a long body": {"body": b'{"role":"user","content":"%s"}' % (b"x" * 300_000)},
    "a run": {"run_id": "run_1"},
    "a run called null": {"run_id": "NULL"},
    "an odd actor": {"actor": 'agent:a,b "c" {d} \\e 早'},
    "counted tokens": {"tokens": 0},
    "another kind": {"kind": "title_changed", "body": b'{"title":"a"}'},
}
# What the statement for these cannot hold is written all the same, by another.
UNFIT: dict[str, dict[str, Any]] = {
    "a line break in an actor": {"actor": "agent:a\nb"},
    "a line break in a body": {"body": b'{"role":"user",\n"content":"a"}'},
    "a line break in a run": {"run_id": "run_1\n"},
}


@pytest.fixture
async def store(request: pytest.FixtureRequest) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(emptied_database("appends", once_for=request.node.nodeid))
    await opened.open()
    for ref in REFS:
        await put(opened, ref)
    yield opened
    await opened.close()


def kept(position: int, length: int = 16) -> IdempotencyRecord:
    return IdempotencyRecord(
        bytes([position]) * length, bytes([255 - position]) * length, Answer(8, START, (1,), ids=("ß",))
    )


def appended(ref: SessionRef, given: Event, key: IdempotencyRecord, *, not_after: int | None) -> Change:
    return Change(
        ref=ref,
        base=7,
        record=record(ref, revision=8, last_seq=1, updated_at=START + 5),
        not_after=not_after,
        events=(given,),
        idempotency=(key,),
    )


async def append(store: PostgresStore, changes: Sequence[Change]) -> list[Outcome]:
    """As the committer does: decided on what was loaded."""

    def decide(loaded: Loaded) -> Sequence[Change]:
        assert not any(isinstance(state, Exception) for state in loaded.sessions.values())
        return changes

    wanted: Mapping[SessionRef, Want] = {change.ref: Want(keys=(change.idempotency[0].key_hash,)) for change in changes}
    return await store.transact(wanted, decide)


def statement_for(changes: Sequence[Change]) -> str:
    before = {change.ref: record(change.ref) for change in changes}
    return statement_of(changes, None, Basis(before, {}))[0]


@pytest.mark.parametrize("odd", [*ODD, *UNFIT])
async def test_what_is_appended_to_several_sessions_is_stored_as_it_is(store: PostgresStore, odd: str) -> None:
    given = [event(1), event(1, **(ODD | UNFIT)[odd]), event(1, run_id="run_9", tokens=7)]
    limits = [None, START + 100 * YEAR, None]
    changes = [appended(ref, given[at], kept(at), not_after=limits[at]) for at, ref in enumerate(REFS)]
    assert (statement_for(changes) == SQL["append"]) is (odd in ODD)
    assert await append(store, changes) == [Outcome.APPLIED] * 3
    for at, ref in enumerate(REFS):
        page = await store.events(ref, limit=10)
        assert list(page.events) == [given[at]]
        state = await state_of(store, ref, keys=(kept(at).key_hash,))
        assert state.keys == {kept(at).key_hash: kept(at)}
        assert state.record == changes[at].record


async def test_hashes_of_another_length_are_stored_as_they_are(store: PostgresStore) -> None:
    keys = [kept(0, 8), kept(1, 24), kept(2)]
    changes = [appended(ref, event(1), keys[at], not_after=None) for at, ref in enumerate(REFS)]
    assert await append(store, changes) == [Outcome.APPLIED] * 3
    for at, ref in enumerate(REFS):
        assert (await state_of(store, ref, keys=(keys[at].key_hash,))).keys == {keys[at].key_hash: keys[at]}


async def test_each_of_several_appends_is_held_against_its_own_session(
    store: PostgresStore, request: pytest.FixtureRequest
) -> None:
    """One is too late by its revision, one by the clock, of one the key is there: these alone are not applied."""
    refs = [SessionRef("acme", f"sess_{number}") for number in range(10, 14)]
    for ref in refs:
        await put(store, ref)
    first = [appended(ref, event(1), kept(at), not_after=None) for at, ref in enumerate(refs)]
    assert await append(store, first) == [Outcome.APPLIED] * 4
    rival = PostgresStore(emptied_database("appends", once_for=request.node.nodeid))
    await rival.open()
    await put(rival, refs[1], base=8)
    await rival.close()
    # All of it is decided on what was just written, and by nobody but the statement is it held against what is there.
    again = [
        Change(
            ref=ref,
            base=8,
            record=record(ref, revision=9, last_seq=2),
            not_after=START - YEAR if at == 2 else None,
            events=(event(2),),
            idempotency=(kept(at) if at == 3 else kept(at + 100),),
        )
        for at, ref in enumerate(refs)
    ]
    assert await append(store, again) == [Outcome.APPLIED, Outcome.STALE, Outcome.STALE, Outcome.STALE]
    assert [len((await store.events(ref, limit=10)).events) for ref in refs] == [2, 1, 1, 1]
