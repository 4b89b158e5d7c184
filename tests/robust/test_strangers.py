"""Every method of the managers, by everybody who may not: told the same as of what does not exist, and nothing changes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from satchel.domain.principal import Principal
from satchel.errors import NotAllowed, SatchelError, SessionDeleted, SessionNotFound, Unauthenticated
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, STRANGERS, Stage, lasting
from tests.robust.test_odd_arguments import METHODS, PLAIN, World, call

AGENT_ELSEWHERE = Principal.agent("shop", tenant_id="umbrella")
ADA_IN_OTHER_LETTERS = Principal.user("Ada", tenant_id="acme")
ADA_AND_A_SPACE = Principal.user("ada ", tenant_id="acme")
TENANT_IN_OTHER_LETTERS = Principal.user("ada", tenant_id="Acme")
JOINED = Principal.user("me/ada", tenant_id="ac")
EVERYBODY_ELSE = (
    *STRANGERS,
    AGENT_ELSEWHERE,
    ADA_IN_OTHER_LETTERS,
    ADA_AND_A_SPACE,
    TENANT_IN_OTHER_LETTERS,
    JOINED,
)
UNKNOWN = "sess_aaaaaaaaaaaaaaaaaaaaaaaa"
MALFORMED = ("x", "", "sess_", "sess_\0", "会话", "x" * 100_000, "\ud800", "../../etc/passwd", "a' OR '1'='1")

# Those that name no session: what they give a stranger is the stranger's own.
WITHOUT_SESSION = frozenset({"create_session", "import_sessions", "list_sessions"})
# What a user may not do at all to a session of theirs (see DESIGN, Ownership).
WORK = frozenset(
    {
        "add_child_run",
        "add_step",
        "add_text",
        "append_tool_history",
        "ask_question",
        "complete_run",
        "end_cancelled_run",
        "end_text",
        "fail_run",
        "finish_tool_call",
        "hand_back_run",
        "keep_waiting",
        "renew_run",
        "replace_working_memory",
        "run",
        "start_run",
        "start_tool_call",
        "update_working_memory",
        "wait_for_answer",
    }
)
GOVERN = frozenset({"expire_session", "transfer_session"})
INSIDERS: tuple[tuple[Principal, frozenset[str]], ...] = (
    (ADA, WORK | GOVERN),
    (ADAS_AGENT, GOVERN),
    (AGENT, GOVERN),
    (ADMIN, frozenset()),
)


class Place(NamedTuple):
    stage: Stage
    path: Path

    def whole(self) -> list[str]:
        with closing(sqlite3.connect(self.path)) as connection:
            return list(connection.iterdump())

    async def by(self, who: Principal, world: World, manager: type[Any], name: str, **changed: Any) -> Any:
        """The plain call of this method, by somebody: its answer, or its error."""
        theirs = World(self.stage, world.session_id)
        theirs.sessions, theirs.runs = self.stage.sessions(who), self.stage.runs(who)
        try:
            return await call(theirs, manager, name, PLAIN[name][1](world) | changed)
        except SatchelError as error:
            return error


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    clock = SettableClock()
    path = tmp_path / "strangers.db"
    stage = Stage(SqliteStore(path, clock=clock), clock)
    async with stage.opened:
        yield Place(stage, path)


async def worlds(place: Place, work: str) -> list[World]:
    """Sessions of Ada's in every state. The last is expired, and nobody has met it since."""
    made = [await World.make(place.stage, work=work) for _ in range(5)]
    governor = place.stage.sessions(ADMIN)
    await governor.close_session(made[1].session_id)
    await governor.expire_session(made[2].session_id)
    await governor.delete_session(made[3].session_id)
    mortal = await governor.create_session(user_id="ada", policy=lasting(idle=60))
    made[4].session_id = mortal.session_id
    place.stage.clock.pass_time(61)
    return made


def with_id(name: str, session_id: str) -> dict[str, Any]:
    return {"session_ids": [session_id]} if name == "export_sessions" else {"session_id": session_id}


def told(answer: Any) -> tuple[type[Any], str]:
    """Without ids: what is said must not depend on which one was asked for."""
    return type(answer), re.sub(r"'[^']*'", "'…'", str(answer))


