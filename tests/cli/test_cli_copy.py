"""`satchel copy`, between the stores that people move between."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from satchel.domain.api_key import split_key
from tests.cli.shell import STORE, TENANT, Cli, Terminal, Work, append, command, conversation, make_session
from tests.servers.postgres import new_database

OTHER = "sqlite:///other.db"
COPY = ("copy", "--from", STORE, "--to", OTHER)


@pytest.fixture(autouse=True)
def all_tenants(shell: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant in the environment would narrow a copy to it."""
    monkeypatch.delenv("SATCHEL_TENANT")


def copied(cli: Cli, *flags: str, code: int = 0) -> Any:
    answer = cli(*COPY, "--json", *flags)
    assert answer.code == code, answer.err
    return answer.json


def exported(cli: Cli, store: str, tenant: str = TENANT) -> list[bytes]:
    return sorted(cli("sessions", "export", "--store", store, "--tenant", tenant).out.splitlines())


def import_many(cli: Cli, number: int, *, messages: int = 3, tenant: str = TENANT) -> None:
    lines = b"".join(
        conversation(f"聊天-{one}", *(f"第 {said} 句 of {one}" for said in range(messages))) for one in range(number)
    )
    answer = cli("sessions", "import", "-", "--tenant", tenant, "--user", "ada", stdin=lines)
    assert answer.code == 0, answer.err


def test_everything_comes_over_and_is_proved(cli: Cli, work: Work) -> None:
    import_many(cli, 3)
    import_many(cli, 2, tenant="公司")
    gone = make_session("gone")
    assert cli("sessions", "delete", gone, "--yes", "--tenant", TENANT).code == 0
    before = [exported(cli, STORE, tenant) for tenant in (TENANT, "公司")]
    report = copied(cli)
    assert (report["copied"], report["tombstones"], report["problems"]) == (6, 1, [])
    assert report["verified"]["equal"] is True
    assert (report["verified"]["sessions"], report["verified"]["tombstones"]) == (6, 1)
    assert report["verified"]["messages"] == 17
    assert [exported(cli, OTHER, tenant) for tenant in (TENANT, "公司")] == before
    shown = cli("sessions", "show", work.session_id, "--store", OTHER, "--tenant", TENANT).text
    assert "添加 requests" in shown
    assert work.run_id in shown
    answer = cli("sessions", "restore", gone, "--store", OTHER, "--tenant", TENANT, "--json")
    assert (answer.code, answer.error["code"]) == (4, "session_deleted")
    again = cli(*COPY)
    assert again.code == 0
    assert again.text.startswith("0 sessions copied; 6 there already; 1 tombstone")
    assert "at both sides" in again.text


def test_to_a_server_and_back_is_the_same(cli: Cli, work: Work) -> None:
    import_many(cli, 5)
    before = exported(cli, STORE)
    url = new_database()
    assert cli("copy", "--from", STORE, "--to", url).code == 0
    answer = cli("copy", "--from", url, "--to", OTHER, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["copied"] == 6
    assert exported(cli, OTHER) == before


def test_only_one_tenants_sessions_and_it_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import_many(cli, 2)
    import_many(cli, 3, tenant="umbrella")
    monkeypatch.setenv("SATCHEL_TENANT", "umbrella")
    answer = cli(*COPY, "--json")
    assert (answer.code, answer.json["copied"]) == (0, 3)
    assert "only what is of tenant umbrella" in answer.err


def test_what_was_said_since_comes_along(cli: Cli) -> None:
    session_id = make_session()
    append(session_id, "before")
    copied(cli)
    append(session_id, "since", "再来")
    make_session("new")
    report = copied(cli)
    assert (report["copied"], report["continued"], report["exists"]) == (1, 1, 0)
    assert exported(cli, OTHER) == exported(cli, STORE)


def test_what_stands_there_as_something_else_is_left_and_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id, fine = make_session(), make_session()
    copied(cli)
    append(session_id, "at the source")
    answer = cli("sessions", "import", "-", "--store", OTHER, "--tenant", TENANT, "--user", "ada", stdin=b"")
    connection = sqlite3.connect("other.db")
    connection.execute('UPDATE sessions SET record = replace(record, \'"user_id":"ada"\', \'"user_id":"bob"\')')
    connection.commit()
    connection.close()
    report = copied(cli, code=4)
    assert report["differs"] == 2
    assert {one["session_id"]: one["reason"] for one in report["problems"]} == dict.fromkeys(
        (session_id, fine), "another user_id"
    )
    answer = cli(*COPY)
    assert session_id in answer.err
    assert "was left: another user_id" in answer.err
    assert "copy_differs" in cli(*COPY, "--json").err


@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE metadata SET body = \'{"topic":"another"}\'',
        "UPDATE working_memory SET body = replace(body, '添加', '删除')",
        "UPDATE runs SET record = replace(record, 'find out', 'forget')",
        "UPDATE tool_calls SET tool = 'another'",
        "UPDATE sessions SET record = replace(record, 'Flask', 'Django')",
        "DELETE FROM runs",
        "DELETE FROM tool_calls",
    ],
)
def test_other_content_under_the_same_log_is_met_when_both_sides_are_read(cli: Cli, work: Work, damage: str) -> None:
    make_session("another one")
    copied(cli)
    connection = sqlite3.connect("other.db")
    assert connection.execute(damage).rowcount >= 1
    connection.commit()
    connection.close()
    report = copied(cli, code=4)
    assert [one["session_id"] for one in report["problems"]] == [work.session_id]
    assert report["verified"]["equal"] is False


