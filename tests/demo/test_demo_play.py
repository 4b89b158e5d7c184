"""Promises of the demo as a whole: it passes as it is, and it fails when something was lost."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import satchel
from satchel import Principal, SessionManager
from satchel.demo.keys import DESK
from satchel.demo.play import run_demo
from satchel.demo.process import ServerEnded, ServerProcess
from satchel.demo.scenes import SCENES, controls, data, kill, repair
from satchel.demo.stage import Stage
from satchel.http.keys import KeyRing
from tests.servers.postgres import new_database

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
    assert document["store"] == f"sqlite:///{document['database']}"
    assert own_children() == before
    log = (tmp_path / "demo" / "server.log").read_text()
    requests = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert {"/v1/chat", "/v1/sessions/{session_id}/events"} <= {request.get("route") for request in requests}
    assert "帮我" not in log


@pytest.mark.parametrize("scenes", [{3, 4}, pytest.param({1, 2, 3, 4}, marks=[needs_wheels, pytest.mark.full])])
def test_what_was_lost_from_the_store_fails_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scenes: set[int]
) -> None:
    async def is_left_out(stage: Stage) -> None:
        pass

    played = [play if number in scenes else is_left_out for number, play in enumerate(SCENES, start=1)]
    monkeypatch.setattr("satchel.demo.play.SCENES", played)

    async def lose_the_next_action(stage: Stage) -> None:
        async with stage.behind(DESK) as sessions:
            session = await sessions.restore_session(stage.session_id)
            await sessions.update_working_memory(
                session.session_id, {"clear": ["next_action"]}, expected_version=session.version
            )
            await sessions.close_session(session.session_id)

    async def lose_the_open_call(stage: Stage) -> None:
        async with stage.behind(DESK) as sessions:
            await sessions.close_session(stage.session_id)
            await sessions.restore_session(stage.session_id)

    async def lose_the_media(stage: Stage) -> None:
        async with stage.behind(DESK) as sessions:
            await sessions.update_working_memory(stage.session_id, {"remove": {"completed": "media_B 是主要异常来源"}})

    async def open_again(stage: Stage) -> None:
        async with stage.behind() as sessions:
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
    if {1, 2} <= scenes:
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


@needs_wheels
@pytest.mark.full
@pytest.mark.timeout(300)
def test_on_postgresql_two_servers_share_the_store_and_nothing_of_the_demo_is_left_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = new_database()
    assert run_demo(folder=tmp_path / "demo", json=True, store=url.replace("satchel@", "satchel:secret@")) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["passed"] is True
    assert document["database"] is None
    assert "secret" not in printed.out + printed.err

    async def left() -> tuple[int, int]:
        async with satchel.open(url) as store:
            sessions = SessionManager(store, Principal.operator(tenant_id="demo"))
            return len(await sessions.list_sessions()), len(await KeyRing(store).kept())

    assert asyncio.run(left()) == (0, 0)


# The server's process


async def start(folder: Path, *, store: str | None = None) -> ServerProcess:
    return await ServerProcess.start(
        store=store or f"sqlite:///{folder / 'demo.db'}", workplaces=folder / "w", log=folder / "log", lease=30
    )


async def test_a_server_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, signal, sys, pathlib\n"
        "from satchel.demo.process import ServerProcess\n"
        "async def main():\n"
        "    folder = pathlib.Path(sys.argv[1])\n"
        "    server = await ServerProcess.start(\n"
        "        store='sqlite:///' + str(folder / 'a.db'), workplaces=folder, log=folder / 'log', lease=30)\n"
        "    print(server.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    starter = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await starter.communicate()
    pid = int(out)
    async with asyncio.timeout(20):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110  # the system tells of a process that is not our child to nobody else
            await asyncio.sleep(0.02)


async def test_a_server_heeds_no_settings_of_others_and_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SATCHEL_PORT", "1")
    monkeypatch.setenv("SATCHEL_STORE", "sqlite:////nowhere/at.all")
    server = await start(tmp_path)
    assert (tmp_path / "demo.db").is_file()
    await server.end()
    assert not server.is_alive
    await server.end()


async def test_a_server_that_does_not_start_says_its_last_words(tmp_path: Path) -> None:
    before = own_children()
    with pytest.raises(ServerEnded, match="nowhere"):
        await start(tmp_path, store="nowhere:")
    assert own_children() == before
