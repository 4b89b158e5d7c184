"""The same calls through Satchel's public door, with the facts of their answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from satchel.commit import OpenStore
from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.policy import Policy
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt, Run
from satchel.domain.session import Session
from satchel.domain.tool_call import ToolCall
from satchel.errors import RunActive, SatchelError, VersionConflict
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
        writer = given.pop("writer", None)
        attempt = None if writer is None else Attempt(*writer)
        sessions, runs, sid = self.sessions(call.who), self.runs(call.who), call.session_id
        match call.verb:
            case "create_session":
                owner = given.pop("owner")
                policy = _policy(given.pop("policy"))
                bound = call.who.user_id is not None
                made = await sessions.create_session(
                    **given, user_id=None if bound else owner, policy=policy, **options
                )
                return _session(made)
            case "close_session":
                return _session(await sessions.close_session(sid, **given, **options))
            case "expire_session":
                return _session(await sessions.expire_session(sid, **given, **options))
            case "restore_session":
                return _session(await sessions.restore_session(sid, **given, **options))
            case "delete_session":
                return _session(await sessions.delete_session(sid, **given, **options))
            case "transfer_session":
                return _session(await sessions.transfer_session(sid, given["to"], **options))
            case "update_session":
                return _session(await sessions.update_session(sid, **given, **options))
            case "fork_session":
                return {"session_id": (await sessions.fork_session(sid, **given)).session_id}
            case "append_messages":
                bodies = [said.body for said in given["messages"]]
                if len(bodies) == 1:
                    one = await sessions.append_message(
                        sid, bodies[0], status=given["status"], attempt=attempt, **options
                    )
                    return _messages((one,))
                return _messages(await sessions.append_messages(sid, bodies, attempt=attempt, **options))
            case "retract_message":
                taken = await sessions.retract_message(sid, given["seq"], reason=given["reason"], **options)
                return {"seq": taken.seq, "version": taken.version, "replayed": taken.replayed}
            case "start_tool_call":
                return _call(
                    await sessions.start_tool_call(
                        sid,
                        given["tool"],
                        given["arguments"],
                        tool_call_id=given["label"],
                        attempt=attempt,
                        **options,
                    )
                )
            case "append_tool_history":
                told = {"result": given["value"]} if given["ok"] else {"error": given["value"]}
                stroke = {"tool": given["tool"], "arguments": given["arguments"], "ok": given["ok"], **told}
                if given["label"] is not None:
                    stroke["tool_call_id"] = given["label"]
                return _call(await sessions.append_tool_history(sid, stroke, attempt=attempt, **options))
            case "finish_tool_call":
                outcome: dict[str, Any] = {
                    "succeeded": {"result": given["value"]},
                    "failed": {"error": given["value"]},
                    "cancelled": {"cancelled": True},
                }[given["how"]]
                return _call(await sessions.finish_tool_call(sid, given["seq"], **outcome, attempt=attempt, **options))
            case "update_working_memory":
                return _memory(await sessions.update_working_memory(sid, given["patch"], attempt=attempt, **options))
            case "replace_working_memory":
                return _memory(await sessions.replace_working_memory(sid, given["memory"], attempt=attempt, **options))
            case "add_run":
                given["lease"] = given["lease"] / SECOND
                return _run(await runs.add_run(sid, **given, **options))
            case "start_run":
                return _run(await runs.start_run(sid, given["run_id"], lease=given["lease"] / SECOND, **options))
            case "cancel_run":
                return _run(await runs.cancel_run(sid, given["run_id"], reason=given["reason"], **options))
        assert attempt is not None
        match call.verb:
            case "renew_run":
                return {"cancel_requested": await runs.renew_run(sid, attempt), "replayed": False}
            case "add_step":
                return _run(await runs.add_step(sid, attempt, "gpt", input_tokens=given["tokens"], **options))
            case "end_run" if given["status"] == "COMPLETED":
                return _run(await runs.complete_run(sid, attempt, **options))
            case "end_run" if given["status"] == "FAILED":
                return _run(await runs.fail_run(sid, attempt, code="broken", **options))
            case "end_run":
                return _run(await runs.end_cancelled_run(sid, attempt, **options))
            case _:
                raise AssertionError(call.verb)


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
