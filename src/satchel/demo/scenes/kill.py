"""Scene 2: the server is killed while its tool runs. Nobody can know what the command did, and nobody claims to."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import httpx

from satchel.demo.checks import parts_found
from satchel.demo.process import ServerEnded
from satchel.demo.scenes.evidence import check_stream, first_answer
from satchel.demo.scenes.repair import GO_ON
from satchel.demo.stage import Stage
from satchel.demo.story import call_line
from satchel.demo.stream import decoded

TITLE = "The hard kill: the server dies while its agent's tool runs"
KILLED = "scene 2, after the kill"  # an interlude
LEASE = 3.0  # seconds; 30 unless said: only so that the demo need not wait half a minute for the dead process's lease

ASKED = "执行命令:sh migrate.sh"
COMMAND = "run_shell sh migrate.sh"
KEY = "migrate-1"
SCRIPT = """\
# Takes half a minute, and has an effect at its beginning and another at its end.
echo "started $$" >> migrate.log
sleep 30
echo "finished" >> migrate.log
"""
PATIENCE = 60.0  # seconds


async def play(stage: Stage) -> None:
    stage.begin(2, TITLE)
    first = await stage.serve(lease=LEASE)
    await stage.new_session("数据迁移")
    folder = stage.workplace(_build)
    log = folder / "migrate.log"
    stream = stage.follow()
    stage.show.meanings[ASKED] = "Run the command sh migrate.sh"
    asking = asyncio.create_task(stage.say(ASKED, key=KEY, wait=PATIENCE))
    try:
        with stage.show.waiting("the agent works"):
            shell = await _started(log, asking)
        running = await stage.read()
        await stream.reached(running.last_seq)
        await stage.stand_by()
    finally:
        _, status = await stage.kill()
        cut = await _end_of(asking)
    stage.show.note(f"it died while the command ran (shell {shell})")
    stage.check("the operating system ended the server by SIGKILL", expected=-9, found=status)
    stage.check(
        "at that moment the call was open, in the store",
        expected=[COMMAND, "started", "RUNNING"],
        found=[
            part
            for call, run in zip(running.tool_history, running.runs, strict=False)
            for part in (call_line(call.tool, call.arguments), call.status, run.status)
        ],
    )
    stage.check("on disk, the command began and did not finish", expected=f"started {shell}", found=_text(log))
    stage.check("its shell died with the agent", expected="gone", found=await _fate(shell))
    await stage.interlude(KILLED)

    await stage.go_on(first)
    stage.check("Ada's request, which waited for the answer, was cut", expected="cut", found=cut)
    again = await stage.say(ASKED, key=KEY)
    stage.check(
        "she sends it again with the same key: it is known, and its run is the one that the store holds",
        expected=["true", running.runs[0].run_id],
        found=[again.headers.get("Idempotent-Replayed"), decoded(again)["run"]["run_id"]],
    )
    stage.show.note(
        f"the dead process's lease ends {LEASE:.0f} s after its last renewal (30 s unless set): the next run waits"
    )
    after = await stage.talk(stream, GO_ON, meaning="Go on with the task")
    lost, next_run = (after.runs[index] if len(after.runs) > index else None for index in (0, 1))
    stage.show.runs(after.runs)
    call = after.tool_history[0]
    stage.check(
        "the call stands as unknown, ok is neither true nor false",
        expected=["unknown", None],
        found=[call.status, call.ok],
    )
    stage.check(
        "its run failed, because its worker was lost",
        expected=["FAILED", "worker_lost"],
        found=None if lost is None else [lost.status, lost.error.code if lost.error is not None else None],
    )
    stage.check("the session is still open", expected="ACTIVE", found=after.status)
    stage.check("the next run completed", expected="COMPLETED", found=None if next_run is None else next_run.status)
    parts = ["sh migrate.sh", "结果未知", "没有重做"]
    stage.check(
        "the next answer says that the command's outcome is not known",
        expected=parts,
        found=parts_found(first_answer(after, number=2), parts),
    )
    stage.check("the command was not run again: calls", expected=1, found=len(after.tool_history))
    stage.check("nor on disk", expected=f"started {shell}", found=_text(log))
    said = [message.content for message in after.messages if message.role == "user"]
    stage.check("what Ada said stands there once", expected=[ASKED, GO_ON], found=said)
    await check_stream(stage, stream, cut_after=running.last_seq)


def _build(workplace: Path) -> None:
    workplace.mkdir()
    (workplace / "migrate.sh").write_text(SCRIPT, encoding="utf-8")


async def _end_of(asking: asyncio.Task[httpx.Response]) -> str:
    try:
        return f"answered {(await asking).status_code}"
    except httpx.TransportError:
        return "cut"


async def _started(log: Path, asking: asyncio.Task[httpx.Response]) -> int:
    """The process id that the command wrote when it began. Raises what ended the request before."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up and not asking.done():
        words = _text(log).split()
        if len(words) == 2:
            return int(words[1])
        await asyncio.sleep(0.02)
    if asking.done():
        asking.result()
    raise ServerEnded("the agent did not run the command")


async def _fate(process: int) -> str:
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        if not _is_alive(process):
            return "gone"
        await asyncio.sleep(0.02)
    return "alive"


def _is_alive(process: int) -> bool:
    """A zombie, which only waits for its parent, is dead."""
    try:
        os.kill(process, 0)
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (ProcessLookupError, PermissionError):  # the latter: by now it is somebody else's number
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    return state != "Z"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""
