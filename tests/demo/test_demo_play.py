"""Promises of the demo as a whole: it passes as it is, and it fails when something was lost."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import satchel
from satchel import Principal, SessionManager
from satchel.demo.play import run_demo
from satchel.demo.process import AgentProcess, ProcessEnded
from satchel.demo.scenes import controls, data, kill, repair
from satchel.demo.stage import DESK, Stage

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("demo")]

needs_wheels = pytest.mark.skipif(
    not Path(os.environ.get("SATCHEL_DEMO_WHEELS") or "/absent").is_dir(),
    reason="needs SATCHEL_DEMO_WHEELS: a folder made by `pip download flask requests -d FOLDER` (`make test` prepares it)",
)


def own_children() -> list[str]:
    return [
        " ".join(child.cmdline()) for child in psutil.Process().children(recursive=True) if child.status() != "zombie"
    ]


def failed(document: dict[str, Any], scene: int) -> list[str]:
    return [check["name"] for check in document["checks"] if check["scene"] == scene and not check["ok"]]


@needs_wheels
def test_the_demo_plays_all_scenes_and_every_check_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = own_children()
    code = run_demo(folder=tmp_path / "demo", json=True, keep=True)
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert [check for check in document["checks"] if not check["ok"]] == []
    assert code == 0
    assert document["passed"] is True
    assert document["counts"] == {"checks": len(document["checks"]), "passed": len(document["checks"]), "failed": 0}
    assert {check["scene"] for check in document["checks"]} == {1, 2, 3, 4}
    assert "帮我修复这个 Flask 项目启动失败问题。" in printed.err  # the story is told beside the document
    assert Path(document["database"]).is_file()
    assert own_children() == before


@needs_wheels
def test_what_was_lost_from_the_store_fails_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def lose_the_next_action(stage: Stage) -> None:
        async with stage.sessions(DESK) as sessions:
            session = await sessions.restore_session(stage.session_id)
            await sessions.update_working_memory(
                session.session_id, {"clear": ["next_action"]}, expected_version=session.version
            )
            await sessions.close_session(session.session_id)

    async def lose_the_open_call(stage: Stage) -> None:
        async with stage.sessions(DESK) as sessions:
            await sessions.close_session(stage.session_id)
            await sessions.restore_session(stage.session_id)

    async def lose_the_media(stage: Stage) -> None:
        async with stage.sessions(DESK) as sessions:
            await sessions.update_working_memory(stage.session_id, {"remove": {"completed": "media_B 是主要异常来源"}})

    async def open_again(stage: Stage) -> None:
        async with stage.sessions() as sessions:
            await sessions.restore_session(stage.session_id)

    interludes = {
        repair.KILLED: lose_the_next_action,
        kill.KILLED: lose_the_open_call,
        data.DRILLED: lose_the_media,
        controls.CLOSED: open_again,
    }
    code = run_demo(folder=tmp_path / "demo", json=True, interludes=interludes)
    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert document["passed"] is False
    assert document["counts"]["failed"] == sum(not check["ok"] for check in document["checks"])
    assert "the answer names them as memory held them before the kill" in failed(document, 1)
    assert "on disk, run 2 repaired requirements.txt" in failed(document, 1)
    assert "its run failed, because its worker was lost" in failed(document, 2)
    assert "answer 3 names the position that lost most, in the media that run 2 found" in failed(document, 3)
    assert "a write to a closed session is refused" in failed(document, 4)
    assert document["database"] is None
    assert not (tmp_path / "demo").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert run_demo(folder=tmp_path) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert run_demo(folder=tmp_path / "mine.txt") == 2


def test_a_scene_that_breaks_is_a_failed_check_and_the_others_still_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[int] = []

    async def breaks(stage: Stage) -> None:
        played.append(1)
        raise RuntimeError("the stage collapsed")

    async def plays(stage: Stage) -> None:
        played.append(2)

    monkeypatch.setattr("satchel.demo.play.SCENES", (breaks, plays))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert run_demo(folder=tmp_path / "demo") == 1
    assert played == [1, 2]
    assert "the stage collapsed" in printed.getvalue()
    assert "0 of 1 checks passed" in printed.getvalue()


# The agent's process


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise TimeoutError


async def start(folder: Path) -> tuple[AgentProcess, str]:
    url = f"sqlite:///{folder / 'agent.db'}"
    async with satchel.open(url) as store:
        sessions = SessionManager(store, Principal.user("ada", tenant_id="acme"))
        session_id = (await sessions.create_session()).session_id
    process = await AgentProcess.start(
        store=url, agent="coding", workplace=folder, tenant="acme", user="ada", log=folder / "log"
    )
    return process, session_id


async def test_an_agent_process_ends_with_whoever_started_it_and_so_does_its_tool(tmp_path: Path) -> None:
    process, session_id = await start(tmp_path)
    process.send(do="answer", session_id=session_id, text="执行命令:echo $$ > shell.pid; sleep 300", lease=30.0)
    number = tmp_path / "shell.pid"
    await until(lambda: number.exists() and bool(number.read_text().strip()))
    shell = psutil.Process(int(number.read_text()))
    await process.end()  # closes its stdin, as the death of the starter does
    await until(lambda: not shell.is_running() or shell.status() == "zombie")
    async with satchel.open(f"sqlite:///{tmp_path / 'agent.db'}") as store:
        sessions = SessionManager(store, Principal.user("ada", tenant_id="acme"))
        session = await sessions.get_session(session_id)
    assert [run.status for run in session.runs] == ["CANCELLED"]
    assert [call.status for call in session.tool_history] == ["cancelled"]


async def test_what_the_store_refuses_to_an_agent_process_is_heard(tmp_path: Path) -> None:
    process, _ = await start(tmp_path)
    try:
        with pytest.raises(ProcessEnded, match="session_not_found"):
            await process.ask(do="answer", session_id="sess_of_nobody", text="继续", lease=30.0)
    finally:
        await process.end()


async def test_an_agent_process_that_breaks_says_its_last_words(tmp_path: Path) -> None:
    process, _ = await start(tmp_path)
    with pytest.raises(ProcessEnded, match="unknown request 'dance'"):
        await process.ask(do="dance")
    await process.end()
