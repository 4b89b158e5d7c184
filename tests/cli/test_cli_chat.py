"""`satchel chat`."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from satchel import RunManager, Session, SessionManager
from satchel.cli.chat.command import way_back
from satchel.cli.exit_codes import ExitCode
from tests.cli.shell import Cli, Terminal, with_runs, with_sessions
from tests.engines.model_server import STALL, chunk, model_server, refuses, says, stream

AGENTS = """
import asyncio

async def echo(ctx):
    await ctx.append_message({"role": "assistant", "content": "你说: " + ctx.run.input["content"]})

async def slow(ctx):
    async with ctx.tool("wait", {"seconds": 60}):
        await asyncio.sleep(60)

async def broken(ctx):
    raise ValueError("no such cat")

async def shop(ctx):
    colour = await ctx.ask("colour", "哪种颜色?", schema={"enum": ["red", "green"]})
    approval = await ctx.approve("pay", "pay", {"cents": 500})
    said = f"{colour}: {approval.decision} {approval.arguments} {approval.reason}"
    await ctx.append_message({"role": "assistant", "content": said})

async def planner(ctx):
    if ctx.attempt.attempt == 1:
        for number in range(60):
            async with ctx.child(f"read {number}"):
                pass
    await ctx.append_message({"role": "assistant", "content": "plan: " + await ctx.ask("plan", "Which plan?")})

async def trip(ctx):
    await ctx.append_message({"role": "assistant", "content": await ctx.ask("how", "How will you travel?")})

async def refund(ctx):
    call = {"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 17}'}}
    if ctx.attempt.attempt == 1:
        async with ctx.tool("look", {"sql": "SELECT *\\n" + "FROM orders\\n" * 40}) as tool:
            tool.error = "no such table"
        await ctx.append_message({"role": "assistant", "content": None, "tool_calls": [call]})
    approval = await ctx.approve("refund", "refund", {"order": 17})
    async with ctx.tool("refund", approval.arguments, tool_call_id="call_1") as tool:
        if approval.is_granted:
            tool.result = "paid back"
        else:
            tool.error = "a human refused this call"
    await ctx.append_message({"role": "assistant", "content": approval.decision})

async def unsafe(ctx):
    await ctx.append_message({"role": "assistant", "content": "\\x1b[2J[bold]red"})
"""


@pytest.fixture(autouse=True)
def agents(shell: None, tmp_path: Path) -> None:
    (tmp_path / "chat_agents.py").write_text(AGENTS)


class Terminals(Protocol):
    def __call__(self, arguments: list[str]) -> Terminal: ...


@pytest.fixture
def terminals() -> Iterator[Terminals]:
    """Terminals whose command is gone after the test, whatever became of it."""
    started: list[Terminal] = []

    def start(arguments: list[str]) -> Terminal:
        started.append(Terminal(arguments))
        return started[-1]

    yield start
    for terminal in started:
        terminal.process.kill()
        terminal.process.wait()


def newest() -> Session:
    async def find(sessions: SessionManager) -> Session:
        page = await sessions.list_sessions(limit=1)
        return await sessions.get_session(page.items[0].session_id)

    return with_sessions(find, user="local")


def said(session: Session) -> list[tuple[str | None, Any]]:
    return [(message.role, message.content) for message in session.messages]


def plain(terminal: Terminal) -> str:
    """What is shown, without its colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.shown)


def wait_for_prompt(terminal: Terminal, prompt: str = "> ") -> None:
    deadline = time.monotonic() + 20
    while not terminal.shown.endswith(prompt):
        assert time.monotonic() < deadline, terminal.shown
        time.sleep(0.02)


# -- on a terminal


def test_a_person_talks_to_the_demos_agent_leaves_and_comes_back(terminals: Terminals) -> None:
    terminal = terminals(["chat"])
    terminal.wait_for("Why did income drop yesterday? /help lists")
    terminal.wait_for("> ")
    terminal.type("昨天收入为什么下降?\n")
    terminal.wait_for("· run_sql(sql=")
    terminal.wait_for("收入 -20%")
    terminal.wait_for("下一步:按媒体下钻")
    terminal.type("/memory\n")
    terminal.wait_for("next action")
    terminal.type("/nonsense\n")
    terminal.wait_for("there is no command /nonsense")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    terminal = terminals(["chat", "--continue"])
    terminal.wait_for("昨天收入为什么下降?")
    terminal.wait_for("> ")
    terminal.type("继续\n")
    terminal.wait_for("下一步:按广告位下钻")
    wait_for_prompt(terminal)
    terminal.type("\x04")
    assert terminal.end() == 0
    session = newest()
    assert session.title == "昨天收入为什么下降?"
    assert (session.run_count, session.status) == (2, "ACTIVE")


