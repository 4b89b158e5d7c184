"""What a service refuses is raised as the very error that a manager on the store raises, with its fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from satchel import Attempt, OpenStore, Policy, RunManager, SatchelError, SessionManager, errors
from satchel.client.connection import Connection
from satchel.testing.stage import ADAS_AGENT, said


class At(msgspec.Struct, frozen=True):
    """Two managers, and a session of their own."""

    sessions: SessionManager
    runs: RunManager
    sid: str


async def _ended_call(sessions: SessionManager, sid: str) -> int:
    return (await sessions.append_tool_history(sid, {"tool": "t"}, idempotency_key="ended")).seq


async def _labelled(sessions: SessionManager, sid: str) -> None:
    await sessions.start_tool_call(sid, "t", tool_call_id="c", idempotency_key="first")
    await sessions.start_tool_call(sid, "t", tool_call_id="c")


async def _two_runs(runs: RunManager, sid: str) -> None:
    await runs.add_run(sid, idempotency_key="one")
    await runs.add_run(sid)


async def _completed(runs: RunManager, sid: str) -> None:
    run = await runs.add_run(sid, start=True, idempotency_key="done")
    attempt = Attempt(run.run_id, 1)
    await runs.complete_run(sid, attempt, idempotency_key="end")
    await runs.cancel_run(sid, run.run_id)


async def _other_question(runs: RunManager, sid: str) -> None:
    run = await runs.add_run(sid, start=True, idempotency_key="asks")
    attempt = Attempt(run.run_id, 1)
    await runs.ask_question(sid, attempt, "q", "?", schema={"type": "boolean"}, idempotency_key="q")
    await runs.answer_run(sid, run.run_id, True, name="another")


async def _wrong_answer(runs: RunManager, sid: str) -> None:
    run = await runs.add_run(sid, start=True, idempotency_key="asks")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    await runs.ask_question(sid, Attempt(run.run_id, 1), "q", "?", schema=schema, idempotency_key="q")
    await runs.answer_run(sid, run.run_id, {"n": "x"})


async def _gap(runs: RunManager, sid: str) -> None:
    run = await runs.add_run(sid, start=True, idempotency_key="says")
    await runs.add_text(sid, Attempt(run.run_id, 1), "late", message=1, offset=7)


async def _many_streams(runs: RunManager, sid: str) -> None:
    run = await runs.add_run(sid, start=True, idempotency_key="much")
    for message in range(1, 10):
        await runs.add_text(sid, Attempt(run.run_id, 1), "x", message=message, offset=0)


async def _full_memory(sessions: SessionManager, sid: str) -> None:
    await sessions.update_working_memory(sid, {"append": {"plan": "x" * 40_000}}, idempotency_key="half")
    await sessions.update_working_memory(sid, {"append": {"plan": "y" * 40_000}})


async def _never_restored(sessions: SessionManager, sid: str) -> None:
    made = await sessions.create_session(policy=Policy(restore_closed="never"), idempotency_key="never")
    await sessions.close_session(made.session_id)
    await sessions.restore_session(made.session_id)


async def _deleted(sessions: SessionManager, sid: str) -> None:
    made = await sessions.create_session(idempotency_key="short")
    await sessions.delete_session(made.session_id)
    await sessions.get_session(made.session_id)


async def _closed(sessions: SessionManager, sid: str) -> None:
    made = await sessions.create_session(idempotency_key="closed")
    await sessions.close_session(made.session_id)
    await sessions.append_message(made.session_id, said("x"))


async def _mismatch(sessions: SessionManager, sid: str) -> None:
    await sessions.append_message(sid, said("x"), idempotency_key="k")
    await sessions.append_message(sid, said("y"), idempotency_key="k")


async def _exists(sessions: SessionManager) -> None:
    await sessions.create_session(external_id="same", idempotency_key="x")
    await sessions.create_session(external_id="same", if_exists="raise")


REFUSED: dict[str, tuple[type[SatchelError], Callable[[At], Awaitable[Any]]]] = {
    "unknown session": (errors.SessionNotFound, lambda at: at.sessions.get_session("sess_unknown")),
    "impossible id": (errors.SessionNotFound, lambda at: at.sessions.get_session("a/../b?c#d é")),
    "an id that is none": (errors.InvalidInput, lambda at: at.sessions.get_session(3)),  # type: ignore[arg-type]  # on purpose
    "unknown run": (errors.RunNotFound, lambda at: at.runs.get_run(at.sid, "run_unknown")),
    "impossible run": (errors.RunNotFound, lambda at: at.runs.get_run(at.sid, "a/b")),
    "unknown message": (errors.MessageNotFound, lambda at: at.sessions.retract_message(at.sid, 99)),
    "unknown call": (errors.ToolCallNotFound, lambda at: at.sessions.finish_tool_call(at.sid, 99)),
    "version": (errors.VersionConflict, lambda at: at.sessions.append_message(at.sid, said("x"), expected_version=7)),
    "version of memory": (
        errors.VersionRequired,
        lambda at: at.sessions.update_working_memory(at.sid, {"set": {"goal": "g"}}),
    ),
    "role": (errors.NotAllowed, lambda at: at.sessions.append_message(at.sid, said("x", "system"))),
    "no message": (errors.InvalidInput, lambda at: at.sessions.append_message(at.sid, {"role": "user"})),
    "no role": (errors.InvalidInput, lambda at: at.sessions.append_message(at.sid, '{"content":"x"}')),
    "NaN": (errors.InvalidInput, lambda at: at.sessions.append_message(at.sid, said(float("nan")))),
    "too large": (errors.LimitExceeded, lambda at: at.sessions.update_session(at.sid, metadata={"k": "x" * 20_000})),
    "too many": (errors.LimitExceeded, lambda at: at.sessions.append_messages(at.sid, [said("x")] * 101)),
    "limit": (errors.InvalidInput, lambda at: at.sessions.messages(at.sid, limit=1_001)),
    "cursor": (errors.InvalidCursor, lambda at: at.sessions.messages(at.sid, cursor="abc")),
    "ended call": (
        errors.ToolCallEnded,
        lambda at: _then(_ended_call(at.sessions, at.sid), lambda seq: at.sessions.finish_tool_call(at.sid, seq)),
    ),
    "open call": (errors.ToolCallOpen, lambda at: _labelled(at.sessions, at.sid)),
    "busy": (errors.RunActive, lambda at: _two_runs(at.runs, at.sid)),
    "completed": (errors.IllegalTransition, lambda at: _completed(at.runs, at.sid)),
    "fenced": (
        errors.RunFenced,
        lambda at: at.sessions.append_message(at.sid, said("x", "assistant"), attempt=Attempt("run_x", 3)),
    ),
    "other question": (errors.OtherQuestion, lambda at: _other_question(at.runs, at.sid)),
    "wrong answer": (errors.InvalidInput, lambda at: _wrong_answer(at.runs, at.sid)),
    "gap": (errors.StreamGap, lambda at: _gap(at.runs, at.sid)),
    "many streams": (errors.LimitExceeded, lambda at: _many_streams(at.runs, at.sid)),
    "full memory": (errors.LimitExceeded, lambda at: _full_memory(at.sessions, at.sid)),
    "restore": (errors.RestoreRefused, lambda at: _never_restored(at.sessions, at.sid)),
    "deleted": (errors.SessionDeleted, lambda at: _deleted(at.sessions, at.sid)),
    "closed": (errors.SessionClosed, lambda at: _closed(at.sessions, at.sid)),
    "key": (errors.IdempotencyMismatch, lambda at: _mismatch(at.sessions, at.sid)),
    "bad key": (errors.InvalidInput, lambda at: at.sessions.append_message(at.sid, said("x"), idempotency_key="a b")),
    "exists": (errors.SessionExists, lambda at: _exists(at.sessions)),
    "expire": (errors.NotAllowed, lambda at: at.sessions.expire_session(at.sid)),
    "policy": (errors.InvalidInput, lambda at: at.sessions.create_session(policy=Policy(context_share=2.0))),
    "others' user": (errors.NotAllowed, lambda at: at.sessions.create_session(user_id="bob")),
}


async def _then(first: Awaitable[int], second: Callable[[int], Awaitable[Any]]) -> None:
    await second(await first)


@pytest.mark.parametrize("name", REFUSED)
async def test_an_error_is_the_very_error_of_the_library(store: OpenStore, client: Connection, name: str) -> None:
    own, own_runs = SessionManager(store, ADAS_AGENT), RunManager(store, ADAS_AGENT)
    sid = (await own.create_session()).session_id
    other = (await own.create_session()).session_id
    expected, refused = REFUSED[name]
    met: list[SatchelError] = []
    for at in (At(own, own_runs, sid), At(client.sessions, client.runs, other)):
        with pytest.raises(SatchelError) as caught:
            await refused(at)
        met.append(caught.value)
    assert [type(error) for error in met] == [expected, expected]
    drawn = ("run_id", "session_id")  # of two sessions
    facts = [{key: value for key, value in vars(error).items() if key not in drawn} for error in met]
    assert facts[0] == facts[1]
    if not any(hasattr(met[0], key) for key in drawn):
        assert str(met[0]) == str(met[1])
