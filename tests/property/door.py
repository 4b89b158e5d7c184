"""The same calls through Satchel's public door, with the facts of their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.policy import Policy
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, Run
from satchel.domain.session import Session
from satchel.domain.tool_call import ToolCall
from satchel.errors import RunActive, SatchelError, VersionConflict
from satchel.opened import OpenStore
from satchel.runs import RunManager
from satchel.sessions import SessionManager
from tests.property.model import SECOND, Facts, ModelPolicy
from tests.property.recipes import Call

Answer = tuple[str, Facts]  # "ok" and its facts, or the error's code and its facts


class Door:
    """All principals' managers over one open store: one process."""

    def __init__(self, opened: OpenStore) -> None:
        self.opened = opened
        self._sessions: dict[Principal, SessionManager] = {}
        self._runs: dict[Principal, RunManager] = {}

    def sessions(self, who: Principal) -> SessionManager:
        return self._sessions.setdefault(who, SessionManager(self.opened, who))

    def runs(self, who: Principal) -> RunManager:
        return self._runs.setdefault(who, RunManager(self.opened, who))

    async def do(self, call: Call) -> Answer:
        try:
            return "ok", await self._do(call)
        except VersionConflict as refused:
            facts = {"expected": refused.expected, "current": refused.current, "changed": sorted(refused.changed)}
            return refused.code, facts
        except RunActive as refused:
            return refused.code, {"run_id": refused.run_id}
        except SatchelError as refused:
            return refused.code, {}

    async def _do(self, call: Call) -> Facts:
        given = dict(call.arguments)
        options: dict[str, Any] = {}
        if "key" in given:
            options["idempotency_key"] = given.pop("key")
        if "expected" in given:
            options["expected_version"] = given.pop("expected")
        if "lease" in given:
            given["lease"] /= SECOND
        if "writer" in given:
            writer = given.pop("writer")
            options["attempt"] = None if writer is None else Attempt(*writer)
        if call.verb in ON_RUNS:
            return await ON_RUNS[call.verb](self.runs(call.who), call.session_id, given, options)
        return await ON_SESSIONS[call.verb](self.sessions(call.who), call.session_id, given, options)


# -- one function for each verb that needs more than handing its arguments on


