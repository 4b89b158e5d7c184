"""Scene 1: the server that a coding agent worked in is killed between two messages; another one goes on where it was."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satchel import Run, Session
from satchel.demo.checks import parts_found
from satchel.demo.project import build_flask_project
from satchel.demo.scenes.evidence import (
    calls_of,
    check_runs,
    check_served,
    check_stream,
    first_answer,
    gapless,
    memory_of,
)
from satchel.demo.shell import clean_environment
from satchel.demo.stage import Stage
from satchel.demo.story import call_line

TITLE = "Coding: the session outlives the process that worked in it"
KILLED = "scene 1, after the kill"  # an interlude

ASKED = "帮我修复这个 Flask 项目启动失败问题。"
GO_ON = "继续刚才的任务"
RUN_TESTS = "再帮我跑完整测试。"

FIVE_CALLS = [
    "list_files",
    "read_file README.md",
    "read_file app.py",
    "run_shell python3 app.py",
    "read_file requirements.txt",
]
OWN_LOOK = 60.0  # seconds, for the demo's own start of the project
MEMORY = {
    "goal": "修复 Flask 项目启动失败",
    "plan": [],
    "completed": ["已确认项目入口 app.py", "已复现 ModuleNotFoundError", "已确认 requirements.txt 缺少 requests"],
    "errors": ["ModuleNotFoundError: requests"],
    "important_files": ["app.py", "requirements.txt"],
    "next_action": "补充依赖并重新验证",
}


async def play(stage: Stage) -> None:
    stage.begin(1, TITLE)
    first = await stage.serve()
    await stage.new_session("Flask 项目启动失败")
    with stage.show.waiting("building a scratch project"):
        project = await asyncio.to_thread(stage.workplace, build_flask_project)
    stage.show.note("a scratch Flask project is ready; its requirements.txt lacks requests")
    stream = stage.follow()
    found_out = await stage.talk(stream, ASKED, meaning="Help me, this Flask project does not start")
    _check_diagnosis(stage, found_out, project)

    closed = await _close(stage)
    await stream.reached((await stage.read()).last_seq)
    await stage.stand_by()
    _, status = await stage.kill()
    stage.check("the operating system ended the server by SIGKILL", expected=-9, found=status)
    await stage.interlude(KILLED)
    standing = await stage.read()
    stage.check(
        "status and version after the kill are those before it",
        expected=closed,
        found=[standing.status, standing.version],
    )

    second = await stage.go_on(first)
    async with stage.sessions() as sessions:
        await sessions.restore_session(stage.session_id, reason="Ada is back")
    stage.show.note("Ada is back, and restores her session there")
    repaired = await stage.talk(stream, GO_ON, meaning="Go on with the task")
    lives = [(first.pid, range(1, standing.last_seq + 1)), (second.pid, range(standing.last_seq + 1, 1 << 53))]
    await _check_going_on(stage, found_out, repaired, lives)
    _check_repair(stage, found_out, repaired, project)

    stage.show.note(_packages())
    proven = await stage.talk(stream, RUN_TESTS, meaning="Now run all its tests")
    await _check_proof(stage, proven, project)
    await _check_runs(stage, proven)
    await check_served(stage)
    await check_stream(stage, stream, cut_after=standing.last_seq)


def _check_diagnosis(stage: Stage, session: Session, project: Path) -> None:
    stage.check(
        "run 1 made the five tool calls of the chapter, in order",
        expected=FIVE_CALLS,
        found=[call_line(call.tool, call.arguments) for call in session.tool_history],
    )
    shell = next((call for call in session.tool_history if call.tool == "run_shell"), None)
    result: dict[str, Any] = shell.result if shell is not None and isinstance(shell.result, dict) else {}
    stage.check(
        "the program really failed: exit code and last line of its stderr",
        expected=[1, "ModuleNotFoundError: No module named 'requests'"],
        found=[result.get("exit_code"), str(result.get("stderr", "")).strip().rpartition("\n")[2]],
    )
    memory = memory_of(session)
    for field, expected in MEMORY.items():
        stage.check(f"working memory: {field}", expected=expected, found=memory[field])
    stage.check(
        "on disk, nothing is repaired yet: requirements.txt", expected=["flask>=3.0"], found=_requirements(project)
    )


async def _close(stage: Stage) -> list[Any]:
    async with stage.sessions() as sessions:
        await sessions.close_session(stage.session_id, reason="Ada leaves for the morning")
    standing = await _standing(stage)
    stage.show.note("Ada closes the session")
    stage.check("the session is closed", expected="CLOSED", found=standing[0])
    return standing


async def _standing(stage: Stage) -> list[Any]:
    session = await stage.read()
    return [session.status, session.version]


async def _check_going_on(stage: Stage, before: Session, after: Session, lives: Sequence[tuple[int, range]]) -> None:
    """``lives``: of each server process, the part of the log that only it can have written."""
    stage.check("the session is open again", expected="ACTIVE", found=after.status)
    stage.check(
        "each run was written by the process that was alive",
        expected=[pid for pid, _ in lives],
        found=[await _writer(stage, run, lives) for run in after.runs[:2]],
    )
    memory = before.working_memory
    assert memory is not None
    parts = ["requests", "requirements.txt", memory.goal, memory.completed[-1], memory.next_action]
    stage.check(
        "the answer names them as memory held them before the kill",
        expected=parts,
        found=parts_found(first_answer(after, number=2), parts),
    )
    stage.check(
        "run 2 made none of the five calls again",
        expected=[],
        found=[shown for shown in calls_of(after, number=2) if shown in FIVE_CALLS],
    )


def _check_repair(stage: Stage, before: Session, after: Session, project: Path) -> None:
    kept, now = memory_of(before), memory_of(after)
    stage.check("the goal is the same", expected=kept["goal"], found=now["goal"])
    stage.check(
        "run 2 built on what was completed",
        expected=[*kept["completed"], "已在 requirements.txt 补充 requests"],
        found=now["completed"],
    )
    stage.check(
        "on disk, run 2 repaired requirements.txt",
        expected=["flask>=3.0", "requests>=2.31"],
        found=_requirements(project),
    )


async def _check_proof(stage: Stage, session: Session, project: Path) -> None:
    results = [call.result for call in session.tool_history if call.run_id == session.runs[-1].run_id]
    stage.check(
        "run 3 installed, started and tested: exit codes",
        expected=[0, 0, 0],
        found=[result.get("exit_code") if isinstance(result, dict) else None for result in results],
    )
    stage.check("on disk, requests is installed in the project", expected=["requests"], found=_installed(project))
    with stage.show.waiting("starting the project and its tests ourselves"):
        started = await _run(project, "app.py")
        tested = await _run(project, "-m", "unittest")
    stage.check(
        "started by us, without the agent, the project works: exit code, first words",
        expected=[0, "OK 启动成功"],
        found=[started[0], started[1][: len("OK 启动成功")]],
    )
    stage.check(
        "and its tests pass: exit code, last word", expected=[0, "OK"], found=[tested[0], tested[2].split()[-1]]
    )


async def _check_runs(stage: Stage, session: Session) -> None:
    every = [call_line(call.tool, call.arguments) for call in session.tool_history]
    counts = {call: every.count(call) for call in FIVE_CALLS}
    stage.check(
        "in the whole session, each of the five was made once", expected=dict.fromkeys(FIVE_CALLS, 1), found=counts
    )
    check_runs(stage, session, count=3)
    async with stage.behind() as sessions:
        log = [event.seq for event in await sessions.events(stage.session_id, limit=500)]
    stage.check("the log has no gap", expected=f"1 to {session.last_seq}", found=gapless(log))


def _requirements(project: Path) -> list[str]:
    return (project / "requirements.txt").read_text(encoding="utf-8").split()


async def _writer(stage: Stage, run: Run, lives: Sequence[tuple[int, range]]) -> int | str:
    """The process in whose part of the log all of the run's events stand."""
    async with stage.behind() as sessions:
        seqs = [event.seq for event in await sessions.events(stage.session_id, run_id=run.run_id, limit=500)]
    return next((pid for pid, part in lives if seqs and all(seq in part for seq in seqs)), "more than one")


def _packages() -> str:
    wheels = os.environ.get("SATCHEL_DEMO_WHEELS")
    if wheels and Path(wheels).is_dir():
        return f"packages will come from {wheels}, without network"
    return "packages will come from the index that pip is configured for (SATCHEL_DEMO_WHEELS names no folder)"


def _installed(project: Path) -> list[str]:
    return sorted(path.name for path in project.glob(".venv/lib/python*/site-packages/requests"))


async def _run(project: Path, *arguments: str) -> tuple[int | None, str, str]:
    """The project's own interpreter: its exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(str(project / ".venv" / "bin" / "python3"), *arguments),
        cwd=project,
        env=clean_environment(project, os.environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), OWN_LOOK)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace") or "(nothing)"
