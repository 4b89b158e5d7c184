"""`satchel tail`."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from satchel import Attempt, RunManager, SessionManager
from satchel.cli.sentences import happened
from tests.cli.shell import Cli, Terminal, Work, append, command, make_session, with_runs, with_sessions

RUN_KINDS = ["run_added", "message", "run_started", "tool_call_started", "tool_call_finished", "working_memory_changed"]


@contextmanager
def tailing(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command("tail", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_without_following_the_whole_log_is_printed_and_it_ends(cli: Cli, work: Work) -> None:
    events = cli("tail", work.session_id, "--no-follow", "--json").lines
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["kind"] for event in events] == [*RUN_KINDS, "message", "run_ended"]
    assert [event["seq"] for event in cli("tail", work.session_id, "--no-follow", "--after", "6", "--json").lines] == [
        7,
        8,
    ]
    nothing = cli("tail", work.session_id, "--no-follow", "--after", "8", "--json")
    assert (nothing.out, nothing.err) == (b"", "")
    answer = cli("tail", work.session_id, "--no-follow", "--after", "8")
    assert (answer.code, answer.out) == (0, b"")
    assert f"no events in {work.session_id} behind seq 8" in answer.err
    empty = make_session()
    assert f"no events in {empty}" in cli("tail", empty, "--no-follow").err


def test_a_log_of_many_pages_is_printed_without_a_gap(cli: Cli) -> None:
    session_id = make_session()
    for start in range(0, 1200, 100):
        append(session_id, *(str(number) for number in range(start, start + 100)))
    seqs = [event["seq"] for event in cli("tail", session_id, "--no-follow", "--json").lines]
    assert seqs == list(range(1, 1201))


def test_a_line_says_what_happened(cli: Cli, work: Work) -> None:
    lines = cli("tail", work.session_id, "--no-follow").text.splitlines()
    assert [line.split()[0] for line in lines] == [str(seq) for seq in range(1, 9)]
    assert "user: 帮我修复启动失败" in lines[1]
    assert "run_shell(command=python3 app.py)" in lines[3]
    assert "of 4: succeeded" in lines[4]
    assert "next_action" in lines[5]
    assert "COMPLETED" in lines[7]


def test_what_a_run_asked_and_how_it_ended_are_told_in_the_words_of_runs_show(cli: Cli) -> None:
    session_id = make_session()
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}

    async def ask(runs: RunManager) -> None:
        lost = await runs.add_run(session_id, start=True)
        attempt = Attempt(lost.run_id, 1)
        await runs.add_step(session_id, attempt, "model", input_tokens=1000, output_tokens=20)
        await runs.fail_run(session_id, attempt, code="agent_error", message="no such cat")
        asking = Attempt((await runs.add_run(session_id, start=True)).run_id, 1)
        await runs.ask_question(session_id, asking, "size", "How big?", schema=schema)
        await runs.cancel_run(session_id, asking.run_id, reason="too late")

    with_runs(ask)
    told = {line.split()[3]: line for line in cli("tail", session_id, "--no-follow").text.splitlines()}
    assert told["question_asked"].endswith("size: How big? answer: JSON")
    text = cli("tail", session_id, "--no-follow").text
    assert "FAILED, agent_error: no such cat, stop reason error, 1 step, tokens 1,020 (1,000 in, 20 out)\n" in text
    assert "CANCELLED, stop reason too late, 0 steps\n" in text
    assert '{"' not in text
    events = {event["kind"]: event for event in cli("tail", session_id, "--no-follow", "--json").lines}
    assert events["question_asked"]["body"]["schema"] == schema


def test_a_message_body_is_printed_as_it_was_stored(cli: Cli) -> None:
    session_id = make_session()
    body = b'{"role": "user",  "content": "x", "price": 1.10}'

    async def say(sessions: SessionManager) -> None:
        await sessions.append_message(session_id, body, metadata={"n": 2})

    with_sessions(say)
    answer = cli("tail", session_id, "--no-follow", "--json")
    assert body in answer.out
    assert answer.lines[0]["metadata"] == {"n": 2}


def test_a_run_alone(cli: Cli, work: Work) -> None:
    append(work.session_id, "not of the run")
    shown = cli("tail", work.session_id, "--run", work.run_id, "--all", "--json").lines
    assert {event["run_id"] for event in shown} == {work.run_id}
    assert shown[-1]["kind"] == "run_ended"
    ended = cli("tail", work.session_id, "--run", work.run_id)
    assert (ended.code, ended.out) == (0, b"")
    assert "has ended already (COMPLETED)" in ended.err
    unknown = cli("tail", work.session_id, "--run", "run_x", "--json")
    assert (unknown.code, unknown.error["code"]) == (3, "run_not_found")


def test_all_and_after_exclude_each_other(cli: Cli, work: Work) -> None:
    assert cli("tail", work.session_id, "--all", "--after", "3").code == 2
    assert cli("tail", work.session_id, "--after", "-1", "--no-follow").code == 2


def test_it_follows_another_process_from_now_on_and_ctrl_c_ends_it_well(shell: None) -> None:
    session_id = make_session()
    append(session_id, "before")
    terminal = Terminal(["tail", session_id, "--after", "1"])  # as "from now", without a race with its start
    append(session_id, "后来")
    terminal.wait_for("user: 后来")
    append(session_id, "and more")
    terminal.wait_for("user: and more")
    assert "before" not in terminal.shown
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.shown


def test_it_ends_with_the_run(shell: None) -> None:
    session_id = make_session()

    run = with_runs(lambda runs: runs.add_run(session_id, goal="wait", input="go", start=True))
    attempt = Attempt(run.run_id, run.attempt)
    with tailing(session_id, "--run", attempt.run_id, "--all", "--json") as process:
        assert [json.loads(line_of(process))["kind"] for _ in range(3)] == ["run_added", "message", "run_started"]
        with_runs(lambda runs: runs.complete_run(session_id, attempt))
        assert json.loads(line_of(process))["kind"] == "run_ended"
        assert process.wait(timeout=20) == 0


def speaking(session_id: str) -> Attempt:
    run = with_runs(lambda runs: runs.add_run(session_id, start=True))
    attempt = Attempt(run.run_id, run.attempt)
    with_runs(lambda runs: runs.add_text(session_id, attempt, "half \x1b[31m", message=1, offset=0))
    return attempt


def go_on(session_id: str, attempt: Attempt) -> None:
    with_runs(lambda runs: runs.add_text(session_id, attempt, "an ans", message=1, offset=10))


def test_text_is_shown_while_it_is_said_and_moves_no_cursor(shell: None) -> None:
    session_id = make_session()
    attempt = speaking(session_id)
    terminal = Terminal(["tail", session_id, "--text", "--after", "0"])
    terminal.wait_for("half \\x1b[31m")
    go_on(session_id, attempt)
    terminal.wait_for("an ans")
    with_runs(lambda runs: runs.complete_run(session_id, attempt))
    terminal.wait_for("COMPLETED")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0
    lines = [line for line in terminal.shown.splitlines() if "half" in line]
    assert lines[0] == "half \\x1b[31man ans"
    assert "assistant: half" in lines[1]


def test_text_as_json_lines(shell: None) -> None:
    session_id = make_session()
    attempt = speaking(session_id)
    with tailing(session_id, "--text", "--after", "2", "--json") as process:
        first = json.loads(line_of(process))
        go_on(session_id, attempt)
        second = json.loads(line_of(process))
        with_runs(lambda runs: runs.complete_run(session_id, attempt))
        message = json.loads(line_of(process))
    assert first == {
        "kind": "text_delta",
        "run_id": attempt.run_id,
        "attempt": 1,
        "message": 1,
        "offset": 0,
        "end": 10,
        "text": "half \x1b[31m",
    }
    assert (second["offset"], second["text"]) == (10, "an ans")
    assert (message["kind"], message["status"], message["streamed"]) == ("message", "interrupted", 1)


def test_text_needs_following(cli: Cli, work: Work) -> None:
    assert cli("tail", work.session_id, "--text", "--no-follow").code == 2


def test_it_ends_with_an_error_when_the_session_is_deleted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.follow.PATIENCE", 0.1)
    session_id = make_session()
    append(session_id, "one")
    deletion = threading.Timer(0.2, with_sessions, [lambda sessions: sessions.delete_session(session_id)])
    deletion.start()
    answer = cli("tail", session_id, "--json")
    deletion.join()
    assert (answer.code, answer.error["code"]) == (4, "session_deleted")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_leaves_is_no_traceback(cli: Cli, form: list[str]) -> None:
    session_id = make_session()
    for start in range(0, 2000, 100):
        append(session_id, *("x" * 200 for _ in range(start, start + 100)))
    with tailing(session_id, "--all", "--no-follow", *form) as process:
        line_of(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(timeout=20) == 141


def test_every_kind_of_event_has_words(cli: Cli) -> None:
    session_id = make_session()

    async def everything(sessions: SessionManager) -> list[str]:
        await sessions.append_message(
            session_id, {"role": "user", "content": [{"type": "text", "text": "看"}, {"type": "image"}]}
        )
        await sessions.append_message(session_id, b"[1, 2]", format="other")
        call = {"id": "c", "type": "function", "function": {"name": "ls", "arguments": '{"a": 1}'}}
        await sessions.append_message(session_id, {"role": "assistant", "content": None, "tool_calls": [call]})
        await sessions.append_tool_history(session_id, {"tool": "cat", "arguments": ["x"], "error": "no such file"})
        await sessions.retract_message(session_id, 1, reason="wrong")
        await sessions.close_session(session_id, reason="done")
        return [happened(event) for event in await sessions.events(session_id)]

    words = with_sessions(everything)
    assert words == [
        'user: 看\n{"type":"image"}',
        "other: [1,2]",
        'assistant: → ls({"a": 1})',
        'cat(["x"]) failed: no such file',
        "of 1 wrong",
        "reason=done",
    ]
    assert cli("tail", session_id, "--no-follow").text.count("\n") == 6
