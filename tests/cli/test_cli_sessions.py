"""`satchel sessions list | show | close | restore | delete`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from rich.cells import cell_len

from satchel import Attempt, RunManager, SessionManager
from tests.cli.shell import UNSAFE, Cli, Terminal, Work, append, make_session, with_runs, with_sessions

# -- list


def test_list_shows_each_session_of_the_tenant_in_80_columns(cli: Cli) -> None:
    mine, theirs = make_session("启动失败" * 20), make_session("Bob's", user="bob")
    answer = cli("sessions", "list")
    assert answer.code == 0
    assert mine in answer.text
    assert theirs in answer.text
    assert "bob" in answer.text
    assert "启动" in answer.text
    assert max(cell_len(line) for line in answer.text.splitlines()) <= 80


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 160])
def test_no_terminal_is_too_narrow_for_an_id(cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    ids = [make_session("启动失败" * 20), make_session("Bob's", user="bob-with-a-long-name")]
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = cli("sessions", "list").text.splitlines()
    assert [line.split()[0] for line in lines] == ["session", *reversed(ids)]
    assert max(cell_len(line) for line in lines) <= max(columns, len(ids[0]))
    assert "…" not in lines[0]
    if columns >= 60:
        assert "bob-" in lines[1]
        assert "Bob's" in lines[1]
        assert "ACTIVE" in lines[1]
    if columns >= 80:
        assert "启动失败启动失败" in lines[2]  # the title has what room there is


def test_list_of_a_user_shows_nobody_elses(cli: Cli) -> None:
    mine, theirs = make_session(), make_session(user="bob")
    answer = cli("sessions", "list", "--user", "ada")
    assert mine in answer.text
    assert theirs not in answer.text


def test_list_of_another_tenant_is_empty(cli: Cli) -> None:
    make_session()
    answer = cli("sessions", "list", "--tenant", "other", "--json")
    assert answer.json == {"items": [], "next": None}


def test_list_filters_by_status_title_metadata_and_time(cli: Cli) -> None:
    flask = make_session("Flask", metadata={"topic": "flask", "n": 3})
    sales = make_session("昨天收入", metadata={"topic": "sales", "n": "3"})
    cli("sessions", "close", sales)

    def found(*filters: str) -> list[str]:
        return [item["session_id"] for item in cli("sessions", "list", "--json", *filters).json["items"]]

    assert found("--status", "closed") == [sales]
    assert found("--status", "ACTIVE") == [flask]
    assert found("--title", "fLASK") == [flask]
    assert found("--title", "收入") == [sales]
    assert found("--metadata", "topic=sales") == [sales]
    assert found("--metadata", "n=3") == [flask]
    assert found("--metadata", 'n="3"') == [sales]
    assert found("--metadata", "topic=flask", "--metadata", "n=4") == []
    assert sorted(found("--updated-after", "2020-01-01")) == sorted([flask, sales])
    assert found("--updated-before", "2020-01-01T08:00:00+08:00") == []


def test_list_goes_on_at_its_cursor_and_all_shows_every_page(cli: Cli) -> None:
    made = {make_session(str(number)) for number in range(5)}
    first = cli("sessions", "list", "--limit", "2", "--json").json
    assert len(first["items"]) == 2
    second = cli("sessions", "list", "--limit", "2", "--json", "--cursor", first["next"]).json
    third = cli("sessions", "list", "--limit", "2", "--json", "--cursor", second["next"]).json
    assert third["next"] is None
    paged = [item["session_id"] for page in (first, second, third) for item in page["items"]]
    assert len(paged) == 5
    assert set(paged) == made
    every = cli("sessions", "list", "--limit", "2", "--all", "--json").json
    assert [item["session_id"] for item in every["items"]] == paged
    assert every["next"] is None


def test_list_in_pages_prints_one_header_and_names_the_way_on(cli: Cli) -> None:
    for number in range(3):
        make_session(str(number))
    page = cli("sessions", "list", "--limit", "2")
    assert "--cursor " in page.err
    assert "--cursor" not in page.text
    every = cli("sessions", "list", "--limit", "2", "--all")
    assert every.text.count("status") == 1
    assert len(every.text.splitlines()) == 4


def test_list_json_has_no_empty_stand_ins_for_what_it_did_not_read(cli: Cli) -> None:
    make_session()
    (item,) = cli("sessions", "list", "--json").json["items"]
    assert item["status"] == "ACTIVE"
    assert not {"messages", "runs", "tool_history", "working_memory"} & item.keys()


def test_a_cursor_of_another_list_is_refused(cli: Cli) -> None:
    for _ in range(2):
        make_session()
    cursor = cli("sessions", "list", "--limit", "1", "--json").json["next"]
    answer = cli("sessions", "list", "--limit", "1", "--status", "closed", "--cursor", cursor, "--json")
    assert (answer.code, answer.error["code"]) == (2, "invalid_cursor")


# -- show


def test_show_holds_memory_runs_tools_and_messages(cli: Cli, work: Work) -> None:
    text = cli("sessions", "show", work.session_id).text
    for part in (
        "Flask 启动失败",
        "ACTIVE",
        "ada of acme",
        "添加 requests",
        "读了 app.py",
        work.run_id,
        "COMPLETED",
        "run_shell",
    ):
        assert part in text
    assert "requirements.txt 缺少 requests" in text
    assert max(cell_len(line) for line in text.splitlines()) <= 80


def test_show_json_is_the_session_with_the_bytes_of_its_messages(cli: Cli) -> None:
    session_id = make_session()
    body = b'{"role": "user",  "content": "\\u5e2e\xe6\x88\x91", "price": 1.10}'

    async def say(sessions: SessionManager) -> None:
        await sessions.append_message(session_id, body)

    with_sessions(say)
    answer = cli("sessions", "show", session_id, "--json")
    assert body[1:-1] in answer.out
    assert answer.json["messages"][0]["content"] == "帮我"
    assert answer.json["working_memory"]["goal"] == ""
    assert answer.json["runs"] == []


@pytest.mark.parametrize(("asked", "first"), [(0, None), (2, 69), (50, 21), (60, 11), (1000, 1)])
def test_show_gives_the_newest_messages_in_order(cli: Cli, asked: int, first: int | None) -> None:
    session_id = make_session()
    append(session_id, *(f"message {number}" for number in range(1, 71)))
    shown = cli("sessions", "show", session_id, "--messages", str(asked), "--json").json["messages"]
    expected = [] if first is None else [f"message {number}" for number in range(first, 71)]
    assert [message["content"] for message in shown] == expected


def test_show_of_an_unknown_and_of_a_foreign_session_answer_alike(cli: Cli) -> None:
    session_id = make_session(user="bob")
    foreign = cli("sessions", "show", session_id, "--user", "ada", "--json")
    unknown = cli("sessions", "show", "sess_x", "--user", "ada", "--json")
    assert (foreign.code, foreign.out, foreign.error["code"]) == (3, b"", "session_not_found")
    assert foreign.error["message"].replace(session_id, "sess_x") == unknown.error["message"]


def test_stored_text_is_neither_markup_nor_a_message_to_the_terminal(cli: Cli) -> None:
    session_id = make_session("[red]title[/red] :smile: \u202egnp")
    append(session_id, UNSAFE, "[/] unbalanced [link=x]")
    for arguments in (["sessions", "show", session_id], ["sessions", "list"], ["tail", session_id, "--no-follow"]):
        text = cli(*arguments).text
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    shown = cli("sessions", "show", session_id).text
    assert "[red]title[/red] :smile: \\u202egnp" in shown
    assert "\\x1b[2J\\x1b]0;title\\x07[bold]red[/bold] :smile:" in shown
    assert "[/] unbalanced [link=x]" in shown


# -- close, restore


def test_close_and_restore_print_the_new_status_and_may_be_repeated(cli: Cli) -> None:
    session_id = make_session()
    assert cli("sessions", "close", session_id).text == f"{session_id}  CLOSED\n"
    again = cli("sessions", "close", session_id, "--json", "--reason", "done")
    assert (again.code, again.json["status"], again.json["version"]) == (0, "CLOSED", 1)
    assert cli("sessions", "restore", session_id).text == f"{session_id}  ACTIVE\n"
    assert cli("sessions", "restore", session_id, "--json").json["version"] == 2


def test_the_reason_stands_in_the_lifecycle_history(cli: Cli) -> None:
    session_id = make_session()
    closed = cli("sessions", "close", session_id, "--reason", "客户已解决", "--json").json
    assert [(one["to"], one["actor"], one["reason"]) for one in closed["lifecycle"]] == [
        ("CLOSED", "operator", "客户已解决")
    ]


def test_a_stale_expected_version_changes_nothing(cli: Cli) -> None:
    session_id = make_session()
    append(session_id, "one")
    answer = cli("sessions", "close", session_id, "--expected-version", "0", "--json")
    assert (answer.code, answer.error["code"]) == (4, "version_conflict")
    assert cli("sessions", "show", session_id, "--json").json["status"] == "ACTIVE"
    assert cli("sessions", "close", session_id, "--expected-version", "1").code == 0


# -- delete


def test_delete_without_a_terminal_needs_yes(cli: Cli) -> None:
    session_id = make_session()
    refused = cli("sessions", "delete", session_id, "--json", stdin=b"y\n")
    assert (refused.code, refused.error["code"]) == (2, "confirmation_needed")
    assert cli("sessions", "show", session_id).code == 0


def test_delete_erases_and_is_final(cli: Cli, tmp_path: Path) -> None:
    session_id = make_session()
    append(session_id, "MARKER-IN-A-MESSAGE")
    assert cli("sessions", "delete", session_id, "--yes").text == f"{session_id}  DELETED\n"
    assert cli("sessions", "delete", session_id, "--yes", "--json").json["status"] == "DELETED"
    for verb in ("show", "restore", "close"):
        answer = cli("sessions", verb, session_id, "--json")
        assert (answer.code, answer.error["code"]) == (4, "session_deleted")
    assert not any(b"MARKER-IN-A-MESSAGE" in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize(("typed", "code", "status"), [("n", 4, "ACTIVE"), ("", 4, "ACTIVE"), ("y", 0, "DELETED")])
def test_delete_asks_on_a_terminal(cli: Cli, typed: str, code: int, status: str) -> None:
    session_id = make_session("careful")
    terminal = Terminal(["sessions", "delete", session_id])
    terminal.wait_for("[y/N]")
    terminal.type(f"{typed}\n")
    assert terminal.end() == code
    assert "careful" in terminal.shown
    shown = cli("sessions", "show", session_id, "--json")
    assert (shown.code == 4 and status == "DELETED") or shown.json["status"] == status


def test_ctrl_c_at_the_question_deletes_nothing(cli: Cli) -> None:
    session_id = make_session()
    terminal = Terminal(["sessions", "delete", session_id])
    terminal.wait_for("[y/N]")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert cli("sessions", "show", session_id, "--json").json["status"] == "ACTIVE"


def test_show_says_what_a_waiting_run_asks(cli: Cli) -> None:
    session_id = make_session()

    async def ask(runs: RunManager) -> None:
        run = await runs.add_run(session_id, start=True)
        await runs.ask_question(session_id, Attempt(run.run_id, run.attempt), "size", "How big shall it be?")

    with_runs(ask)
    answer = cli("sessions", "show", session_id)
    assert "WAITING" in answer.text
    assert "asks size: How" in answer.text