@pytest.mark.parametrize("work", ["none", "ready", "busy", "asking", "answered"])
async def test_foreign_and_unknown_are_alike_whatever_state_it_is_in_and_nothing_changes(
    place: Place, work: str
) -> None:
    targets = await worlds(place, work)
    before = place.whole()
    for manager, name in METHODS:
        if PLAIN[name][0] != work or name in WITHOUT_SESSION:
            continue
        for who in EVERYBODY_ELSE:
            unknown = await place.by(who, targets[0], manager, name, **with_id(name, UNKNOWN))
            assert type(unknown) is SessionNotFound, (name, who, unknown)
            for target in targets:
                foreign = await place.by(who, target, manager, name)
                assert told(foreign) == told(unknown), (name, who, foreign)
        assert place.whole() == before, name


async def test_a_malformed_id_is_unknown_to_everybody(place: Place) -> None:
    world = await World.make(place.stage, work="busy")
    before = place.whole()
    for manager, name in METHODS:
        if name in WITHOUT_SESSION:
            continue
        for who in (ADMIN, ADA, STRANGERS[0]):
            for malformed in (*MALFORMED, world.session_id.upper(), world.session_id + " ", world.session_id + "\0"):
                answer = await place.by(who, world, manager, name, **with_id(name, malformed))
                assert type(answer) is SessionNotFound, (name, who, malformed, answer)
                assert len(str(answer)) < 1_000
    assert place.whole() == before


async def test_who_may_not_is_refused_and_changes_nothing(place: Place) -> None:
    wrong = []
    for manager, name in METHODS:
        for who, refused in INSIDERS:
            world = await World.make(place.stage, work=PLAIN[name][0])
            before = place.whole()
            answer = await place.by(who, world, manager, name)
            is_refused = isinstance(answer, NotAllowed) and place.whole() == before
            is_done = not isinstance(answer, SatchelError)
            if not (is_refused if name in refused else is_done):
                wrong.append((name, who.actor, answer))
    assert not wrong


async def test_a_deleted_session_is_gone_for_its_own(place: Place) -> None:
    deleted = {work: await World.make(place.stage, work=work) for work, _ in PLAIN.values()}
    for world in deleted.values():
        await place.stage.sessions(ADA).delete_session(world.session_id)
    before = place.whole()
    for manager, name in METHODS:
        if name in WITHOUT_SESSION:
            continue
        for who, refused in INSIDERS:
            if name in refused:
                continue
            answer = await place.by(who, deleted[PLAIN[name][0]], manager, name)
            if name == "delete_session":
                assert answer.status == "DELETED"
            else:
                assert type(answer) is SessionDeleted, (name, who.actor, answer)
    assert place.whole() == before


async def test_what_names_no_session_reaches_ones_own_alone(place: Place) -> None:
    world = await World.make(place.stage, work="none")
    for who in EVERYBODY_ELSE:
        sessions = place.stage.sessions(who)
        before = place.whole()
        for filters in ({}, {"user_id": "ada"}, {"status": "ACTIVE"}, {"title": ""}):
            try:
                page = await sessions.list_sessions(**filters)  # type: ignore[arg-type]  # wrong on purpose
            except NotAllowed:
                continue
            assert not page.items, (who, filters)
        exported = [piece async for piece in sessions.export_sessions()]
        assert not exported
        assert place.whole() == before
        owner = {} if who.user_id is not None else {"user_id": "ada"}
        made = await sessions.create_session(**owner)  # type: ignore[arg-type]  # wrong on purpose
        assert (made.tenant_id, made.session_id != world.session_id) == (who.tenant_id, True)
        assert made.user_id == (who.user_id or "ada")
        await sessions.delete_session(made.session_id)


@pytest.mark.parametrize("manager", [SessionManager, RunManager])
async def test_nobody_comes_to_a_store_without_an_identity(place: Place, manager: type[Any]) -> None:
    for nobody in (None, "", "ada", ("acme", "ada"), object()):
        with pytest.raises(SatchelError):
            manager(place.stage.opened, nobody)
    for fields in ({"subject": ""}, {"tenant_id": ""}, {"role": "root"}, {"subject": "\0"}, {"acting_for": "bob"}):
        with pytest.raises(Unauthenticated):
            Principal(**{"tenant_id": "acme", "subject": "ada", "role": "user"} | fields)  # type: ignore[arg-type]  # wrong on purpose