def test_ctrl_c_stops_the_agent_and_keeps_the_turn(terminals: Terminals) -> None:
    terminal = terminals(["chat", "--agent", "chat_agents:slow"])
    terminal.wait_for("> ")
    terminal.type("等一下\n")
    terminal.wait_for("· wait(seconds=60)")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("stopping …")
    terminal.wait_for("· cancelled")
    terminal.type("/history\n")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    session = newest()
    assert said(session) == [("user", "等一下")]
    assert [run.status for run in session.runs] == ["CANCELLED"]
    assert [call.status for call in session.tool_history] == ["cancelled"]


def test_a_second_ctrl_c_leaves(terminals: Terminals, tmp_path: Path) -> None:
    (tmp_path / "chat_agents.py").write_text(
        "import asyncio, time\n"
        "async def stuck(ctx):\n"
        "    async with ctx.tool('wait'):\n"
        "        asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)\n"
        "        time.sleep(60)\n"
    )
    terminal = terminals(["chat", "--agent", "chat_agents:stuck"])
    terminal.wait_for("> ")
    terminal.type("go\n")
    terminal.wait_for("· wait(")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("stopping …")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.shown
    assert [run.status for run in newest().runs] == ["CANCELLED"]


def test_ctrl_c_at_the_prompt_leaves_when_it_is_meant(terminals: Terminals) -> None:
    terminal = terminals(["chat", "--agent", "chat_agents:echo"])
    terminal.wait_for("> ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("Ctrl-C again leaves")
    terminal.type("还在\\\n")
    terminal.wait_for("… ")
    terminal.type("//吗\n")
    terminal.wait_for("你说: 还在\r\n//吗")
    wait_for_prompt(terminal)
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("Ctrl-C again leaves", times=2)
    wait_for_prompt(terminal)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130


def test_a_failed_run_is_said_and_the_conversation_goes_on(terminals: Terminals) -> None:
    terminal = terminals(["chat", "--agent", "chat_agents:broken"])
    terminal.wait_for("> ")
    terminal.type("go\n")
    terminal.wait_for("the run failed: agent_error: ValueError: no such cat")
    assert "Traceback" not in terminal.shown
    terminal.type("x" * 10 + "\n")
    terminal.wait_for("the run failed: agent_error: ValueError: no such cat")
    terminal.type("/quit\n")
    assert terminal.end() == 0


def test_whoever_comes_back_is_told_of_the_message_that_was_lost(terminals: Terminals) -> None:
    async def lose(sessions: SessionManager) -> None:
        session = await sessions.create_session(title="lost")
        async with sessions.run(session.session_id, input="还在吗?") as run:
            await run.append_message({"role": "assistant", "content": "在"})

    async def die(runs: RunManager) -> None:
        await runs.add_run(session_id, input="查一下", start=True, lease=0.5)  # and its process is killed

    with_sessions(lose, user="local")
    session_id = newest().session_id
    terminal = terminals(["chat", "--agent", "chat_agents:echo", "--continue"])
    terminal.wait_for("> ")
    assert "the run failed" not in plain(terminal)
    assert "no answer" not in plain(terminal)
    terminal.type("/quit\n")
    assert terminal.end() == 0
    with_runs(die, user="local")
    time.sleep(0.6)
    terminal = terminals(["chat", "--agent", "chat_agents:echo", "--continue"])
    terminal.wait_for("the run failed: worker_lost")
    wait_for_prompt(terminal)
    assert "查一下" in plain(terminal)
    assert "· this message has no answer" in plain(terminal)
    terminal.type("/quit\n")
    assert terminal.end() == 0


def test_what_an_agent_says_does_not_move_the_cursor(terminals: Terminals) -> None:
    terminal = terminals(["chat", "--agent", "chat_agents:unsafe"])
    terminal.wait_for("> ")
    terminal.type("go\n")
    terminal.wait_for("\\x1b[2J[bold]red")
    terminal.type("/quit\n")
    assert terminal.end() == 0


def test_the_person_answers_what_the_agent_asks(terminals: Terminals) -> None:
    terminal = terminals(["chat", "--agent", "chat_agents:shop"])
    terminal.wait_for("> ")
    terminal.type("买灯\n")
    terminal.wait_for("哪种颜色?")
    terminal.wait_for("1: red   2: green")
    terminal.type("blue\n")
    terminal.wait_for("please type a number from 1 to 2")
    terminal.type("2\n")
    terminal.wait_for("May pay be called with")
    wait_for_prompt(terminal, "? ")
    terminal.type("\x04")  # leaves it open
    terminal.wait_for("it waits for your answer")
    assert terminal.end() == 0
    assert [run.status for run in newest().runs] == ["WAITING"]
    terminal = terminals(["chat", "--agent", "chat_agents:shop", "--continue"])
    terminal.wait_for("May pay be called with")
    assert "哪种颜色?" not in terminal.shown
    terminal.type('e {"cents": 7}\n')
    terminal.wait_for("green: edit {'cents': 7}")
    wait_for_prompt(terminal)
    terminal.type("买灯\n")
    terminal.wait_for("1: red   2: green")
    terminal.process.send_signal(signal.SIGINT)
    terminal.wait_for("· cancelled")
    wait_for_prompt(terminal)
    terminal.type("/quit\n")
    assert terminal.end() == 0
    assert [run.status for run in newest().runs] == ["COMPLETED", "CANCELLED"]


def test_a_refused_call_and_a_failed_one_do_not_look_like_calls_that_were_made(terminals: Terminals) -> None:
    for answer, line in (("n 不行", "· refund(order=17): refused\r\n"), ("y", "· refund(order=17)\r\n")):
        terminal = terminals(["chat", "--agent", "chat_agents:refund"])
        terminal.wait_for("> ")
        terminal.type("退款\n")
        terminal.wait_for("· look failed: no such table")
        (shown,) = (one for one in plain(terminal).splitlines() if one.startswith("· look("))
        assert shown.startswith("· look(sql=SELECT * FROM orders")
        assert shown.endswith("…")  # one line, and no more
        assert len(shown) <= 80
        terminal.wait_for("May refund be called with")
        terminal.wait_for("Ctrl-C cancels the run; Ctrl-D leaves its question open")
        terminal.type(f"{answer}\n")
        wait_for_prompt(terminal)
        assert line in plain(terminal)
        assert "refund failed" not in terminal.shown
        terminal.type("/quit\n")
        assert terminal.end() == 0


def test_the_way_back_can_be_pasted(terminals: Terminals, cli: Cli) -> None:
    flags = ["--agent", "chat_agents:trip", "--store", "sqlite:///./other one.db", "--tenant", "it's", "--user", "eve"]
    terminal = terminals(["chat", *flags])
    terminal.wait_for("made a new store at")
    terminal.wait_for("> ")
    terminal.type("fly\n")
    terminal.wait_for("How will you travel?")
    wait_for_prompt(terminal, "? ")
    terminal.type("\x04")
    terminal.wait_for("to go on:")
    assert terminal.end() == 0
    (line,) = (line for line in plain(terminal).splitlines() if line.startswith("satchel chat --session"))
    words = shlex.split(line)[1:]
    assert words[3:] == ["--store", "sqlite:///./other one.db", "--tenant", "it's", "--user", "eve", *flags[:2]]
    answer = cli(*words, stdin=b"by train")
    assert (answer.code, answer.text) == (0, "by train\n")
    assert shlex.split(answer.err.splitlines()[-1])[1:] == words  # and again


def test_a_run_of_an_agent_that_is_not_served_is_refused_before_its_answer_is_taken(
    terminals: Terminals, cli: Cli
) -> None:
    cli("chat", "--agent", "chat_agents:trip", stdin=b"fly")
    for arguments in (["chat", "-c"], ["chat", "-c", "--agent", "chat_agents:echo"]):
        refused = cli(*arguments, "--json", stdin=b"by train")
        assert (refused.code, refused.out, refused.error["code"]) == (ExitCode.USAGE, b"", "agent_not_served")
        assert "belongs to agent trip" in refused.error["message"]
    terminal = terminals(["chat", "-c"])
    terminal.wait_for("belongs to agent trip, which is not served here")
    assert terminal.end() == ExitCode.USAGE
    assert "How will you travel?" not in terminal.shown.replace("/ Why did", "")
    assert [run.status for run in newest().runs] == ["WAITING"]
    answer = cli("chat", "-c", "--agent", "trip=chat_agents:trip", stdin=b"by train")
    assert (answer.code, answer.text) == (0, "by train\n")


# -- without one


def test_a_question_is_answered_by_the_next_call(cli: Cli) -> None:
    flags = ["chat", "--agent", "chat_agents:shop"]
    first = cli(*flags, stdin=b"go")
    assert (first.code, first.out) == (ExitCode.NOT_ANSWERED, b"")
    assert "哪种颜色?" in first.err
    assert cli(*flags, "-c", stdin=b"blue").code == ExitCode.USAGE
    second = cli(*flags, "-c", "--json", stdin=b"red")
    assert second.code == ExitCode.NOT_ANSWERED
    assert second.json["run"]["question"]["name"] == "pay"
    third = cli(*flags, "-c", stdin="n 太贵了".encode())
    assert (third.code, third.text) == (0, "red: deny {'cents': 500} 太贵了\n")
    cli(*flags, "-c", stdin=b"again")
    cli(*flags, "-c", stdin=b'"green"')  # as Python and HTTP are answered
    edited = cli(*flags, "-c", stdin=b'{"decision": "edit", "arguments": {"cents": 7}}')
    assert (edited.code, edited.text) == (0, "green: edit {'cents': 7} \n")


def test_a_question_is_found_behind_any_number_of_child_runs(cli: Cli) -> None:
    flags = ["chat", "--agent", "chat_agents:planner"]
    assert "Which plan?" in cli(*flags, stdin=b"go").err
    answer = cli(*flags, "-c", stdin=b"the second")
    assert (answer.code, answer.text) == (0, "plan: the second\n")


def test_one_message_in_one_answer_out(cli: Cli) -> None:
    answer = cli("chat", "--agent", "chat_agents:echo", stdin="你好\n还有".encode())
    assert (answer.code, answer.text) == (0, "你说: 你好\n还有\n")
    session_id = newest().session_id
    assert session_id in answer.err
    again = cli("chat", "--agent", "chat_agents:echo", "--continue", "--json", stdin=b"again")
    assert again.code == 0
    assert again.json["session_id"] == session_id
    assert again.json["run"]["status"] == "COMPLETED"
    assert again.json["message"]["content"] == "你说: again"


def test_a_closed_session_is_restored_for_who_comes_back(cli: Cli) -> None:
    cli("chat", "--agent", "chat_agents:echo", stdin=b"one")
    session_id = newest().session_id
    cli("sessions", "close", session_id)
    answer = cli("chat", "--agent", "chat_agents:echo", "--session", session_id, stdin=b"two")
    assert (answer.code, answer.text) == (0, "你说: two\n")
    assert newest().message_count == 4


@pytest.mark.parametrize(
    ("arguments", "stdin", "code"),
    [
        (["--agent", "chat_agents:broken"], b"go", ExitCode.NOT_ANSWERED),
        (["--agent", "chat_agents:nobody"], b"go", ExitCode.USAGE),
        (["--continue"], b"go", ExitCode.NOT_FOUND),
        (["--session", "sess_nobody"], b"go", ExitCode.NOT_FOUND),
        (["--continue", "--session", "sess_x"], b"go", ExitCode.USAGE),
        (["--user", ""], b"go", ExitCode.USAGE),
        (["--model", "m"], b"go", ExitCode.USAGE),  # no key
        ([], b"", ExitCode.USAGE),
        ([], b"\xff", ExitCode.USAGE),
    ],
)
def test_what_cannot_be_is_an_exit_code(
    cli: Cli, arguments: list[str], stdin: bytes, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    answer = cli("chat", *arguments, "--json", stdin=stdin)
    assert answer.code == code
    assert "Traceback" not in answer.err


def test_without_a_store_the_conversation_is_kept_in_the_users_own(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("SATCHEL_STORE")
    assert cli("chat", "--continue", stdin=b"go").code == ExitCode.STORE
    assert cli("chat", "--agent", "chat_agents:echo", stdin=b"one").text == "你说: one\n"
    assert (tmp_path / "data" / "satchel" / "chat.db").exists()
    assert cli("chat", "--agent", "chat_agents:echo", "-c", stdin=b"two").text == "你说: two\n"


# -- with a model


async def test_a_model_answers_and_its_key_is_nowhere(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    async with model_server() as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        model.replies += [says("你好"), refuses(401, "wrong key sk-very-secret")]
        flags = ["--model", "m-1", "--instructions", "Be kind."]
        answer = await asyncio.to_thread(cli, "chat", *flags, "--json", stdin=b"hi")
        assert answer.json["message"]["content"] == "你好"
        assert model.requests[0]["messages"][0] == {"role": "system", "content": "Be kind."}
        refused = await asyncio.to_thread(cli, "chat", *flags, stdin=b"hi")
    assert refused.code == ExitCode.NOT_ANSWERED
    assert "model_rejected: Error code: 401 - wrong key (the key)" in refused.err
    assert "sk-very-secret" not in answer.text + answer.err + refused.text + refused.err


async def test_who_hangs_up_in_the_middle_of_an_answer_finds_it_later(
    terminals: Terminals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    async with model_server() as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        model.replies += [stream(chunk({"content": "半"}), chunk({"content": "句"}), STALL), says("整句话")]
        terminal = terminals(["chat", "--model", "m-1"])
        await asyncio.to_thread(terminal.wait_for, "> ")
        terminal.type("说\n")
        await asyncio.to_thread(terminal.wait_for, "半句")  # it streams
        terminal.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(terminal.end) == 130
        left = await asyncio.to_thread(newest)
        assert [(run.status, run.attempt) for run in left.runs] == [("READY", 1)]
        assert (left.messages[-1].content, left.messages[-1].status) == ("半句", "interrupted")
        terminal = terminals(["chat", "--model", "m-1", "--continue"])
        await asyncio.to_thread(terminal.wait_for, "整句话")
        await asyncio.to_thread(terminal.wait_for, "> ")
        terminal.type("/quit\n")
        assert await asyncio.to_thread(terminal.end) == 0
    (run,) = (await asyncio.to_thread(newest)).runs
    assert (run.status, run.attempt) == ("COMPLETED", 2)


def test_a_password_of_the_environment_is_in_no_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://ada:s3cret@db/satchel"
    monkeypatch.setenv("SATCHEL_STORE", url)
    for name in ("SATCHEL_TENANT", "SATCHEL_USER", "SATCHEL_AGENT", "SATCHEL_MODEL", "SATCHEL_INSTRUCTIONS"):
        monkeypatch.delenv(name, raising=False)
    given = {"tenant": "local", "user": "local", "agent": None, "model": "m", "instructions": "be brief"}
    back = way_back(store=url, **given)("sess_x")  # type: ignore[arg-type]  # text and None side by side
    assert back == "satchel chat --session sess_x --model m --instructions 'be brief'"
    monkeypatch.delenv("SATCHEL_STORE")
    assert f"--store {url}" in way_back(store=url, **given)("sess_x")  # type: ignore[arg-type]  # the same


@pytest.mark.parametrize(
    ("asked", "answered"), [("hello", "I am a scripted demo agent"), ("你好", "我是按脚本工作的演示代理")]
)
def test_without_a_model_the_demos_agent_says_what_it_is_in_the_language_of_the_question(
    cli: Cli, asked: str, answered: str
) -> None:
    answer = cli("chat", stdin=asked.encode())
    assert answer.text.startswith(answered)
    first = answer.err.splitlines()[0] if "made a new store" not in answer.err else answer.err.splitlines()[1]
    assert first.startswith("satchel: this is the demo's scripted agent, without a model")
    assert "--model NAME or --agent MODULE:OBJECT" in first
    assert cli("chat", "--json", stdin=asked.encode()).err == ""
