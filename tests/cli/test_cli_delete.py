"""`satchel sessions delete` of many."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Page, Policy, Principal, Session, SessionManager
from satchel.cli import choosing
from satchel.domain.clock import DAY
from satchel.stores.sqlite import SqliteStore
from satchel.testing.clock import SettableClock
from tests.cli.shell import TENANT, Cli, Terminal, append, make_session, with_sessions

ALL = ("--all", "--yes")
AGENT = Principal.agent("shop", tenant_id=TENANT, acting_for="ada")
LINE = b'{"session_id": "x", "messages": []}\n'


def statuses(cli: Cli) -> dict[str, str]:
    items = cli("sessions", "list", "--json", "--limit", "1000").json["items"]
    return {one["session_id"]: one["status"] for one in items}


def closed(title: str, *, user: str = "ada") -> str:
    session_id = make_session(title, user=user)
    with_sessions(lambda sessions: sessions.close_session(session_id), user=user)
    return session_id


def test_a_dry_run_shows_what_would_go_and_deletes_nothing(cli: Cli) -> None:
    gone, kept = closed("旧的"), make_session("open")
    append(kept, "hello")
    answer = cli("sessions", "delete", "--status", "closed", "--dry-run")
    assert answer.code == 0, answer.err
    assert gone in answer.text
    assert "旧的" in answer.text
    assert kept not in answer.text
    assert "1 session of 1 user, 0 messages" in answer.text
    answer = cli("sessions", "delete", "--all", "--dry-run", "--json")
    assert answer.json["would_delete"] == 2
    assert {one["session_id"] for one in answer.json["sessions"]} == {gone, kept}
    assert statuses(cli) == {gone: "CLOSED", kept: "ACTIVE"}


def test_without_a_terminal_and_without_yes_it_shows_and_deletes_nothing(cli: Cli) -> None:
    session_id = make_session()
    answer = cli("sessions", "delete", "--user", "ada")
    assert answer.code == 2
    assert session_id in answer.text
    assert "--yes" in answer.err
    answer = cli("sessions", "delete", "--user", "ada", "--json")
    assert (answer.code, answer.error["code"], answer.json["would_delete"]) == (2, "confirmation_needed", 1)
    assert statuses(cli) == {session_id: "ACTIVE"}


def test_the_choices_narrow_each_other(cli: Cli) -> None:
    adas_closed, adas_open, bobs_closed = closed("1"), make_session("2"), closed("3", user="bob")
    answer = cli("sessions", "delete", "--user", "ada", "--status", "closed", "--yes", "--json")
    assert answer.code == 0, answer.err
    assert (answer.json["deleted"], answer.json["left"], answer.json["failed"]) == (1, 0, 0)
    assert statuses(cli) == {adas_open: "ACTIVE", bobs_closed: "CLOSED"}
    assert cli("sessions", "show", adas_closed, "--json").error["code"] == "session_deleted"
    assert "2 sessions deleted" in cli("sessions", "delete", *ALL).text
    assert statuses(cli) == {}


def test_another_tenants_sessions_are_not_touched(cli: Cli) -> None:
    make_session()
    elsewhere = cli("sessions", "import", "-", "--tenant", "umbrella", "--user", "ada", stdin=LINE).code
    assert elsewhere == 0
    assert cli("sessions", "delete", *ALL).code == 0
    assert len(cli("sessions", "list", "--tenant", "umbrella", "--json").json["items"]) == 1


def test_before_and_older_than_go_by_the_last_change(cli: Cli) -> None:
    async def at(days: int, name: str) -> str:
        clock = SettableClock()
        clock.now += days * DAY
        async with satchel.OpenStore(SqliteStore("agent.db", clock=clock)) as store:
            sessions = SessionManager(store, AGENT, policy=Policy(idle=None))
            return (await sessions.create_session(title=name)).session_id

    old, new = asyncio.run(at(0, "old")), asyncio.run(at(2, "new"))
    border = cli("sessions", "show", new, "--json").json["updated_at"]
    answer = cli("sessions", "delete", "--before", border, "--dry-run", "--json")
    assert [one["session_id"] for one in answer.json["sessions"]] == [old]
    fresh = make_session("fresh")
    answer = cli("sessions", "delete", "--older-than", "1h", "--yes", "--json")
    assert answer.json["deleted"] == 2
    assert set(statuses(cli)) == {fresh}
    assert cli("sessions", "delete", "--older-than", "soon").code == 2
    assert cli("sessions", "delete", "--older-than", "never").code == 2
    assert cli("sessions", "delete", "--older-than", "999999999d", "--dry-run").code == 0  # older than all there is


@pytest.mark.parametrize("flags", [(), ("--yes",), ("--yes", "--reason", "x")])
def test_an_empty_choice_deletes_nothing_even_where_variables_choose(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """`satchel sessions delete $ID --yes` with an empty ID."""
    session_id = make_session()
    monkeypatch.setenv("SATCHEL_USER", "ada")
    monkeypatch.setenv("SATCHEL_ALL", "1")
    answer = cli("sessions", "delete", *flags)
    assert (answer.code, "variable" in answer.err) == (2, True)
    assert statuses(cli) == {session_id: "ACTIVE"}
    assert cli("sessions", "delete", "--before", "2000-01-01", *ALL).code == 0  # and narrow what is chosen
    assert statuses(cli) == {session_id: "ACTIVE"}


def test_a_session_and_a_choice_do_not_go_together(cli: Cli) -> None:
    session_id = make_session()
    assert cli("sessions", "delete", session_id, "--status", "closed", "--yes").code == 2
    assert cli("sessions", "delete", *ALL, "--expected-version", "0").code == 2
    assert cli("sessions", "delete", session_id, "--dry-run").text.startswith(f"would delete {session_id}")
    assert statuses(cli) == {session_id: "ACTIVE"}


@pytest.mark.parametrize(("typed", "code", "left"), [("y", 0, 0), pytest.param("no", 4, 2, marks=pytest.mark.full)])
def test_many_are_asked_for_on_a_terminal_with_their_number(cli: Cli, typed: str, code: int, left: int) -> None:
    make_session("[bold]\u202edrow")
    make_session("二")
    terminal = Terminal(["sessions", "delete", "--user", "ada"])
    terminal.wait_for("Delete 2 sessions for ever? [y/N]")
    assert "[bold]\\u202edrow" in terminal.shown
    terminal.type(f"{typed}\n")
    assert terminal.end() == code
    assert len(statuses(cli)) == left


def test_what_changed_since_it_was_listed_is_left(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = make_session("1"), make_session("2")
    listed = choosing._listed  # noqa: SLF001  # between the list and the deletion

    async def then_somebody_writes(sessions: SessionManager, *rest: object) -> object:
        found = await listed(sessions, *rest)  # type: ignore[arg-type]  # handed on as they came
        await sessions.append_message(used, {"role": "user", "content": "still here"})
        return found

    monkeypatch.setattr(choosing, "_listed", then_somebody_writes)
    answer = cli("sessions", "delete", *ALL, "--json")
    assert (answer.code, answer.json["deleted"], answer.json["left"]) == (0, 1, 1)
    assert set(statuses(cli)) == {used}
    assert unused not in statuses(cli)


def test_what_changes_while_they_are_listed_is_left_and_counted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [make_session(str(number)) for number in range(6)]
    list_sessions = SessionManager.list_sessions
    looks = 0

    async def changing(self: SessionManager, **filters: Any) -> Page[Session]:
        nonlocal looks
        page = await list_sessions(self, **filters)
        looks += 1
        if looks == 1:  # it moves to the part that was read already
            await self.rename_session(ids[0], "still here")
        return page

    monkeypatch.setattr(choosing, "PAGE", 2)
    monkeypatch.setattr(SessionManager, "list_sessions", changing)
    answer = cli("sessions", "delete", "--user", "ada", "--yes", "--json")
    assert answer.json["deleted"] + answer.json["left"] == 6


def test_an_expiry_that_nobody_has_met_yet_is_no_change(cli: Cli) -> None:
    async def expired() -> str:
        async with satchel.open("sqlite:///agent.db", policy=Policy(idle=timedelta(microseconds=1))) as store:
            sessions = SessionManager(store, AGENT)
            return (await sessions.create_session()).session_id

    asyncio.run(expired())
    answer = cli("sessions", "delete", "--status", "expired", "--yes", "--json")
    assert (answer.code, answer.json["deleted"], answer.json["left"]) == (0, 1, 0)


def test_many_leave_no_trace_and_their_ids_are_not_used_again(cli: Cli) -> None:
    ids = [make_session(f"secret-{number}") for number in range(12)]
    for session_id in ids[:5]:
        append(session_id, "the word is Rosebud")
    answer = cli("sessions", "delete", *ALL, "--reason", "asked for", "--json")
    assert (answer.json["deleted"], answer.code) == (12, 0)
    assert answer.json["rows_erased"] >= 17
    for name in ("agent.db", "agent.db-wal"):
        assert not Path(name).exists() or b"Rosebud" not in Path(name).read_bytes()
    connection = sqlite3.connect("agent.db")
    assert connection.execute("SELECT count(*), sum(status = 'DELETED') FROM sessions").fetchone() == (12, 12)
    assert connection.execute("SELECT count(*) FROM sessions WHERE sweep_at IS NOT NULL").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
    connection.close()
    assert cli("sessions", "delete", *ALL, "--json").json == {
        "deleted": 0,
        "left": 0,
        "failed": 0,
        "rows_erased": 0,
    }


def test_what_takes_no_time_shows_no_progress(shell: None) -> None:
    terminal = Terminal(["sessions", "delete", make_session(), "--yes"])
    assert terminal.end() == 0
    assert "DELETED" in terminal.shown
    assert "erasing" not in terminal.shown
    assert "0/" not in terminal.shown


def test_what_takes_longer_shows_that_it_goes_on(shell: None) -> None:
    program = (
        "import time; from satchel.cli.progress import waiting\n"
        "with waiting('erasing it'): time.sleep(1.6)\n"
        "print('over')"
    )
    terminal = Terminal([], program=program)
    terminal.wait_for("erasing it")
    terminal.wait_for("over")
    assert terminal.end() == 0
