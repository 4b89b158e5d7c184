"""SessionManager: the one door to sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Literal

import msgspec

from satchel.access import (
    access_to,
    attempt_part,
    check_user_size,
    checked_choice,
    checked_filters,
    checked_flag,
    checked_instant,
    checked_items,
    checked_limit,
    checked_policy,
    checked_whole,
    draft_parts,
    request,
)
from satchel.commit import OpenStore
from satchel.context import DIGEST_CALLS, DIGEST_RUNS, Context, build_context
from satchel.domain.clock import SECOND
from satchel.domain.decisions.lifecycle import (
    CloseSession,
    CreateSession,
    DeleteSession,
    ExpireSession,
    GenerationTaken,
    LifecycleDecision,
    RestoreSession,
    TransferSession,
    UpdateSession,
)
from satchel.domain.decisions.memory import PatchMemory, ReplaceMemory
from satchel.domain.decisions.messages import AppendMessages, RetractMessage
from satchel.domain.decisions.tool_calls import FinishToolCall, RecordToolCall, StartToolCall
from satchel.domain.event import KINDS, Event, EventKind, MessageStatus
from satchel.domain.ids import RANDOM_BYTES, SessionRef, checked_id, checked_line, derived_session_id, encode_id
from satchel.domain.imported import Imported
from satchel.domain.json_text import admit_value, kind_of
from satchel.domain.memory import WorkingMemory, admit_memory, admit_patch, memory_from
from satchel.domain.message import Draft, Message, admit_message, admit_metadata, parse_message_id
from satchel.domain.page import Page, decode_cursor, encode_cursor
from satchel.domain.policy import Policy
from satchel.domain.principal import Principal
from satchel.domain.record import STATUSES, SessionStatus
from satchel.domain.run import Attempt, OnBusy, Run
from satchel.domain.session import Session, session_from
from satchel.domain.tool_call import ToolCall, ToolCallStatus, hash_arguments
from satchel.errors import InvalidInput, LimitExceeded, NotAllowed, RunFenced, SatchelError
from satchel.follow import follow
from satchel.listing import Filters, list_page
from satchel.runs import LEASE, RunManager, checked_text
from satchel.store import CallPage, EventPage, Snapshot
from satchel.sweeper import erase
from satchel.working import RunInProgress, working

NEWEST = 50
LONGEST_WAIT = 5.0  # seconds between two looks at whose turn it is, when no hint comes
Include = Literal["messages", "tool_history", "runs"]
INCLUDES: tuple[Include, ...] = ("messages", "tool_history", "runs")

_encode = msgspec.json.Encoder().encode


class SessionManager:
    """Sessions that its principal may see.

    Every write takes ``expected_version`` (VersionConflict if it is not the session's current one; nothing is stored) and
    ``idempotency_key`` (a repeated call gives the first answer, marked ``replayed``). ``attempt`` names the run that
    writes. A session of somebody else is SessionNotFound, as one that does not exist.
    """

    def __init__(
        self, store: OpenStore | None = None, principal: Principal | None = None, *, policy: Policy | None = None
    ) -> None:
        """``policy``: what this manager's tenant wants to differ from the store's policy, for sessions it creates."""
        self._access = access_to(store, principal, policy)
        self._runs = RunManager(self._access.opened, self._access.principal)

    @property
    def principal(self) -> Principal:
        return self._access.principal

    # -- lifecycle

    async def create_session(
        self,
        *,
        title: str = "",
        user_id: str | None = None,
        external_id: str | None = None,
        if_exists: Literal["return", "raise"] = "return",
        metadata: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A new session: ACTIVE, version 0.

        ``user_id`` is the owner: left out by a user and by an agent acting for one, needed from others. ``external_id``
        is the caller's own name for the conversation: the same name finds the same session again (``if_exists="raise"``:
        SessionExists), and can meet nobody else's; after a deletion it names a new one.

        Raises InvalidInput, NotAllowed, SessionExists.
        """
        owner = self._owner(user_id)
        limits = self._access.limits
        self._check_title(title)
        checked_choice(if_exists, ("return", "raise"), field="if_exists")
        if policy is not None:
            checked_policy(policy)
        if external_id is not None:
            checked_id(external_id, field="external_id", limits=limits)
        kept = b"" if metadata is None else admit_metadata(metadata, limits=limits)
        resolved = (policy or Policy()).over(self._access.policy)
        key = self._access.key(idempotency_key)
        tenant_id = self._access.principal.tenant_id
        random_id = encode_id("sess_", os.urandom(RANDOM_BYTES))
        generation = 0
        while True:
            if external_id is not None:
                session_id = derived_session_id("external", tenant_id, owner, external_id, str(generation))
            elif key["caller_key"]:
                parts = (tenant_id, owner, self._access.principal.side, key["key"].hex())
                session_id = derived_session_id("key", *parts)
            else:
                session_id = random_id
            decision = CreateSession(
                ref=SessionRef(tenant_id, session_id),
                principal=self._access.principal,
                **key,
                fingerprint=request("create_session", owner, title, external_id, kept, _encode(policy)),
                user_id=owner,
                title=title,
                metadata=kept,
                policy=resolved,
                first_revision=int.from_bytes(os.urandom(6), "big"),
                external_id=external_id,
                generation=generation,
                if_exists=if_exists,
            )
            try:
                done = await self._access.submit(decision)
            except GenerationTaken:
                generation += 1
                continue
            return await self._as_it_is(session_id, replayed=done.replayed)

    def _owner(self, user_id: str | None) -> str:
        bound = self._access.principal.user_id
        if user_id is None:
            if bound is None:
                raise InvalidInput("is needed: this principal is not bound to one user", field="user_id")
            return bound
        checked_id(user_id, field="user_id", limits=self._access.limits)
        if bound is not None and user_id != bound:
            raise NotAllowed(role=self._access.principal.role, action=f"create sessions of users other than {bound!r}")
        return user_id

    def _check_title(self, title: str) -> None:
        if not isinstance(title, str):
            raise InvalidInput(f"must be text, not {kind_of(title)}", field="title")
        checked_line(title, field="title", limit=self._access.limits.title, setting="limits.title")

    async def _as_it_is(self, session_id: str, *, replayed: bool = False) -> Session:
        session = await self.get_session(session_id)
        return msgspec.structs.replace(session, replayed=True) if replayed else session

    async def get_session(self, session_id: str, *, include: Iterable[Include] = INCLUDES) -> Session:
        """The session as it is now, with the newest 50 messages, tool calls and runs, as ``include`` says.

        Raises SessionNotFound; SessionDeleted for a tombstone of one's own.
        """
        ref = self._access.ref(session_id)
        checked_items(include, field="include")
        chosen = tuple(include)
        for name in chosen:
            checked_choice(name, INCLUDES, field="include")

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(
                ref,
                messages=NEWEST if "messages" in chosen else 0,
                tool_calls=NEWEST if "tool_history" in chosen else 0,
                runs=NEWEST if "runs" in chosen else 0,
            )

        page, record = await self._access.read(ref, fetch)
        return session_from(
            record,
            now=page.clock.now,
            working_memory=page.working_memory,
            metadata=page.metadata,
            messages=(Message.from_event(event) for event in page.messages),
            tool_history=(ToolCall.from_row(row) for row in page.tool_calls),
            runs=(Run.from_row(row, session_id=session_id) for row in page.runs),
        )

    async def list_sessions(
        self,
        *,
        status: SessionStatus | None = None,
        updated_after: datetime | None = None,
        updated_before: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        title: str | None = None,
        user_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[Session]:
        """Own sessions (an unbound agent's and an admin's: the tenant's, or one ``user_id``'s), newest change first.

        ``status`` is the one that holds now (tombstones are in no list). ``updated_after`` (from it on) and ``updated_before`` bound the last change.
        ``metadata``: all these members are equal. ``title``: contains this text, whatever its case. A page can be short, or
        empty, and still have a ``next``: at most 1,000 sessions are looked at in one call.
        """
        if status is not None:
            checked_choice(status, STATUSES, field="status")
        if title is not None:
            self._check_title(title)
        owner = self._access.principal.user_id
        if user_id is not None:
            checked_id(user_id, field="user_id", limits=self._access.limits)
            if owner is not None and user_id != owner:
                return Page(())  # somebody else's sessions do not exist
            owner = user_id
        filters = Filters(
            tenant_id=self._access.principal.tenant_id,
            user_id=owner,
            status=status,
            updated_from=checked_instant(updated_after, field="updated_after"),
            updated_before=checked_instant(updated_before, field="updated_before"),
            metadata=None if metadata is None else admit_metadata(metadata, limits=self._access.limits),
            title=title,
        )
        checked_limit(limit, most=self._access.limits.page)
        return await list_page(
            self._access.store, filters, side=self._access.principal.side, limit=limit, cursor=cursor
        )

    async def rename_session(
        self,
        session_id: str,
        title: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        return await self.update_session(
            session_id, title=title, expected_version=expected_version, idempotency_key=idempotency_key
        )

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A new title, a merge patch of the metadata (RFC 7396: null removes a member), or both."""
        if title is not None:
            self._check_title(title)
        patch = None if metadata is None else admit_metadata(metadata, limits=self._access.limits)
        done = await self._access.submit(
            UpdateSession(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request("update_session", title, patch),
                title=title,
                metadata_patch=patch,
                limits=self._access.limits,
            )
        )
        return await self._as_it_is(session_id, replayed=done.replayed)

    async def transfer_session(
        self,
        session_id: str,
        user_id: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """To another user of the tenant. For admins."""
        checked_id(user_id, field="user_id", limits=self._access.limits)
        done = await self._access.submit(
            TransferSession(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request("transfer_session", user_id),
                user_id=user_id,
            )
        )
        return await self._as_it_is(session_id, replayed=done.replayed)

    async def close_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """CLOSED: readable, no writes. Open runs end as CANCELLED, open tool calls as unknown. Twice is fine."""
        return await self._move(CloseSession, session_id, reason, expected_version, idempotency_key)

    async def restore_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """ACTIVE again, with everything: messages, working memory, tool history, runs. Its clocks start anew.

        Restoring an ACTIVE session is fine. Raises RestoreRefused if the session's policy does not let this caller.
        """
        return await self._move(RestoreSession, session_id, reason, expected_version, idempotency_key)

    async def expire_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """EXPIRED before its time. For admins."""
        return await self._move(ExpireSession, session_id, reason, expected_version, idempotency_key)

    async def _move(
        self,
        kind: type[LifecycleDecision],
        session_id: str,
        reason: str,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> Session:
        checked_text(reason, field="reason")
        done = await self._access.submit(
            kind(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request(kind.__name__, reason),
                reason=reason,
            )
        )
        return await self._as_it_is(session_id, replayed=done.replayed)

    async def delete_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Erase it: what comes back is the tombstone (status DELETED, the lifecycle history), and the id is never used
        again. When this returns nothing of the session can be read any more, and in a store of up to 32 MiB no trace of
        its text is left in the files; in a larger one the sweeper removes the traces, for all deletions at once, and
        finishes what was interrupted. Twice is fine."""
        checked_text(reason, field="reason")
        done = await self._access.submit(
            DeleteSession(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request("DeleteSession", reason),
                reason=reason,
            )
        )
        ref = self._access.ref(session_id)
        if done.value.erasing:
            await erase(self._access.opened, ref)
        page = await self._access.store.snapshot(ref, working_memory=False, metadata=False)
        return session_from(done.value if page.record is None else page.record, now=page.clock.now)

    # -- messages

    async def append_message(
        self,
        session_id: str,
        message: Mapping[str, Any] | str | bytes,
        *,
        metadata: Mapping[str, Any] | None = None,
        format: str | None = None,
        status: Literal["complete", "interrupted"] = "complete",
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Append one message: a mapping, or JSON text of an object, which is kept byte for byte.

        ``format`` is ``openai.chat`` unless given; a body of another format is kept as it is. A tool message whose
        ``tool_call_id`` is that of an open tool call finishes that call.

        Raises InvalidInput, LimitExceeded, NotAllowed (a role that the principal may not write), SessionNotFound,
        SessionClosed, SessionExpired, VersionConflict, RunFenced.
        """
        appended = await self._append(
            session_id, [message], metadata, format, status, attempt, expected_version, idempotency_key
        )
        return appended[0]

    async def append_messages(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any] | str | bytes],
        *,
        format: str | None = None,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[Message, ...]:
        """Append several (1 to 100, 8 MiB together), all or none, in one version."""
        return await self._append(
            session_id, messages, None, format, "complete", attempt, expected_version, idempotency_key
        )

    async def _append(
        self,
        session_id: str,
        messages: Sequence[Mapping[str, Any] | str | bytes],
        metadata: Mapping[str, Any] | None,
        format: str | None,
        status: MessageStatus,
        attempt: Attempt | None,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> tuple[Message, ...]:
        limits = self._access.limits
        if not isinstance(messages, (list, tuple)) or not messages:
            raise InvalidInput(
                'must be a list of one message or more, each like {"role": "user", "content": "…"}', field="messages"
            )
        if len(messages) > limits.batch_messages:
            raise LimitExceeded(
                field="messages",
                size=len(messages),
                limit=limits.batch_messages,
                setting="limits.batch_messages",
                unit="messages",
            )
        checked_choice(status, ("complete", "interrupted"), field="status")
        if len(messages) == 1:
            drafts: tuple[Draft, ...] = (admit_message(messages[0], metadata=metadata, format=format, limits=limits),)
        else:
            drafts = tuple(
                [
                    admit_message(message, format=format, limits=limits, field=f"messages[{index}]")
                    for index, message in enumerate(messages)
                ]
            )
        for index, draft in enumerate(drafts):
            where = "message" if len(drafts) == 1 else f"messages[{index}]"
            check_user_size(self._access.principal, draft, limits=limits, field=where)
        size = sum([len(draft.body) for draft in drafts])
        if size > limits.batch:
            raise LimitExceeded(field="messages", size=size, limit=limits.batch, setting="limits.batch")
        parts = [part for draft in drafts for part in draft_parts(draft)]
        decision = AppendMessages(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("append_messages", status, attempt_part(attempt), *parts),
            messages=drafts,
            status=status,
            limits=limits,
        )
        return (await self._access.submit(decision)).value

    async def retract_message(
        self,
        session_id: str,
        message_id: str | int,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Take a message back: reads of messages leave it out, the log does not. Twice is fine. Raises MessageNotFound."""
        seq = parse_message_id(message_id)
        checked_text(reason, field="reason")
        decision = RetractMessage(
            **self._access.common(session_id, idempotency_key, expected_version, None),
            fingerprint=request("retract_message", seq, reason),
            seq=seq,
            reason=reason,
        )
        return (await self._access.submit(decision)).value

    async def messages(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        run_id: str | None = None,
        include_retracted: bool = False,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Message]:
        """Messages with ``after < seq < before``, in order or newest first."""
        checked_flag(include_retracted, field="include_retracted")
        page, more = await self._events(
            session_id,
            list_name="messages",
            kind="message",
            after=after,
            before=before,
            run_id=run_id,
            with_retracted=include_retracted,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        shown = (Message.from_event(event, retracted=event.seq in page.retracted) for event in page.events[:limit])
        return Page(tuple(shown), more)

    # -- tool history

    async def append_tool_history(
        self,
        session_id: str,
        call: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """One stroke, when the call and its outcome are both there.

        ``call``: ``tool``; and if they are known ``arguments``, ``ok`` (true unless an ``error`` is given), ``result``,
        ``error``, ``tool_call_id``. What a failed call gave back is its ``error``: its ``result`` if it has no other. Raises as append_message; ToolCallOpen if a call of this label is open.
        """
        if not isinstance(call, Mapping):
            raise InvalidInput(f"must be an object, not {kind_of(call)}", field="call")
        known = {"tool", "arguments", "ok", "result", "error", "tool_call_id"}
        for name in call:
            if name not in known:
                raise InvalidInput(f"is unknown; one of {', '.join(sorted(known))}", field="call", pointer=f"/{name}")
        error = call.get("error")
        ok = call.get("ok", error is None)
        if type(ok) is not bool:
            raise InvalidInput("must be true or false", field="call", pointer="/ok")
        fields = self._call_fields(call.get("tool"), call.get("arguments"), call.get("tool_call_id"))
        status: ToolCallStatus = "succeeded" if ok else "failed"
        result = self._outcome(call["result"], "result") if "result" in call else None
        failure = None if error is None else self._outcome(error, "error")
        if not ok and failure is None:  # what a failed call gave back says how it failed
            result, failure = None, result
        decision = RecordToolCall(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            **fields,
            fingerprint=request(
                "append_tool_history",
                attempt_part(attempt),
                fields["tool"],
                fields["arguments"],
                fields["tool_call_id"],
                status,
                result,
                failure,
            ),
            status=status,
            result=result,
            error=failure,
            limits=self._access.limits,
        )
        return (await self._access.submit(decision)).value

    async def start_tool_call(
        self,
        session_id: str,
        tool: str,
        arguments: object = None,
        *,
        tool_call_id: str | None = None,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """Before the tool runs: whatever happens then, the call is in the history. ``repeat_of`` names an equal call made
        before. Finish it with :meth:`finish_tool_call` and its ``seq``."""
        fields = self._call_fields(tool, arguments, tool_call_id)
        decision = StartToolCall(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            **fields,
            fingerprint=request(
                "start_tool_call", attempt_part(attempt), fields["tool"], fields["arguments"], tool_call_id
            ),
            limits=self._access.limits,
        )
        return (await self._access.submit(decision)).value

    async def finish_tool_call(
        self,
        session_id: str,
        seq: int,
        *,
        result: object = None,
        error: object = None,
        cancelled: bool = False,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """After the tool ran: succeeded with ``result``, failed with ``error``, or ``cancelled``.

        Raises ToolCallNotFound, ToolCallEnded, RunFenced (the call belongs to a run, and this is not its attempt).
        """
        checked_whole(seq, field="seq", least=1)
        checked_flag(cancelled, field="cancelled")
        status: ToolCallStatus = "cancelled" if cancelled else "succeeded" if error is None else "failed"
        kept = None if status != "succeeded" else self._outcome(result, "result")
        failure = None if error is None else self._outcome(error, "error")
        decision = FinishToolCall(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("finish_tool_call", attempt_part(attempt), seq, status, kept, failure),
            seq=seq,
            status=status,
            result=kept,
            error=failure,
        )
        return (await self._access.submit(decision)).value

    def _call_fields(self, tool: object, arguments: object, tool_call_id: object) -> dict[str, Any]:
        name = checked_id(tool, field="tool", limits=self._access.limits)
        if tool_call_id is not None:
            checked_id(tool_call_id, field="tool_call_id", limits=self._access.limits)
        body = admit_value(arguments, field="arguments", limits=self._access.limits)
        if len(body) > self._access.limits.agent_message:
            raise LimitExceeded(
                field="arguments",
                size=len(body),
                limit=self._access.limits.agent_message,
                setting="limits.agent_message",
            )
        return {
            "tool": name,
            "arguments": body,
            "arguments_hash": hash_arguments(name, arguments),
            "tool_call_id": tool_call_id,
        }

    def _outcome(self, value: object, field: str) -> bytes:
        body = admit_value(value, field=field, limits=self._access.limits)
        if len(body) > self._access.limits.agent_message:
            raise LimitExceeded(
                field=field, size=len(body), limit=self._access.limits.agent_message, setting="limits.agent_message"
            )
        return body

    async def tool_history(
        self,
        session_id: str,
        *,
        run_id: str | None = None,
        tool: str | None = None,
        tool_call_id: str | None = None,
        is_open: bool | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[ToolCall]:
        """Tool calls in the order of their starts, or newest first."""
        checked_filters(self._access.limits, run_id=run_id, tool=tool, tool_call_id=tool_call_id)
        if is_open is not None:
            checked_flag(is_open, field="is_open")
        ref = self._access.ref(session_id)
        checked_limit(limit, most=self._access.limits.page)
        newest_first = _newest_first(order)
        parts: tuple[str, ...] = (
            "tool_history",
            *ref,
            self._access.principal.side,
            run_id or "",
            tool or "",
            tool_call_id or "",
        )
        parts += (str(is_open), order)
        position = None if cursor is None else int(decode_cursor(cursor, *parts, shape=(int,))[0])

        async def fetch() -> CallPage:
            return await self._access.store.tool_calls(
                ref,
                run_id=run_id,
                tool=tool,
                tool_call_id=tool_call_id,
                is_open=is_open,
                after=0 if newest_first or position is None else position,
                before=position if newest_first else None,
                newest_first=newest_first,
                limit=limit + 1,
            )

        page, _ = await self._access.read(ref, fetch)
        shown = tuple(ToolCall.from_row(row) for row in page.tool_calls[:limit])
        more = encode_cursor((shown[-1].seq,), *parts) if len(page.tool_calls) > limit else None
        return Page(shown, more)

    # -- working memory

    async def get_working_memory(self, session_id: str) -> WorkingMemory:
        ref = self._access.ref(session_id)

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(ref, metadata=False)

        page, record = await self._access.read(ref, fetch)
        return memory_from(page.working_memory, version=record.changed.working_memory)

    async def update_working_memory(
        self,
        session_id: str,
        patch: Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """Patch by field: ``{"clear": [field…], "remove": {…}, "append": {…}, "set": {…}}``, in this order, all or nothing.

        ``append`` and ``remove`` act on the memory as it is at the commit. ``set`` and ``clear`` need ``expected_version``
        (VersionRequired), or come from the run that has the turn. It holds if the memory has not changed since: messages
        do not matter to it. Raises VersionConflict, LimitExceeded (the memory would be over 64 KiB).
        """
        admitted = admit_patch(patch, limits=self._access.limits)
        decision = PatchMemory(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("update_working_memory", attempt_part(attempt), _encode(admitted.to_dict())),
            patch=admitted,
            limits=self._access.limits,
        )
        return (await self._access.submit(decision)).value

    async def replace_working_memory(
        self,
        session_id: str,
        memory: WorkingMemory | Mapping[str, Any],
        *,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> WorkingMemory:
        """The whole memory anew; fields that are not given are empty. Needs ``expected_version``, or the run that has the
        turn."""
        admitted = admit_memory(memory, limits=self._access.limits)
        decision = ReplaceMemory(
            **self._access.common(session_id, idempotency_key, expected_version, attempt),
            fingerprint=request("replace_working_memory", attempt_part(attempt), _encode(admitted.to_dict())),
            memory=admitted,
            limits=self._access.limits,
        )
        return (await self._access.submit(decision)).value

    # -- runs

    async def add_run(
        self,
        session_id: str,
        *,
        goal: str = "",
        agent: str = "",
        input: Mapping[str, Any] | str | bytes | None = None,
        on_busy: OnBusy = "reject",
        max_attempts: int = 1,
        metadata: Mapping[str, Any] | None = None,
        start: bool = False,
        lease: float = LEASE,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """See :meth:`RunManager.add_run`."""
        return await self._runs.add_run(
            session_id,
            goal=goal,
            agent=agent,
            input=input,
            on_busy=on_busy,
            max_attempts=max_attempts,
            metadata=metadata,
            start=start,
            lease=lease,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )

    @asynccontextmanager
    async def run(
        self,
        session_id: str,
        *,
        goal: str = "",
        input: Mapping[str, Any] | str | bytes | None = None,
        agent: str = "",
        on_busy: OnBusy = "queue",
        metadata: Mapping[str, Any] | None = None,
        lease: float = LEASE,
        idempotency_key: str | None = None,
    ) -> AsyncIterator[RunInProgress]:
        """Execute a run here: wait for the turn, renew the lease, and at the end complete it, or fail it if the block raises.

        ``async with sessions.run(session_id, goal=…, input=…) as run: …`` gives a RunContext. Leaving the wait (a
        cancelled task) cancels the run. Raises as :meth:`RunManager.add_run`; RunFenced from a write of a run that is
        lost, and at once when an earlier call with this ``idempotency_key`` added the run: it is executed once.
        """
        adding = asyncio.ensure_future(
            self._runs.add_run(
                session_id,
                goal=goal,
                input=input,
                agent=agent,
                on_busy=on_busy,
                metadata=metadata,
                start=True,
                lease=lease,
                idempotency_key=idempotency_key,
            )
        )
        try:
            run = await asyncio.shield(adding)
        except asyncio.CancelledError:
            await asyncio.shield(self._withdraw(session_id, adding))
            raise
        if run.replayed:
            reason = "an earlier call with this idempotency key added the run, and executes it"
            raise RunFenced(run_id=run.run_id, attempt=run.attempt, reason=reason)
        if run.status == "READY":
            taking = asyncio.ensure_future(self._take_turn(session_id, run, lease))
            try:
                run = await asyncio.shield(taking)
            except BaseException:  # also a store that went away: nobody else will start this run
                taking.cancel()
                await asyncio.shield(self._withdraw(session_id, taking, run))
                raise
        async with working(self, self._runs, run, lease=lease) as ctx:
            yield ctx

    async def _withdraw(self, session_id: str, pending: Awaitable[Run], added: Run | None = None) -> None:
        """The caller went away while its run was being added, or while it waited: whatever became of the run, it ends."""
        run = added
        with contextlib.suppress(SatchelError, asyncio.CancelledError):
            run = await pending
        if run is None or run.replayed:
            return
        with contextlib.suppress(SatchelError):
            now = await self._runs.cancel_run(session_id, run.run_id)
            if now.status == "RUNNING":
                await self._runs.end_cancelled_run(session_id, Attempt(now.run_id, now.attempt))

    async def _take_turn(self, session_id: str, run: Run, lease: float) -> Run:
        """Wait until the run has the turn, and start it; the lease of who waits is renewed meanwhile."""
        ref = self._access.ref(session_id)

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(ref, working_memory=False, metadata=False)

        loop = asyncio.get_running_loop()
        renew_at = loop.time() + lease / 3
        while True:
            page, record = await self._access.read(ref, fetch)
            if all(waiting.run_id != run.run_id for waiting in record.queue):
                return await self._runs.start_run(session_id, run.run_id, lease=lease)
            if loop.time() >= renew_at:
                await self._runs.keep_waiting(session_id, run.run_id)
                renew_at = loop.time() + lease / 3
            patience = min(LONGEST_WAIT, lease / 3)
            if record.lease_until is not None:  # nobody wakes us when a holder dies: its lease just ends
                patience = min(patience, max(0.01, (record.lease_until - page.clock.lease_now) / SECOND))
            await self._access.store.wait(ref, record.last_seq, patience)

    # -- the log

    async def events(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        kind: EventKind | None = None,
        run_id: str | None = None,
        order: Literal["asc", "desc"] = "asc",
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[Event]:
        """The session's log, with ``after < seq < before``, in order or newest first."""
        page, more = await self._events(
            session_id,
            list_name="events",
            kind=kind,
            after=after,
            before=before,
            run_id=run_id,
            with_retracted=True,
            order=order,
            limit=limit,
            cursor=cursor,
        )
        return Page(page.events[:limit], more)

    async def _events(
        self,
        session_id: str,
        *,
        list_name: str,
        kind: EventKind | None,
        after: int,
        before: int | None,
        run_id: str | None,
        with_retracted: bool,
        order: str,
        limit: int,
        cursor: str | None,
    ) -> tuple[EventPage, str | None]:
        ref = self._access.ref(session_id)
        checked_limit(limit, most=self._access.limits.page)
        checked_filters(self._access.limits, run_id=run_id)
        if kind is not None:
            checked_choice(kind, KINDS, field="kind")
        checked_whole(after, field="after")
        if before is not None:
            checked_whole(before, field="before")
        newest_first = _newest_first(order)
        parts: tuple[str, ...] = (
            list_name,
            *ref,
            self._access.principal.side,
            kind or "",
            run_id or "",
            str(with_retracted),
            order,
        )
        parts += (str(after), str(before))
        if cursor is not None:
            position = int(decode_cursor(cursor, *parts, shape=(int,))[0])
            after, before = (after, position) if newest_first else (position, before)

        async def fetch() -> EventPage:
            return await self._access.store.events(
                ref,
                after=after,
                before=before,
                newest_first=newest_first,
                kind=kind,
                run_id=run_id,
                with_retracted=with_retracted,
                limit=limit + 1,
            )

        page, _ = await self._access.read(ref, fetch)
        more = encode_cursor((page.events[limit - 1].seq,), *parts) if len(page.events) > limit else None
        return page, more

    async def follow(
        self, session_id: str, *, after: int | None = None, run_id: str | None = None
    ) -> AsyncIterator[Event]:
        """Every event after ``after`` (None: from when the first is asked for), in order, as they come; with ``run_id`` those of one run, until
        it has ended. A follower that starts again after the last ``seq`` it saw loses and repeats nothing. Ends with
        SessionDeleted when the session is deleted."""
        if after is not None:
            checked_whole(after, field="after")
        ref = self._access.ref(session_id)

        async def read(fetch: Callable[[], Awaitable[EventPage]]) -> EventPage:
            page, _ = await self._access.read(ref, fetch)
            return page

        if after is None:
            session = await self.get_session(session_id, include=())
            after = session.last_seq
        if run_id is not None:
            run = await self._runs.get_run(session_id, run_id)
            if run.is_terminal and not (await self.events(session_id, after=after, run_id=run_id, limit=1)).items:
                return
        async for event in follow(self._access.store, ref, read, after=after, run_id=run_id):
            yield event

    # -- what a model sees

    async def context(self, session_id: str, *, max_tokens: int = 8000, run_number: int | None = None) -> Context:
        """What a model should see, in at most ``max_tokens``: the instructions at the beginning, session state as data, then
        the newest messages that fit, pairs of call and result whole. ``messages`` go straight into a chat API.

        Messages that nobody will answer any more (their run was cancelled before it began) are left out; with
        ``run_number`` also what belongs to later runs.
        """
        checked_whole(max_tokens, field="max_tokens", least=1)
        if run_number is not None:
            checked_whole(run_number, field="run_number")
        ref = self._access.ref(session_id)

        async def fetch() -> Snapshot:
            return await self._access.store.snapshot(ref, metadata=False, tool_calls=DIGEST_CALLS, runs=DIGEST_RUNS)

        page, _ = await self._access.read(ref, fetch)
        return await build_context(self._access.store, ref, page, max_tokens=max_tokens, run_number=run_number)

    # -- fork, export, import

    async def fork_session(
        self,
        session_id: str,
        *,
        up_to: int | None = None,
        title: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A new session of the same owner that begins as a copy of this one, up to and including the event ``up_to`` (None:
        all). The copy ends before a call whose result it would cut off. Seqs, versions, times and actors come over; open
        runs arrive as failed, open calls as unknown.

        Title and metadata are those of the point, as far as the log holds them: what a later change covered is left out.
        ``expected_version`` is that of the session that is copied. The key is the new session's: a repeated call finds it.
        """
        if up_to is not None:
            checked_whole(up_to, field="up_to")
        if title is not None:
            self._check_title(title)
        if expected_version is not None:
            checked_whole(expected_version, field="expected_version")
        from satchel import (
            transfer,  # with what it needs it is a tenth of the package's import: only who moves sessions pays
        )

        new_id, replayed = await transfer.fork(
            self._access,
            session_id,
            up_to=up_to,
            title=title,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return await self._as_it_is(new_id, replayed=replayed)

    async def export_sessions(self, session_ids: Iterable[str] | None = None, **filters: Any) -> AsyncIterator[bytes]:
        """JSON lines, one conversation a line, in pieces to be joined: ``source``, ``licence``, ``session_id`` (the
        external_id where there is one), ``messages``, ``meta``, and a ``satchel`` object with what these five lack.
        Without ids: all that :meth:`list_sessions` would show with these ``filters``; each that is there throughout comes
        once, whatever changes meanwhile, and one that is deleted meanwhile is left out. A line is handed out when all of it
        was read, so it is whole or not there."""
        from satchel import transfer

        if session_ids is not None:
            checked_items(session_ids, field="session_ids")
            for session_id in session_ids:
                async for piece in transfer.export_session(self._access, session_id):
                    yield piece
            return
        wanted = {"limit": self._access.limits.page} | filters
        updated_after = wanted.pop("updated_after", None)

        async def listed(since: datetime | None, cursor: str | None) -> Page[Session]:
            return await self.list_sessions(updated_after=since, cursor=cursor, **wanted)

        async for piece in transfer.export_all(self._access, listed, updated_after=updated_after):
            yield piece

    async def import_sessions(
        self, lines: Iterable[bytes | str] | AsyncIterable[bytes | str], *, user_id: str | None = None
    ) -> AsyncIterator[Imported]:
        """Conversations from JSON lines, as :meth:`export_sessions` writes them or with the five keys alone; gives one
        report for each as it is done.

        A conversation gets an id of ours and keeps its own as ``external_id``. It is written in chunks, and seen by
        nobody before its last. The same call goes on where a former one stopped, and leaves out what is there already.
        All become ``user_id``'s (left out: one's own); a principal that is not bound to one user may leave it out for lines
        that name their owner.

        A line is checked as strictly as what anybody writes, and whole, before anything of it is stored. Actors are kept as
        given for an admin and the operator; what anybody else brings was done by this principal. Raises InvalidInput,
        LimitExceeded, NotAllowed, naming the line and the place in it; the lines before it are imported.
        """
        from satchel import transfer

        checked_items(lines, field="lines")
        bound = self._access.principal.user_id
        owner = None if user_id is None and bound is None else self._owner(user_id)
        async for imported in transfer.import_sessions(self._access, _texts(lines), owner=owner):
            yield imported


def _newest_first(order: str) -> bool:
    checked_choice(order, ("asc", "desc"), field="order")
    return order == "desc"


async def _texts(lines: Iterable[bytes | str] | AsyncIterable[bytes | str]) -> AsyncIterator[bytes | str]:
    """Raises InvalidInput at the first line that is no text."""
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            yield _text(line)
    else:
        for line in lines:
            yield _text(line)


def _text(line: object) -> bytes | str:
    if not isinstance(line, (bytes, str)):
        raise InvalidInput(f"must be texts, not {kind_of(line)}", field="lines")
    return line