def test_a_session_that_cannot_be_read_is_named_and_the_others_are_copied(cli: Cli) -> None:
    import_many(cli, 3)
    broken = make_session()
    append(broken, "one", "two")
    connection = sqlite3.connect("agent.db")
    connection.execute("UPDATE events SET body = 'no JSON' WHERE session_id = ? AND seq = 1", (broken,))
    connection.commit()
    connection.close()
    report = copied(cli, code=5)
    assert (report["copied"], report["failed"], report["verified"]["sessions"]) == (3, 1, 3)
    assert [one["session_id"] for one in report["problems"]] == [broken]
    assert len(exported(cli, OTHER)) == 3


def test_settings_come_over_only_when_asked_for_and_a_key_opens_both(cli: Cli) -> None:
    make_session()
    key = cli("keys", "create", "--tenant", TENANT, "--role", "user", "--user", "ada").text.strip()
    assert copied(cli)["settings"] == {}
    assert cli("keys", "list", "--store", OTHER).text == ""
    assert keys_copied(cli) == {"result": "copied", "added": 1, "revoked": 0, "only_there": 0}
    assert cli("keys", "list", "--store", OTHER).text == cli("keys", "list").text
    assert keys_copied(cli) == {"result": "exists", "added": 0, "revoked": 0, "only_there": 0}
    assert key not in Path("other.db").read_bytes().decode(errors="replace")


def test_a_copy_tells_of_the_keys_that_it_leaves_behind_and_how_they_come_along(cli: Cli) -> None:
    make_session("one")
    assert "API key" not in cli(*COPY).text
    for tenant in (TENANT, "公司", "公司"):
        assert cli("keys", "create", "--tenant", tenant, "--role", "admin", "--user", "root").code == 0
    assert "3 API keys not copied (--settings takes them along)" in cli(*COPY).text
    assert copied(cli)["api_keys_left"] == 3
    assert "2 API keys not copied (a copy of one tenant takes none along)" in cli(*COPY, "--tenant", "公司").text
    assert keys_copied(cli)["added"] == 3
    assert "not copied" not in cli(*COPY).text
    assert copied(cli)["api_keys_left"] == 0
    gone = cli("keys", "list", "--json").json[0]["key_id"]
    assert cli("keys", "revoke", gone, "--store", OTHER).code == 0
    assert copied(cli)["api_keys_left"] == 0  # what the destination revoked would not come


def keys_copied(cli: Cli) -> Any:
    return copied(cli, "--settings")["settings"]["api_keys"]


def test_a_second_copy_brings_new_keys_and_ends_those_that_were_revoked_at_either_side(cli: Cli) -> None:
    make_session()

    def create(user: str, store: str = STORE) -> str:
        answer = cli("keys", "create", "--tenant", TENANT, "--role", "user", "--user", user, "--store", store)
        return split_key(answer.text.strip())[0]

    def kept(store: str) -> list[str]:
        return [line["key_id"] for line in cli("keys", "list", "--store", store, "--json").json]

    stays, ended_here, ended_there = create("ada"), create("bob"), create("carol")
    keys_copied(cli)
    assert cli("keys", "revoke", ended_here).code == 0
    assert cli("keys", "revoke", ended_there, "--store", OTHER).code == 0
    new, made_there = create("dora"), create("eve", OTHER)
    assert keys_copied(cli) == {"result": "updated", "added": 1, "revoked": 1, "only_there": 1}
    assert kept(OTHER) == [stays, new, made_there]
    answer = cli(*COPY, "--settings")
    assert (answer.code, "API keys: there already" in answer.text) == (0, True)
    assert "1 API key stands at the destination alone" in answer.err
    # And back: what was revoked at either side is revoked at both.
    assert cli("copy", "--from", OTHER, "--to", STORE, "--settings").code == 0
    assert kept(STORE) == [stays, new, made_there]


def test_the_command_line_is_checked_before_anything_is_made(cli: Cli) -> None:
    make_session()
    assert cli("copy", "--from", STORE, "--to", STORE).code == 2
    assert cli("copy", "--from", STORE, "--to", "memory:").code == 2
    assert cli("copy", "--from", "memory:", "--to", OTHER).code == 2
    assert cli(*COPY, "--tenant", "").code == 2
    assert cli(*COPY, "--tenant", TENANT, "--settings").code == 2
    answer = cli("copy", "--from", "sqlite:///missing.db", "--to", OTHER, "--json")
    assert (answer.code, answer.error["code"]) == (5, "store_missing")
    assert not Path("other.db").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_copy_that_is_killed_goes_on_where_it_was(cli: Cli, ending: signal.Signals) -> None:
    import_many(cli, 150, messages=6)
    process = subprocess.Popen(command(*COPY), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))
    deadline = time.monotonic() + 60
    while count_sessions("other.db") < 32:
        assert process.poll() is None, "it was done before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(ending)
    _, err = process.communicate(timeout=60)
    there = count_sessions("other.db")
    assert 32 <= there < 150
    if ending == signal.SIGINT:
        assert process.returncode == 130
        assert b"the same command goes on where this one stopped" in err
    report = copied(cli)
    assert report["copied"] + report["exists"] == 150
    assert report["exists"] >= there - 16  # those that were on their way are gone on with
    assert report["verified"]["equal"] is True
    assert exported(cli, OTHER) == exported(cli, STORE)


def count_sessions(name: str) -> int:
    try:
        connection = sqlite3.connect(f"file:{name}?mode=ro", uri=True)
        try:
            number: int = connection.execute("SELECT count(*) FROM sessions").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.Error:
        return 0
    return number


def test_progress_is_shown_on_a_terminal(cli: Cli) -> None:
    import_many(cli, 60)
    out = Path("report.txt")
    terminal = Terminal([*COPY], stdout=out)
    assert terminal.end() == 0
    assert "copying" in terminal.shown
    assert "60 sessions copied" in out.read_text()
    assert "\x1b" not in out.read_text()
