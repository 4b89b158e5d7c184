"""Promises of the demo's two agents, with their real tools, in both languages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import satchel
from satchel import Principal, Session, SessionManager
from satchel.demo import build_ads_database, build_flask_project
from satchel.demo.agents import coding, data
from satchel.demo.scenes.repair import FIVE_CALLS, MEMORY
from satchel.demo.story import call_line
from satchel.engine import execute
from satchel.engines import ScriptedEngine


@pytest.fixture
async def sessions() -> AsyncIterator[SessionManager]:
    async with satchel.open("memory:") as store:
        yield SessionManager(store, Principal.agent("tester", tenant_id="acme", acting_for="ada"))


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    return await asyncio.to_thread(build_flask_project, tmp_path / "project")


@pytest.fixture
async def ads(tmp_path: Path) -> Path:
    return await asyncio.to_thread(build_ads_database, tmp_path / "ads.db")


async def talk(sessions: SessionManager, engine: ScriptedEngine, *lines: str) -> tuple[Session, list[str]]:
    """The session afterwards, and the last answer to each line."""
    session_id = (await sessions.create_session()).session_id
    answers = []
    for line in lines:
        async with sessions.run(session_id, goal=line, input=line, agent=engine.name) as run:
            await execute(engine, run)
        last = await sessions.messages(session_id, order="desc", limit=1)
        answers.append(str(last[0].content))
    return await sessions.get_session(session_id), answers


async def test_the_coding_agent_finds_the_cause_by_the_five_calls_of_the_chapter(
    sessions: SessionManager, project: Path
) -> None:
    session, (answer,) = await talk(sessions, coding(project), "帮我修复这个 Flask 项目启动失败问题。")
    assert [call_line(call.tool, call.arguments) for call in session.tool_history] == FIVE_CALLS
    assert "ModuleNotFoundError: No module named 'requests'" in session.tool_history[3].result["stderr"]
    assert session.working_memory is not None
    assert session.working_memory.to_dict() == MEMORY
    assert "requirements.txt" in answer
    assert str(MEMORY["next_action"]) in answer


async def test_an_interrupted_diagnosis_goes_on_where_memory_says_it_was(
    sessions: SessionManager, project: Path
) -> None:
    engine = coding(project)
    session_id = (await sessions.create_session()).session_id

    async def breaks(**arguments: Any) -> NoReturn:
        raise RuntimeError("the machine went away")

    broken = ScriptedEngine(engine.script, engine.tools | {"run_shell": breaks})
    with pytest.raises(RuntimeError):
        async with sessions.run(session_id, input="帮我修复启动失败。") as run:
            await execute(broken, run)
    async with sessions.run(session_id, input="继续") as run:
        await execute(engine, run)
    session = await sessions.get_session(session_id)
    first, second = session.runs
    assert [call.tool for call in session.tool_history if call.run_id == first.run_id][-1] == "run_shell"
    assert [
        call_line(call.tool, call.arguments) for call in session.tool_history if call.run_id == second.run_id
    ] == FIVE_CALLS[3:]
    assert session.working_memory is not None
    assert session.working_memory.to_dict() == MEMORY


async def test_the_coding_agent_repairs_in_english_too(sessions: SessionManager, project: Path) -> None:
    session, (_, answer) = await talk(
        sessions, coding(project), "Please fix this Flask project: it does not start.", "Go on with the task"
    )
    assert (project / "requirements.txt").read_text() == "flask>=3.0\nrequests>=2.31\n"
    assert [call_line(call.tool, call.arguments) for call in session.tool_history][:5] == FIVE_CALLS
    assert [call.tool for call in session.tool_history[5:]] == ["write_file"]
    assert "Last completed: Added requests to requirements.txt" in answer


async def test_the_coding_agent_runs_a_command_and_keeps_the_task_that_it_has(
    sessions: SessionManager, project: Path
) -> None:
    session, answers = await talk(
        sessions,
        coding(project),
        "Run the command: exit 3",
        "What is wrong, why does it not start?",
        "执行命令:echo hi",
    )
    assert "exit 3 ended with exit code 3" in answers[0]
    assert "echo hi 的退出码是 0" in answers[2]
    assert session.working_memory is not None
    assert session.working_memory.goal == "Repair the Flask project that does not start"


@pytest.mark.parametrize(
    "lines",
    [
        ("昨天收入为什么下降?", "继续看看是哪个媒体。", "那再按广告位拆。"),
        ("Why did income drop yesterday?", "Which media is it?", "Split it by position."),
        ("昨天收入为什么下降?", "继续", "接着来"),
        ("Why did income drop yesterday?", "Continue", "Please go on"),
    ],
)
async def test_the_data_agent_drills_down_from_what_memory_holds(
    sessions: SessionManager, ads: Path, lines: tuple[str, str, str]
) -> None:
    session, answers = await talk(sessions, data(ads), *lines)
    assert "-20%" in answers[0]
    assert "-35%" in answers[0]
    assert "media_B" in answers[1]
    assert "position_17" in answers[2]
    goal = "找出昨天收入下降的原因" if lines[0].startswith("昨天") else "Find out why income dropped yesterday"
    assert all(goal in answer for answer in answers)
    assert "media_B" in session.tool_history[2].arguments["sql"]
    assert "media_B" not in lines[2]


async def test_the_data_agent_does_not_drill_where_nothing_was_found(sessions: SessionManager, ads: Path) -> None:
    session, answers = await talk(sessions, data(ads), "那再按广告位拆。", "Which media is it?")
    assert "我不知道" in answers[0]
    assert "I do not know" in answers[1]
    assert session.tool_history == ()
