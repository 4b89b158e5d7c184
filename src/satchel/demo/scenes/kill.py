"""Scene 2: the process is killed while its tool runs. Nobody can know what the command did, and nobody claims to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

from satchel.demo.checks import parts_found
from satchel.demo.process import ProcessEnded
from satchel.demo.scenes.evidence import first_answer
from satchel.demo.scenes.repair import GO_ON
from satchel.demo.stage import Stage
from satchel.demo.story import call_line

TITLE = "The hard kill: the process dies while its tool runs"
KILLED = "scene 2, after the kill"  # an interlude
LEASE = 3.0  # seconds; 30 unless said: only so that the demo need not wait half a minute for the dead process's lease

ASKED = "执行命令:sh migrate.sh"
COMMAND = "run_shell sh migrate.sh"
SCRIPT = """\
# Takes half a minute, and has an effect at its beginning and another at its end.
echo "started $$" >> migrate.log
sleep 30
echo "finished" >> migrate.log
"""
PATIENCE = 60.0  # seconds


async def play(stage: Stage) -> None:
    stage.begin(2, TITLE)
    folder = stage.folder / "service"
    folder.mkdir()
    (folder / "migrate.sh").write_text(SCRIPT, encoding="utf-8")
    log = folder / "migrate.log"
    await stage.new_session("数据迁移")
    first = await stage.start_agent("coding", folder)
    stage.show.meanings[ASKED] = "Run the command sh migrate.sh"
    async with stage.telling():
        first.send(do="answer", session_id=stage.session_id, text=ASKED, lease=LEASE)
        answering = asyncio.create_task(first.done())
        try:
            shell = await _started(log, answering)
            running = await stage.read()
        finally:
            status = await first.kill()
            with contextlib.suppress(ProcessEnded):  # we are the cause
                await answering
    stage.show.note(f"agent process {first.pid} killed with SIGKILL while the command ran (shell {shell})")
    stage.check("the operating system ended the process by SIGKILL", expected=-9, found=status)
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

    second = await stage.start_agent("coding", folder)
    stage.show.note(
        f"the dead process's lease ends {LEASE:.0f} s after its last renewal (30 s unless set): the next run waits"
    )
    after = await stage.talk(second, GO_ON, meaning="Go on with the task", lease=LEASE)
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


async def _started(log: Path, answering: asyncio.Task[None]) -> int:
    """The process id that the command wrote when it began. Raises what ended the answer before."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up and not answering.done():
        words = _text(log).split()
        if len(words) == 2:
            return int(words[1])
        await asyncio.sleep(0.02)
    if answering.done():
        answering.result()
    raise ProcessEnded("the agent did not run the command")


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
