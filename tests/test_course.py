"""The sample programs of the course run against this SessionManager, and the door opens as the design prints it."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import satchel
from satchel import Principal, RunActive, SessionClosed, SessionDeleted, SessionManager, VersionConflict, sync


@pytest.fixture
def manager() -> sync.SessionManager:
    return sync.SessionManager()


def play(source: str, folder: Path) -> dict[str, Any]:
    """As `python program.py`, so that its `__main__` block runs."""
    program = folder / "program.py"
    program.write_text(source, encoding="utf-8")
    return runpy.run_path(str(program), run_name="__main__")


MINIMAL_MANAGER = """
from satchel.sync import SessionManager

if __name__ == "__main__":
    manager = SessionManager()

    session = (
        manager.create_session()
    )

    print(session)

    manager.close_session(
        session.session_id
    )

    print(
        manager.get_session(
            session.session_id
        )
    )

    manager.restore_session(
        session.session_id
    )

    print(
        manager.get_session(
            session.session_id
        )
    )
"""


def test_the_minimal_manager_program_prints_the_three_states(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = play(MINIMAL_MANAGER, tmp_path)["session"]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    for line, status in zip(printed, ("ACTIVE", "CLOSED", "ACTIVE"), strict=True):
        assert line.startswith(f"Session(session_id='{session.session_id}'")
        assert f"status='{status}'" in line
        assert "messages=()" in line


FILLED_SESSION = """
from satchel.sync import SessionManager

if __name__ == "__main__":
    manager = SessionManager()
    session = manager.create_session()

    manager.append_message(session.session_id, {
        "role": "user",
        "content": "修复启动失败",
    })

    manager.update_working_memory(
        session.session_id,
        {"set": {"goal": "修复启动失败"}},
        expected_version=session.working_memory.version,
    )

    session = manager.get_session(session.session_id)
    print(session)
"""


def test_the_program_that_fills_a_session_prints_what_it_put_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = play(FILLED_SESSION, tmp_path)["session"]
    assert "修复启动失败" in capsys.readouterr().out
    assert session.working_memory.goal == "修复启动失败"
    assert session.updated_at >= session.created_at
    assert session.version == 2


def test_an_unknown_id_is_a_key_error(manager: sync.SessionManager) -> None:
    for ask in (manager.get_session, manager.close_session, manager.restore_session, manager.delete_session):
        with pytest.raises(KeyError, match="sess_unknown"):
            ask("sess_unknown")


def test_the_eight_verbs_of_the_chapter(manager: sync.SessionManager) -> None:
    session_id = manager.create_session().session_id
    assert manager.get_session(session_id).session_id == session_id
    manager.append_message(session_id, {"role": "user", "content": "帮我修复启动失败。"})
    manager.append_tool_history(session_id, {"tool": "read_file", "arguments": {"path": "app.py"}, "ok": True})
    run = manager.add_run(session_id, goal="定位 Bug")
    manager.close_session(session_id)
    restored = manager.restore_session(session_id)
    assert [session.session_id for session in manager.list_sessions()] == [session_id]
    assert [message.content for message in restored.messages] == ["帮我修复启动失败。"]
    assert [(call.tool, call.arguments, call.ok) for call in restored.tool_history] == [
        ("read_file", {"path": "app.py"}, True)
    ]
    assert [one.run_id for one in restored.runs] == [run.run_id]
    assert restored.status == "ACTIVE"


def test_changing_the_object_is_refused_and_changes_nothing(manager: sync.SessionManager) -> None:
    session = manager.create_session()
    with pytest.raises(AttributeError, match=r"append_message\(session_id"):
        session.messages.append({"role": "user"})  # type: ignore[attr-defined]  # the mistake of the course's question 3
    with pytest.raises(AttributeError, match="close_session"):
        session.status = "CLOSED"
    assert session.status == "ACTIVE"
    assert manager.get_session(session.session_id).version == 0


def test_a_closed_session_is_read_and_not_written(manager: sync.SessionManager) -> None:
    session_id = manager.create_session().session_id
    manager.append_message(session_id, {"role": "user", "content": "hello"})
    manager.close_session(session_id)
    assert manager.get_session(session_id).message_count == 1
    for write in (
        lambda: manager.append_message(session_id, {"role": "user", "content": "late"}),
        lambda: manager.append_tool_history(session_id, {"tool": "read_file"}),
        lambda: manager.add_run(session_id),
        lambda: manager.update_working_memory(session_id, {"append": {"plan": "late"}}),
    ):
        with pytest.raises(SessionClosed):
            write()
    assert manager.restore_session(session_id).message_count == 1


def test_a_deleted_session_cannot_be_restored(manager: sync.SessionManager) -> None:
    session_id = manager.create_session().session_id
    assert manager.delete_session(session_id).status == "DELETED"
    with pytest.raises(SessionDeleted):
        manager.restore_session(session_id)


def test_two_updates_from_version_3_have_one_winner(manager: sync.SessionManager) -> None:
    session_id = manager.create_session().session_id
    for text in ("list files", "read app.py", "run it"):
        manager.update_working_memory(session_id, {"append": {"plan": text}})
    first = manager.update_working_memory(session_id, {"set": {"goal": "first"}}, expected_version=3)
    assert first.version == 4
    with pytest.raises(VersionConflict) as refused:
        manager.update_working_memory(session_id, {"set": {"goal": "second"}}, expected_version=3)
    assert (refused.value.expected, refused.value.current) == (3, 4)
    assert manager.get_working_memory(session_id).goal == "first"
    merged = manager.update_working_memory(
        session_id, {"set": {"goal": "first, second"}}, expected_version=refused.value.current
    )
    assert (merged.goal, merged.version) == ("first, second", 5)


def test_a_retry_with_the_same_key_writes_once(manager: sync.SessionManager) -> None:
    session_id = manager.create_session().session_id
    answers = [
        manager.append_message(session_id, {"role": "user", "content": "继续"}, idempotency_key="req-1")
        for _ in range(3)
    ]
    assert [(answer.seq, answer.replayed) for answer in answers] == [(1, False), (1, True), (1, True)]
    assert manager.get_session(session_id).message_count == 1


def test_one_session_has_three_runs_and_outlives_them(manager: sync.SessionManager) -> None:
    session_id = manager.create_session().session_id
    for goal in ("定位 Bug", "修复", "跑完整测试"):
        with manager.run(session_id, goal=goal) as run:
            run.step("scripted", input_tokens=3, output_tokens=2)
            with pytest.raises(RunActive):
                manager.add_run(session_id, goal="another at the same time")
    session = manager.get_session(session_id)
    assert [(run.number, run.goal, run.status) for run in session.runs] == [
        (1, "定位 Bug", "COMPLETED"),
        (2, "修复", "COMPLETED"),
        (3, "跑完整测试", "COMPLETED"),
    ]
    assert all(run.steps == 1 and run.usage.total_tokens == 5 and run.duration_ms is not None for run in session.runs)
    assert len({run.run_id for run in session.runs} | {session_id}) == 4
    assert session.status == "ACTIVE"


FIRST_PROGRAM = """
from satchel.sync import SessionManager