async def _create(sessions: SessionManager, _: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    owner = given.pop("owner")
    policy = _policy(given.pop("policy"))
    bound = sessions.principal.user_id is not None
    return _session(await sessions.create_session(**given, user_id=None if bound else owner, policy=policy, **options))


async def _append(sessions: SessionManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    bodies = [said.body for said in given["messages"]]
    if len(bodies) == 1:
        return _messages([await sessions.append_message(sid, bodies[0], status=given["status"], **options)])
    return _messages(await sessions.append_messages(sid, bodies, **options))


async def _start_call(sessions: SessionManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    label = given["label"]
    return _call(await sessions.start_tool_call(sid, given["tool"], given["arguments"], tool_call_id=label, **options))


async def _record_call(sessions: SessionManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    told = {"result": given["value"]} if given["ok"] else {"error": given["value"]}
    stroke = {"tool": given["tool"], "arguments": given["arguments"], "ok": given["ok"], **told}
    if given["label"] is not None:
        stroke["tool_call_id"] = given["label"]
    return _call(await sessions.append_tool_history(sid, stroke, **options))


async def _finish_call(sessions: SessionManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    outcomes: dict[str, dict[str, Any]] = {
        "succeeded": {"result": given["value"]},
        "failed": {"error": given["value"]},
        "cancelled": {"cancelled": True},
    }
    return _call(await sessions.finish_tool_call(sid, given["seq"], **outcomes[given["how"]], **options))


async def _renew(runs: RunManager, sid: str, _: dict[str, Any], options: dict[str, Any]) -> Facts:
    return {"cancel_requested": await runs.renew_run(sid, options["attempt"]), "replayed": False}


async def _keep_waiting(runs: RunManager, sid: str, given: dict[str, Any], _: dict[str, Any]) -> Facts:
    kept = await runs.keep_waiting(sid, given["run_id"])
    return {"run_id": kept.run_id, "status": kept.status, "attempt": kept.attempt, "replayed": False}


async def _child(runs: RunManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    attempt = options.pop("attempt")
    return _run(await runs.add_child_run(sid, attempt, goal=given["goal"], **options))


async def _step(runs: RunManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    attempt = options.pop("attempt")
    return _run(await runs.add_step(sid, attempt, "gpt", input_tokens=given["tokens"], **options))


async def _ask(runs: RunManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    attempt = options.pop("attempt")
    schema = {"type": given["wants"]} if given["wants"] else None
    asked = await runs.ask_question(
        sid,
        attempt,
        given["name"],
        "How big?",
        schema=schema,
        expires_in=given["expires_in"] / SECOND,
        here=given["here"],
        **options,
    )
    return _run(asked.run) | {"is_answered": asked.is_answered, "answer": asked.answer}


async def _end(runs: RunManager, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
    attempt = options.pop("attempt")
    if given["status"] == "COMPLETED":
        return _run(await runs.complete_run(sid, attempt, **options))
    if given["status"] == "FAILED":
        return _run(await runs.fail_run(sid, attempt, code="broken", **options))
    return _run(await runs.end_cancelled_run(sid, attempt, **options))


def _plain(verb: str, shown: Callable[[Any], Facts], *positional: str) -> Callable[..., Awaitable[Facts]]:
    """A verb that takes these arguments by position and all others by name."""

    async def call(manager: Any, sid: str, given: dict[str, Any], options: dict[str, Any]) -> Facts:
        first = [given.pop(name) for name in positional]
        return shown(await getattr(manager, verb)(sid, *first, **given, **options))

    return call


def _policy(policy: ModelPolicy) -> Policy:
    def duration(micros: int | None) -> timedelta | None:
        return None if micros is None else timedelta(microseconds=micros)

    return Policy(
        idle=duration(policy.idle),
        max_lifetime=duration(policy.max_lifetime),
        retention=duration(policy.retention),
        restore_closed=policy.restore_closed,  # type: ignore[arg-type]  # one of the three words
        restore_expired=policy.restore_expired,  # type: ignore[arg-type]  # one of the three words
    )


def _session(session: Session) -> Facts:
    return {"session_id": session.session_id, "replayed": session.replayed}


def _messages(messages: tuple[Message, ...] | list[Message]) -> Facts:
    return {
        "seqs": [message.seq for message in messages],
        "version": messages[0].version,
        "replayed": messages[0].replayed,
    }


def _retracted(message: Message) -> Facts:
    return {"seq": message.seq, "version": message.version, "replayed": message.replayed}


def _call(call: ToolCall) -> Facts:
    return {
        "seq": call.seq,
        "version": call.version,
        "status": call.status,
        "repeat_of": call.repeat_of,
        "replayed": call.replayed,
    }


def _memory(memory: WorkingMemory) -> Facts:
    held = {name: value for name, value in memory.to_dict().items() if value}
    return {"version": memory.version, "memory": held, "replayed": memory.replayed}


def _run(run: Run) -> Facts:
    return {
        "run_id": run.run_id,
        "status": run.status,
        "attempt": run.attempt,
        "version": run.version,
        "replayed": run.replayed,
    }


ON_SESSIONS: dict[str, Callable[..., Awaitable[Facts]]] = {
    "create_session": _create,
    "close_session": _plain("close_session", _session),
    "expire_session": _plain("expire_session", _session),
    "restore_session": _plain("restore_session", _session),
    "delete_session": _plain("delete_session", _session),
    "transfer_session": _plain("transfer_session", _session, "to"),
    "update_session": _plain("update_session", _session),
    "fork_session": _plain("fork_session", _session),
    "append_messages": _append,
    "retract_message": _plain("retract_message", _retracted, "seq"),
    "start_tool_call": _start_call,
    "append_tool_history": _record_call,
    "finish_tool_call": _finish_call,
    "update_working_memory": _plain("update_working_memory", _memory, "patch"),
    "replace_working_memory": _plain("replace_working_memory", _memory, "memory"),
}
ON_RUNS: dict[str, Callable[..., Awaitable[Facts]]] = {
    "add_run": _plain("add_run", _run),
    "add_child_run": _child,
    "start_run": _plain("start_run", _run, "run_id"),
    "cancel_run": _plain("cancel_run", _run, "run_id"),
    "renew_run": _renew,
    "keep_waiting": _keep_waiting,
    "add_step": _step,
    "end_run": _end,
    "ask_question": _ask,
    "answer_run": _plain("answer_run", _run, "run_id", "answer"),
}
