"""`satchel runs`, and sessions by a name of one's own."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from rich.cells import cell_len

from satchel import RunManager, SessionManager
from satchel.domain.run import Attempt
from tests.cli.shell import STORE, TENANT, Cli, make_session, with_runs, with_sessions

SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


def asking(question: str, schema: dict[str, Any] | None = None, *, title: str = "t") -> tuple[str, str]:
    """A session with a run that failed, and one that waits for the answer to ``question``."""
    session_id = make_session(title)

    async def ask(runs: RunManager) -> str:
        lost = await runs.add_run(session_id, goal="look everywhere", agent="shop", start=True)
        await runs.fail_run(session_id, Attempt(lost.run_id, 1), code="agent_error", message="no such cat")
        run = await runs.add_run(session_id, goal="find the cat", agent="shop", input="where is it?", start=True)
        await runs.ask_question(session_id, Attempt(run.run_id, run.attempt), "where", question, schema=schema)
        return run.run_id

    return session_id, with_runs(ask)


def test_runs_are_listed_with_their_goals_and_what_became_of_them(cli: Cli) -> None:
    session_id, run_id = asking("In the garden,\nor in the house?")
    listed = cli("runs", "list", session_id)
    assert listed.code == 0
    for word in (
        run_id,
        "#1 failed: agent_error: no such cat",
        "#2 asks where: In the garden,⏎or",
    ):
        assert word in listed.text
    assert max(cell_len(line) for line in listed.text.splitlines()) <= 80
    document = cli("runs", "list", session_id, "--json").json
    assert [(run["number"], run["status"]) for run in document["items"]] == [(2, "WAITING"), (1, "FAILED")]
    first = cli("runs", "list", session_id, "--limit", "1", "--json").json
    (second,) = cli("runs", "list", session_id, "--cursor", first["next"], "--json").json["items"]
    assert (first["items"][0]["number"], second["number"]) == (2, 1)
    (failed,) = cli("runs", "list", session_id, "--status", "failed", "--json").json["items"]
    assert failed["number"] == 1
    assert cli("runs", "list", session_id, "--status", "lost").code == 2
    assert cli("runs", "list", "sess_nobody").code == 3


SHOWN = [["shop", "and", "mine?"], ["shop", "where", "is", "my", "order?"]]


def test_a_run_without_a_goal_is_listed_with_its_agent_and_what_was_said(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = make_session()
    with_runs(lambda runs: runs.add_run(session_id, agent="shop", input="where is\nmy order?"))
    parts = {"role": "user", "content": [{"type": "text", "text": "and mine?"}]}
    with_runs(lambda runs: runs.add_run(session_id, agent="shop", input=parts, on_busy="queue"))
    assert "shop: wh" in cli("runs", "list", session_id).text
    monkeypatch.setenv("COLUMNS", "140")
    for command in (("runs", "list"), ("sessions", "show")):
        shown = [line for line in cli(*command, session_id).text.splitlines() if " READY " in line]
        assert sorted(line.split()[5:] for line in shown) == SHOWN


@pytest.mark.parametrize("command", [("sessions", "show"), ("runs", "show")])
def test_a_question_is_shown_whole_with_the_way_to_answer_it(cli: Cli, command: tuple[str, str]) -> None:
    question = "word " * 300 + "\n\u202e[bold]\nthe end?"
    session_id, _ = asking(question, SIZE)
    shown = cli(*command, session_id)
    assert shown.code == 0
    assert shown.text.count("word") >= 300
    assert "the end?" in shown.text
    assert "\\u202e[bold]" in shown.text
    assert "\u202e" not in shown.text
    assert '"size"' in shown.text
    assert f"satchel runs answer {session_id} ANSWER\n" in shown.text
    elsewhere = cli(*command, session_id, "--user", "ada", "--store", "sqlite:///./agent.db")
    (line,) = (line for line in elsewhere.text.splitlines() if line.startswith("satchel runs answer"))
    assert shlex.split(line)[5:] == ["--store", "sqlite:///./agent.db", "--user", "ada"]


def test_a_run_is_shown_with_its_error_and_as_json(cli: Cli) -> None:
    session_id, run_id = asking("where?")
    (failed,) = cli("runs", "list", session_id, "--status", "failed", "--json").json["items"]
    shown = cli("runs", "show", session_id, failed["run_id"])
    assert "look everywhere" in shown.text
    assert "agent_error: no such cat" in shown.text
    assert cli("runs", "show", session_id, "--json").json["run_id"] == run_id  # that which has the turn
    assert cli("runs", "show", session_id, "run_nobody").code == 3
    assert cli("runs", "show", make_session()).code == 3


@pytest.mark.parametrize(
    ("typed", "stdin"),
    [('{"size": 3}', b""), ("-", b'{"size": 3}\n')],
)
def test_a_question_is_answered_from_the_command_line(cli: Cli, typed: str, stdin: bytes) -> None:
    session_id, run_id = asking("How big?", SIZE)
    for wrong in ("big", '{"size": "big"}'):
        refused = cli("runs", "answer", session_id, wrong)
        assert (refused.code, refused.out) == (2, b"")
    assert cli("runs", "answer", session_id, typed, "--name", "other", stdin=stdin).code == 4
    answered = cli("runs", "answer", session_id, typed, stdin=stdin)
    assert (answered.code, answered.text) == (0, f"{run_id}  READY\n")
    again = cli("runs", "answer", session_id, typed, stdin=stdin)
    assert (again.code, again.err) == (4, f"satchel: run {run_id} is READY: it waits for no answer\n")
    (event,) = (line for line in cli("tail", session_id, "--no-follow", "--json").lines if "answer" in line["body"])
    assert event["body"]["answer"] == {"size": 3}
    assert cli("runs", "answer", session_id).code == 2


@pytest.mark.parametrize(
    "command",
    [
        *(("runs", verb) for verb in ("list", "show", "cancel")),
        *(("sessions", verb) for verb in ("show", "close", "restore", "export")),
        ("sessions", "delete", "--yes"),
        ("tail",),
        ("chat", "--store", STORE, "--tenant", TENANT, "--session"),
    ],
    ids=" ".join,
)
def test_a_runs_id_in_the_place_of_a_sessions_is_called_one(cli: Cli, command: tuple[str, ...]) -> None:
    session_id, run_id = asking("where?")
    answer = cli(*command, run_id)
    assert (answer.code, answer.err.splitlines()[-1]) == (
        3,
        f"satchel: no session '{run_id}': that is a run's id; name its session, sess_…",
    )
    answer = cli("runs", "show", session_id, session_id)
    assert answer.err == f"satchel: no run '{session_id}' in this session: that is a session's id\n"


def test_a_name_of_ones_own_that_begins_like_a_runs_id_is_not_called_one(cli: Cli) -> None:
    make_session()
    assert cli("sessions", "show", "--external-id", "run_7").err == "satchel: no session 'run_7'\n"


def test_a_run_is_cancelled(cli: Cli) -> None:
    session_id, run_id = asking("where?")
    cancelled = cli("runs", "cancel", session_id, "--reason", "enough")
    assert (cancelled.code, cancelled.text) == (0, f"{run_id}  CANCELLED\n")
    assert cli("runs", "cancel", session_id, run_id, "--json").json["stop_reason"] == "enough"
    nothing = cli("runs", "cancel", session_id, "--json")
    assert (nothing.code, nothing.error["code"]) == (3, "no_open_run")
    answered = cli("runs", "answer", session_id, "x", "--run", run_id)
    assert (answered.code, answered.err) == (4, f"satchel: run {run_id} is CANCELLED: it waits for no answer\n")


# -- a name of one's own


def named(external_id: str, *, user: str = "ada") -> str:
    async def make(sessions: SessionManager) -> str:
        return (await sessions.create_session(external_id=external_id)).session_id

    return with_sessions(make, user=user)


def test_a_session_is_found_by_a_name_of_ones_own(cli: Cli) -> None:
    session_id = named("job-1")

    async def add(runs: RunManager) -> str:
        return (await runs.add_run(session_id, agent="shop", input="go", goal="dig")).run_id

    run_id = with_runs(add)
    assert "job-1" in cli("sessions", "list").text
    name = ("--external-id", "job-1")
    assert cli("sessions", "show", *name, "--json").json["session_id"] == session_id
    assert cli("runs", "show", *name, "--json").json["run_id"] == run_id
    assert cli("runs", "show", run_id, *name, "--json").json["run_id"] == run_id
    assert run_id in cli("runs", "list", *name).text
    assert "run_added" in cli("tail", *name, "--no-follow").text
    assert cli("sessions", "export", *name).json["satchel"]["session_id"] == session_id
    assert cli("runs", "cancel", *name).text == f"{run_id}  CANCELLED\n"
    assert cli("sessions", "close", *name).text == f"{session_id}  CLOSED\n"
    assert cli("sessions", "restore", *name).text == f"{session_id}  ACTIVE\n"
    assert cli("sessions", "show", "--external-id", "job-2").code == 3
    assert (
        cli("sessions", "delete", "--external-id", "job-2", "--yes", "--user", "ada").code == 3
    )  # and nothing else goes
    assert cli("sessions", "show", *name).code == 0
    assert cli("sessions", "delete", *name, "--yes").text == f"{session_id}  DELETED\n"
    session_id = named("job-1")
    assert cli("sessions", "show", session_id, *name).code == 2
    assert cli("sessions", "show").err == "satchel: SESSION_ID (or --external-id) is required\n"


def test_a_name_that_two_users_gave_needs_the_user(cli: Cli) -> None:
    named("job-1")
    bobs = named("job-1", user="bob")
    refused = cli("sessions", "show", "--external-id", "job-1")
    assert (refused.code, refused.out) == (2, b"")
    assert "ada, bob" in refused.err
    assert cli("sessions", "show", "--external-id", "job-1", "--user", "bob", "--json").json["session_id"] == bobs


def test_the_flags_may_be_given_instead_of_variables(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id, _ = asking("where?")
    monkeypatch.delenv("SATCHEL_STORE")
    monkeypatch.delenv("SATCHEL_TENANT")
    shown = cli("runs", "show", session_id, "--store", STORE, "--tenant", TENANT)
    (line,) = (line for line in shown.text.splitlines() if line.startswith("satchel runs answer"))
    answered = cli(*shlex.split(line.replace("ANSWER", "here"))[1:])
    assert (answered.code, answered.text.split()[1]) == (0, "READY")
