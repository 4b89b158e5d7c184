"""Scene 4: what must not happen, tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from satchel import SatchelError, Session, VersionConflict
from satchel.demo.checks import parts_found
from satchel.demo.process import AgentProcess
from satchel.demo.scenes.evidence import first_answer, gapless
from satchel.demo.scenes.repair import GO_ON
from satchel.demo.stage import BOB, DESK, UNHURRIED, Stage

TITLE = "Controls: what must not happen, tried"
CLOSED = "scene 4, after the close"  # an interlude
EACH = 40  # messages of each writer


async def play(stage: Stage) -> None:
    stage.begin(4, TITLE)
    folder = stage.folder / "service"
    folder.mkdir(exist_ok=True)
    first, second = await asyncio.gather(stage.start_agent("coding", folder), stage.start_agent("coding", folder))
    await _fresh_session(stage, first)
    await _two_writers(stage, first, second)
    await _retry(stage)
    await _stale_version(stage)
    await _closed_session(stage)
    await _stranger(stage)


async def _fresh_session(stage: Stage, agent: AgentProcess) -> None:
    stage.show.note("a fresh session: there is nothing to continue")
    await stage.new_session("新会话")
    session = await stage.talk(agent, GO_ON, meaning="Go on with the task")
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


async def _two_writers(stage: Stage, first: AgentProcess, second: AgentProcess) -> None:
    stage.show.note(f"two processes write {EACH} messages each into one session at the same time")
    session_id = await stage.new_session("两个进程同时写")
    with stage.show.waiting("two processes write"):
        async with asyncio.timeout(UNHURRIED):
            await asyncio.gather(
                first.ask(do="write", session_id=session_id, name="A", count=EACH),
                second.ask(do="write", session_id=session_id, name="B", count=EACH),
            )
    async with stage.sessions() as sessions:
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


async def _retry(stage: Stage) -> None:
    stage.show.note("Ada's first answer is lost on its way: she sends the same message again, with the same key")
    session_id = await stage.new_session("重试")
    message = {"role": "user", "content": "下单一次"}
    async with stage.sessions() as sessions:
        sent = await sessions.append_message(session_id, message, idempotency_key="order-1")
    async with stage.sessions() as sessions:
        again = await sessions.append_message(session_id, message, idempotency_key="order-1")
    stage.check(
        "the retry returns the first answer",
        expected=[sent.message_id, sent.version, "replayed"],
        found=[again.message_id, again.version, "replayed" if again.replayed else "new"],
    )
    stage.check("the message is stored once", expected=1, found=(await stage.read()).message_count)


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
    stage.check("Bob's list is empty", expected=0, found=listed)
    stage.check("Bob changed nothing", expected=_counts(before), found=_counts(await stage.read()))


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
