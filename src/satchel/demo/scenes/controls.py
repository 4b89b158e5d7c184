"""Scene 4: what must not happen, tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import httpx

from satchel import SatchelError, Session, VersionConflict
from satchel.demo.checks import parts_found
from satchel.demo.keys import BOB, DESK
from satchel.demo.process import ServerProcess
from satchel.demo.scenes.evidence import first_answer, gapless
from satchel.demo.scenes.repair import GO_ON
from satchel.demo.stage import UNHURRIED, Stage
from satchel.demo.stream import decoded

TITLE = "Controls: what must not happen, tried"
CLOSED = "scene 4, after the close"  # an interlude
EACH = 40  # messages of each writer


async def play(stage: Stage) -> None:
    stage.begin(4, TITLE)
    first = await stage.serve()
    second = await stage.serve(also=True)
    await _no_key(stage)
    await _fresh_session(stage)
    await _two_writers(stage, first, second)
    await _retry(stage)
    await _stale_version(stage)
    await _closed_session(stage)
    await _stranger(stage)


async def _no_key(stage: Stage) -> None:
    stage.show.note("somebody without a key, and somebody with a key of nobody's")
    without = await stage.ask("GET", "/v1/sessions", caller=None)
    wrong = await stage.ask("GET", "/v1/sessions", caller=None, headers={"Authorization": f"Bearer {'x' * 40}"})
    stage.check(
        "both are told nothing but to say who they are",
        expected=[[401, "unauthenticated"]] * 2,
        found=[_problem(answer) for answer in (without, wrong)],
    )


async def _fresh_session(stage: Stage) -> None:
    stage.show.note("a fresh session: there is nothing to continue")
    await stage.new_session("新会话")
    stage.workplace(Path.mkdir)
    session = await stage.talk(stage.follow(), GO_ON, meaning="Go on with the task")
    answer = first_answer(session, number=1)
    parts = ["不知道要继续什么"]
    stage.check(
        "in a fresh session the agent does not know what to continue",
        expected=parts,
        found=parts_found(answer, parts),
    )
    elsewhere = ["Flask", "requests", "收入", "migrate"]
    stage.check("and names nothing of Ada's other sessions", expected=[], found=parts_found(answer, elsewhere))
    stage.check("and calls no tool", expected=0, found=session.tool_call_count)


async def _two_writers(stage: Stage, first: ServerProcess, second: ServerProcess) -> None:
    stage.show.note(f"through two server processes, {EACH} messages each go into one session at the same time")
    session_id = await stage.new_session("两个进程同时写")
    with stage.show.waiting("two processes write"):
        async with asyncio.timeout(UNHURRIED):
            await asyncio.gather(_write(stage, first, "A"), _write(stage, second, "B"))
    async with stage.behind() as sessions:
        log = (await sessions.events(session_id, limit=500)).items
    written = [str(event.data["content"]) for event in log]
    for name in ("A", "B"):
        mine = [int(text.split()[1]) for text in written if text.startswith(f"{name} ")]
        stage.check(f"all messages of {name} are there, in its order", expected=f"1 to {EACH}", found=gapless(mine))
    stage.check(
        "both stand in one order without a gap", expected=f"1 to {2 * EACH}", found=gapless([e.seq for e in log])
    )
    stage.check("each accepted message is a version", expected=2 * EACH, found=(await stage.read()).version)
    spans = {name: [at for at, text in enumerate(written) if text.startswith(name)] for name in ("A", "B")}
    overlap = max(span[0] for span in spans.values()) < min(span[-1] for span in spans.values())
    stage.check("they did write at the same time: one began before the other ended", expected=True, found=overlap)


async def _write(stage: Stage, server: ServerProcess, name: str) -> None:
    """One commit for each message. After the first it waits until somebody else has written too, so that both write at the
    same time however slow the machine is."""
    async with stage.sessions(DESK, at=server) as sessions:
        for number in range(1, EACH + 1):
            await sessions.append_message(stage.session_id, {"role": "assistant", "content": f"{name} {number}"})
            if number == 1:
                async for event in sessions.follow(stage.session_id, after=0):
                    if not event.data["content"].startswith(f"{name} "):
                        break


async def _retry(stage: Stage) -> None:
    stage.show.note("Ada's first answer is lost on its way: she sends the same message again, with the same key")
    session_id = await stage.new_session("重试")
    path = f"/v1/sessions/{session_id}/messages"
    key = {"Idempotency-Key": '"order-1"'}
    sent = await stage.ask("POST", path, headers=key, body={"content": "下单一次"})
    again = await stage.ask("POST", path, headers=key, body={"content": "下单一次"})
    stage.check(
        "the retry returns the first answer, byte by byte, and says so",
        expected=[201, sent.text, "true"],
        found=[again.status_code, again.text, again.headers.get("Idempotent-Replayed")],
    )
    session = await stage.read()
    stage.check(
        "which names the message that the store holds",
        expected=[message.message_id for message in session.messages],
        found=[decoded(sent)["message_id"]],
    )
    stage.check("the message is stored once", expected=1, found=session.message_count)
    other = await stage.ask("POST", path, headers=key, body={"content": "下单两次"})
    stage.check(
        "the same key with other words is refused", expected=[422, "idempotency_mismatch"], found=_problem(other)
    )


async def _stale_version(stage: Stage) -> None:
    stage.show.note("two editors read the same version of the working memory, and both change it")
    session_id = await stage.new_session("版本冲突")
    async with stage.sessions(DESK) as one, stage.sessions(DESK) as other:
        seen = (await one.get_working_memory(session_id)).version
        accepted = await one.update_working_memory(session_id, {"set": {"goal": "修复登录"}}, expected_version=seen)
        try:
            await other.update_working_memory(session_id, {"set": {"next_action": "先看日志"}}, expected_version=seen)
            conflict = "accepted"
        except VersionConflict as refused:
            conflict = f"{refused.code}: expected {refused.expected}, current {refused.current}, changed {', '.join(refused.changed)}"
    stage.check(
        "the second, stale, gets the conflict",
        expected=f"version_conflict: expected {seen}, current {accepted.version}, changed working_memory",
        found=conflict,
    )
    stage.check("and nothing of it is stored", expected=["修复登录", ""], found=await _goal_and_next(stage))
    path = f"/v1/sessions/{session_id}/working-memory"
    stale = await stage.ask(
        "PATCH", path, caller=DESK, headers={"If-Match": f'"v{seen}"'}, body={"set": {"next_action": "先看日志"}}
    )
    stage.check("a stale If-Match fails its condition", expected=[412, "version_conflict"], found=_problem(stale))
    async with stage.sessions(DESK) as other:
        current = await other.get_working_memory(session_id)
        await other.update_working_memory(
            session_id, {"set": {"next_action": "先看日志"}}, expected_version=current.version
        )
    stage.check(
        "after reading again it merges: both changes stand",
        expected=["修复登录", "先看日志"],
        found=await _goal_and_next(stage),
    )


async def _closed_session(stage: Stage) -> None:
    session_id = await stage.new_session("已关闭")
    async with stage.sessions() as sessions:
        await sessions.append_message(session_id, {"role": "user", "content": "先到这里"})
        await sessions.close_session(session_id)
    await stage.interlude(CLOSED)
    before = await stage.read()
    async with stage.sessions() as sessions:
        refusal = await _refusal(sessions.append_message(session_id, {"role": "user", "content": "还有一件事"}))
    stage.check("a write to a closed session is refused", expected="session_closed", found=refusal)
    stage.check(
        "and its history is as it was, and readable", expected=_counts(before), found=_counts(await stage.read())
    )


async def _stranger(stage: Stage) -> None:
    before = await stage.read()
    async with stage.sessions(BOB) as sessions:
        read = await _refusal(sessions.get_session(stage.session_id))
        unknown = await _refusal(sessions.get_session("sess_of_nobody"))
        written = await _refusal(sessions.append_message(stage.session_id, {"role": "user", "content": "是我"}))
        listed = len(await sessions.list_sessions())
    stage.check(
        "Bob, who has the id, does not find Ada's session: read, write, and an id of nobody look alike",
        expected=["session_not_found"] * 3,
        found=[read, written, unknown],
    )
    nobodys = await _as_bob(stage, "sess_" + "a" * 24)
    adas = await _as_bob(stage, stage.session_id)
    stage.check("to the byte: status, headers, body", expected=nobodys, found=adas)
    stage.check("and it is a 404", expected=404, found=adas[0])
    stage.check("Bob's list is empty", expected=0, found=listed)
    stage.check("Bob changed nothing", expected=_counts(before), found=_counts(await stage.read()))


async def _as_bob(stage: Stage, session_id: str) -> list[Any]:
    """All of the answer to a read by Bob, but for its date and how often he may still ask."""
    answer = await stage.ask("GET", f"/v1/sessions/{session_id}", caller=BOB, headers={"X-Request-Id": "bob-asks"})
    kept = sorted(f"{name}: {value}" for name, value in answer.headers.items() if name not in ("date", "ratelimit"))
    return [answer.status_code, "; ".join(kept), answer.text]


async def _goal_and_next(stage: Stage) -> list[str]:
    memory = (await stage.read()).working_memory
    assert memory is not None
    return [memory.goal, memory.next_action]


def _counts(session: Session) -> list[str | int]:
    return [session.status, session.version, session.message_count]


async def _refusal(call: Awaitable[object]) -> str:
    """The code of the error, or that there was none."""
    try:
        await call
    except SatchelError as error:
        return error.code
    return "accepted"


def _problem(answer: httpx.Response) -> list[Any]:
    """The status and the code of a problem."""
    return [answer.status_code, decoded(answer).get("code")]