manager = SessionManager()                       # a private memory: store and Principal.local(); gone with the process
session = manager.create_session()               # Session(session_id='sess_…', messages=(), status='ACTIVE', version=0, …)
manager.append_message(session.session_id, {"role": "user", "content": "帮我修复启动失败。"})
manager.append_tool_history(session.session_id, {"tool": "read_file", "arguments": {"path": "app.py"}, "ok": True})
manager.close_session(session.session_id)
manager.restore_session(session.session_id)      # messages, working memory, tool history, runs; ACTIVE again
"""


def test_the_first_program_of_the_python_door(tmp_path: Path) -> None:
    played = play(FIRST_PROGRAM, tmp_path)
    session = played["manager"].get_session(played["session"].session_id)
    assert (session.status, session.message_count, session.tool_call_count) == ("ACTIVE", 1, 1)


class StandIn:
    """Where a program has the client of a model: answers from the messages that it is given."""

    def __init__(self) -> None:
        self.asked: list[list[dict[str, Any]]] = []
        self.chat = SimpleNamespace(completions=self)

    async def create(self, *, model: str, messages: list[dict[str, Any]]) -> SimpleNamespace:
        self.asked.append(messages)
        content = "requests is missing" if "ModuleNotFoundError" in str(messages) else "what is to be done?"
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=content))])


async def test_what_a_service_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = StandIn()
    async with satchel.open("sqlite:///agent.db") as store:
        sessions = SessionManager(store, Principal.agent("shop", tenant_id="acme", acting_for="ada"))
        session = await sessions.create_session(title="Flask will not start")
        async with sessions.run(session.session_id, goal="find out why", input="修复启动失败") as run:
            async with run.tool("run_shell", {"command": "python3 app.py"}) as call:
                call.result = "ModuleNotFoundError: No module named 'requests'"
            await run.update_working_memory(
                {"set": {"next_action": "add requests"}, "append": {"completed": "saw the ModuleNotFoundError"}}
            )
            context = await run.context(max_tokens=8000)
            reply = await client.chat.completions.create(model="stand-in", messages=context.messages)
            await run.append_message({"role": "assistant", "content": reply.choices[0].message.content})
    assert client.asked[0][-1] == {"role": "user", "content": "修复启动失败"}

    async with satchel.open("sqlite:///agent.db") as store:  # as another process would
        sessions = SessionManager(store, Principal.agent("shop", tenant_id="acme", acting_for="ada"))
        found = await sessions.get_session(session.session_id)
        assert [(message.role, message.content) for message in found.messages] == [
            ("user", "修复启动失败"),
            ("assistant", "requests is missing"),
        ]
        assert [run.status for run in found.runs] == ["COMPLETED"]
        assert found.tool_history[0].result == "ModuleNotFoundError: No module named 'requests'"
        assert found.working_memory is not None
        assert found.working_memory.next_action == "add requests"


@pytest.mark.parametrize("url", ["memory:", "sqlite:///agent.db"])
def test_the_experiment_at_the_end_of_the_chapter(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    me = Principal.agent("coding", tenant_id="acme", acting_for="ada")
    with sync.open(url) as store:
        manager = sync.SessionManager(store, me)
        session_id = manager.create_session().session_id
        manager.append_message(session_id, {"role": "user", "content": "帮我修复启动失败。"})
        manager.update_working_memory(session_id, {"append": {"completed": "已定位到 requests 缺失。"}})
        manager.close_session(session_id)

        back = sync.SessionManager(store, me)
        assert back.restore_session(session_id).status == "ACTIVE"
        with back.run(session_id, input="继续刚才的任务") as run:
            seen = run.context().messages
            assert seen[-1] == {"role": "user", "content": "继续刚才的任务"}
            assert "已定位到 requests 缺失。" in str(seen)
            assert all(message["role"] == "user" for message in seen)  # memory is data, never an instruction

        fresh = back.create_session().session_id
        with back.run(fresh, input="继续刚才的任务") as run:
            assert "requests" not in str(run.context().messages)
