"""RunManager over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from satchel.access import (
    checked_attempt,
    checked_choice,
    checked_filters,
    checked_flag,
    checked_limit,
)
from satchel.client.connection import Reply, is_plain_id, part
from satchel.client.reading import checked_cursor, path_of, who_is_calling
from satchel.client.snapshots import member, member_of, page_from, run_from, session_from_json
from satchel.client.texts import RemoteTexts
from satchel.domain.ids import checked_id
from satchel.domain.json_text import admit_value
from satchel.domain.message import admit_message
from satchel.domain.page import Page
from satchel.domain.principal import Principal
from satchel.domain.run import STATUSES, Attempt, MemoryOf, OnBusy, Run, RunStatus
from satchel.domain.spelling import spellings_in
from satchel.errors import Conflict, RunNotFound
from satchel.questions import (
    EXPIRES_IN,
    Asked,
    admit_schema,
    checked_answer_size,
    checked_expiry,
    checked_question,
    when_back,
)
from satchel.runs import LEASE, RunManager, checked_duration, checked_lease, checked_text
from satchel.runs.checks import admit_task, check_options, check_tokens, ended_instead, said_by_user

if TYPE_CHECKING:
    from satchel.client.connection import Connection

_log = logging.getLogger("satchel.client")

LOOK = 0.5  # seconds between two looks whether there is an answer


class RemoteRunManager(RemoteTexts, RunManager):
    """A RunManager whose store is on the other side of a service."""

    def __init__(self, server: Connection) -> None:
        self._server = server

    @property
    def principal(self) -> Principal:
        """Raises NotServed: a service does not say to whom a key belongs."""
        who_is_calling()

    async def add_run(
        self,
        session_id: str,
        *,
        goal: str = "",
        agent: str | None = None,
        input: Mapping[str, Any] | str | bytes | None = None,
        on_busy: OnBusy = "reject",
        max_attempts: int = 1,
        memory: MemoryOf = "session",
        metadata: Mapping[str, Any] | None = None,
        start: bool = False,
        lease: float = LEASE,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.add_run. Why nobody may begin the run, as the service sees it, is a warning in the log
        ``satchel.client``, unless the caller says by ``agent=""`` that it is for none."""
        check_options(on_busy=on_busy, memory=memory, start=start, max_attempts=max_attempts)
        message = None if input is None else admit_message(said_by_user(input), limits=self.limits, field="input")
        checked_lease(lease)
        body = self._task(goal, agent, metadata) | {
            "input": None if message is None else msgspec.Raw(message.body),
            "on_busy": on_busy,
            "max_attempts": max_attempts,
            "memory": memory,
            "start": start,
            "lease": lease,
        }
        reply = await self._server.write(
            "POST",
            path_of(session_id) + "/runs",
            body,
            about={"session_id": session_id},
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        run = run_from(reply.body, replayed=reply.replayed)
        if reply.hint is not None and agent != "":
            _log.warning("%s: %s", run.run_id, reply.hint)
        return run

    async def add_child_run(
        self,
        session_id: str,
        parent: Attempt,
        *,
        goal: str = "",
        agent: str = "",
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.add_child_run."""
        checked_attempt(parent, field="parent")
        body = self._task(goal, agent, metadata)
        return await self._report(session_id, parent, "children", body, expected_version, idempotency_key)

    async def get_run(self, session_id: str, run_id: str) -> Run:
        """See satchel.RunManager.get_run."""
        path = await self._path(session_id, run_id)
        return run_from((await self._server.read(path, about={"session_id": session_id, "run_id": run_id})).body)

    async def list_runs(
        self,
        session_id: str,
        *,
        run_id: str | None = None,
        parent_run_id: str | None = None,
        status: RunStatus | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Run]:
        """See satchel.RunManager.list_runs."""
        if status is not None:
            checked_choice(status, STATUSES, field="status")
        checked_filters(self.limits, run_id=run_id, parent_run_id=parent_run_id)
        checked_limit(limit, most=self.limits.page)
        chosen = {"run_id": run_id, "parent_run_id": parent_run_id, "status": status}
        query = {**chosen, "limit": limit, "cursor": checked_cursor(cursor)}
        path = path_of(session_id) + "/runs"
        return page_from((await self._server.read(path, query=query, about={"session_id": session_id})).body, run_from)

    async def start_run(
        self,
        session_id: str,
        run_id: str,
        *,
        lease: float = LEASE,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.start_run."""
        checked_lease(lease)
        return await self._move(session_id, run_id, "start", {"lease": lease}, expected_version, idempotency_key)

    async def renew_run(self, session_id: str, attempt: Attempt) -> bool:
        """See satchel.RunManager.renew_run."""
        checked_attempt(attempt)
        reply = await self._send(session_id, attempt.run_id, "renew", {}, attempt=attempt, is_keyed=False)
        return bool(member_of(reply.body, "cancel_requested"))

    async def keep_waiting(self, session_id: str, run_id: str) -> Run:
        """See satchel.RunManager.keep_waiting."""
        return run_from((await self._send(session_id, run_id, "wait", {}, is_keyed=False)).body)

    async def add_step(
        self,
        session_id: str,
        attempt: Attempt,
        name: str,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        total_tokens: int = 0,
        duration_ms: int | None = None,
        error: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.add_step."""
        checked_attempt(attempt)
        checked_text(name, field="name")
        counts = {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": total_tokens}
        check_tokens(*counts.values())
        if duration_ms is not None:
            checked_duration(duration_ms)
        if error is not None:
            checked_text(error, field="error")
        body = {"name": name, "duration_ms": duration_ms, "error": error} | counts
        return await self._report(session_id, attempt, "steps", body, expected_version, idempotency_key)

    async def complete_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "end_turn",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.complete_run."""
        checked_attempt(attempt)
        body = {"stop_reason": checked_text(stop_reason, field="stop_reason")}
        return await self._report(session_id, attempt, "complete", body, expected_version, idempotency_key)

    async def fail_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        code: str,
        message: str = "",
        stop_reason: str = "error",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.fail_run."""
        body = {"code": checked_text(code, field="code"), "message": checked_text(message, field="message")}
        checked_attempt(attempt)
        body["stop_reason"] = checked_text(stop_reason, field="stop_reason")
        return await self._report(session_id, attempt, "fail", body, expected_version, idempotency_key)

    async def end_cancelled_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        stop_reason: str = "cancelled",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.end_cancelled_run."""
        checked_attempt(attempt)
        body = {"stop_reason": checked_text(stop_reason, field="stop_reason")}
        return await self._report(session_id, attempt, "end-cancelled", body, expected_version, idempotency_key)

    async def hand_back_run(
        self,
        session_id: str,
        attempt: Attempt,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.hand_back_run."""
        checked_attempt(attempt)
        return await self._report(session_id, attempt, "hand-back", {}, expected_version, idempotency_key)

    async def ask_question(
        self,
        session_id: str,
        attempt: Attempt,
        name: str,
        question: str,
        *,
        schema: Mapping[str, Any] | None = None,
        expires_in: float = EXPIRES_IN,
        here: bool = False,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Asked:
        """See satchel.RunManager.ask_question."""
        checked_attempt(attempt)
        checked_flag(here, field="here")
        checked_id(name, field="name", limits=self.limits)
        checked_question(question, limits=self.limits)
        # Whether the schema is a good one, the service says.
        kept = None if schema is None else msgspec.Raw(admit_schema(schema, limits=self.limits))
        checked_expiry(expires_in)
        body = {
            "name": name,
            "question": question,
            "schema": kept,
            "expires_in": expires_in,
            "here": here,
        }
        reply = await self._send(
            session_id,
            attempt.run_id,
            "ask",
            body,
            attempt=attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return Asked(
            run=run_from(member(reply.body, "run"), replayed=reply.replayed),
            is_answered=bool(member_of(reply.body, "is_answered")),
            answer=member_of(reply.body, "answer"),
            spelt=spellings_in(reply.body, ("answer",)),
        )

    async def answer_run(
        self,
        session_id: str,
        run_id: str,
        answer: object,
        *,
        name: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.answer_run."""
        checked_id(run_id, field="run_id", limits=self.limits)
        checked_filters(self.limits, name=name)
        value = admit_value(answer, field="answer", limits=self.limits)
        checked_answer_size(value, limits=self.limits)
        body = {"answer": msgspec.Raw(value), "name": name}
        return await self._move(session_id, run_id, "answer", body, expected_version, idempotency_key)

    async def wait_for_answer(self, session_id: str, run_id: str, *, lease: float = LEASE) -> Run:
        """See satchel.RunManager.wait_for_answer."""
        checked_lease(lease)
        pause = 0.05
        while (run := await when_back(lambda: self.get_run(session_id, run_id), lease=lease)).status == "WAITING":
            await asyncio.sleep(pause)
            pause = min(2 * pause, LOOK, lease / 3)
        if run.status == "READY" and await when_back(lambda: self._has_turn(session_id, run_id), lease=lease):
            with contextlib.suppress(Conflict):  # somebody ended it since
                return await self._go_on(session_id, run_id, lease)
            run = await self.get_run(session_id, run_id)
        raise ended_instead(run)

    async def cancel_run(
        self,
        session_id: str,
        run_id: str,
        *,
        reason: str = "cancelled",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See satchel.RunManager.cancel_run."""
        checked_text(reason, field="reason")
        return await self._move(session_id, run_id, "cancel", {"reason": reason}, expected_version, idempotency_key)

    # -- requests

    def _task(self, goal: str, agent: str | None, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
        kept = admit_task(goal, agent, metadata, limits=self.limits)
        return {"goal": goal, "agent": agent, "metadata": None if kept is None else msgspec.Raw(kept)}

    async def _path(self, session_id: str, run_id: str) -> str:
        """Raises RunNotFound for an id that none can have, once it is known that the session is one's own."""
        checked_id(run_id, field="run_id", limits=self.limits)
        path = path_of(session_id)
        if not is_plain_id(run_id):
            await self._server.read(path, query={"include": ""}, about={"session_id": session_id})
            raise RunNotFound(run_id)
        return f"{path}/runs/{part(run_id)}"

    async def _has_turn(self, session_id: str, run_id: str) -> bool:
        reply = await self._server.read(path_of(session_id), query={"include": ""}, about={"session_id": session_id})
        return session_from_json(reply.body).active_run_id == run_id

    async def _move(
        self,
        session_id: str,
        run_id: str,
        verb: str,
        body: Mapping[str, Any],
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> Run:
        reply = await self._send(
            session_id, run_id, verb, body, expected_version=expected_version, idempotency_key=idempotency_key
        )
        return run_from(reply.body, replayed=reply.replayed)

    async def _report(
        self,
        session_id: str,
        attempt: Attempt,
        verb: str,
        body: Mapping[str, Any],
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> Run:
        """By the attempt that holds the run."""
        reply = await self._send(
            session_id,
            attempt.run_id,
            verb,
            body,
            attempt=attempt,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return run_from(reply.body, replayed=reply.replayed)

    async def _send(self, session_id: str, run_id: str, verb: str, body: Mapping[str, Any], **options: Any) -> Reply:
        path = await self._path(session_id, run_id)
        about = {"session_id": session_id, "run_id": run_id}
        return await self._server.write("POST", f"{path}/{verb}", body, about=about, **options)
