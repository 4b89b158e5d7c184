"""Written by tools/make_sync.py from satchel/sessions/: change that, and run it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Literal, overload

from satchel.context import Context
from satchel.domain.event import Event, EventKind
from satchel.domain.imported import Imported
from satchel.domain.memory import WorkingMemory
from satchel.domain.message import Message
from satchel.domain.page import Page
from satchel.domain.policy import Policy
from satchel.domain.principal import Principal
from satchel.domain.record import SessionStatus
from satchel.domain.run import Attempt, MemoryOf, OnBusy, Run
from satchel.domain.session import Session
from satchel.domain.stream import TextDelta, TextPosition
from satchel.domain.tool_call import ToolCall
from satchel.runs import LEASE
from satchel.sessions import SessionManager as AsyncSessionManager
from satchel.sessions.reading import INCLUDES, Include
from satchel.sync.opening import OpenStore, async_side, loop_of
from satchel.sync.plain import Feed, Held, Iteration
from satchel.sync.working import RunContext


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
        self._async = AsyncSessionManager(async_side(store), principal, policy=policy)
        self._loop = loop_of(store)

    @property
    def principal(self) -> Principal:
        return self._async.principal

    def get_session(self, session_id: str, *, include: Iterable[Include] = INCLUDES) -> Session:
        """The session as it is now, with the newest 50 messages, tool calls and runs, as ``include`` says.

        Raises SessionNotFound; SessionDeleted for a tombstone of one's own.
        """
        return self._loop.call(self._async.get_session(session_id, include=tuple(include)))

    def list_sessions(
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
        return self._loop.call(
            self._async.list_sessions(
                status=status,
                updated_after=updated_after,
                updated_before=updated_before,
                metadata=metadata,
                title=title,
                user_id=user_id,
                limit=limit,
                cursor=cursor,
            )
        )

    def create_session(
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
        SessionExists), and can meet nobody else's; after a deletion it names a new one. What was found has ``existed``.

        Raises InvalidInput, NotAllowed, SessionExists.
        """
        return self._loop.call(
            self._async.create_session(
                title=title,
                user_id=user_id,
                external_id=external_id,
                if_exists=if_exists,
                metadata=metadata,
                policy=policy,
                idempotency_key=idempotency_key,
            )
        )

    def rename_session(
        self, session_id: str, title: str, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> Session:
        return self._loop.call(
            self._async.rename_session(
                session_id, title, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A new title, a merge patch of the metadata (RFC 7396: null removes a member), or both."""
        return self._loop.call(
            self._async.update_session(
                session_id,
                title=title,
                metadata=metadata,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def transfer_session(
        self, session_id: str, user_id: str, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> Session:
        """To another user of the tenant. For admins."""
        return self._loop.call(
            self._async.transfer_session(
                session_id, user_id, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def close_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """CLOSED: readable, no writes. Open runs end as CANCELLED, open tool calls as unknown. Twice is fine."""
        return self._loop.call(
            self._async.close_session(
                session_id, reason=reason, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def restore_session(
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
        return self._loop.call(
            self._async.restore_session(
                session_id, reason=reason, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def expire_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """EXPIRED before its time. For admins."""
        return self._loop.call(
            self._async.expire_session(
                session_id, reason=reason, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def delete_session(
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
        return self._loop.call(
            self._async.delete_session(
                session_id, reason=reason, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def append_message(
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
        return self._loop.call(
            self._async.append_message(
                session_id,
                message,
                metadata=metadata,
                format=format,
                status=status,
                attempt=attempt,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def append_messages(
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
        return self._loop.call(
            self._async.append_messages(
                session_id,
                messages,
                format=format,
                attempt=attempt,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def retract_message(
        self,
        session_id: str,
        message_id: str | int,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Take a message back: reads of messages leave it out, the log does not. Twice is fine. Raises MessageNotFound."""
        return self._loop.call(
            self._async.retract_message(
                session_id,
                message_id,
                reason=reason,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def messages(
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
        return self._loop.call(
            self._async.messages(
                session_id,
                after=after,
                before=before,
                run_id=run_id,
                include_retracted=include_retracted,
                order=order,
                limit=limit,
                cursor=cursor,
            )
        )

    def append_tool_history(
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
        ``error``, ``tool_call_id``, ``step`` (see start_tool_call). What a failed call gave back is its ``error``: its ``result`` if it has no other. Raises as append_message; ToolCallOpen if a call of this label is open.
        """
        return self._loop.call(
            self._async.append_tool_history(
                session_id, call, attempt=attempt, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def start_tool_call(
        self,
        session_id: str,
        tool: str,
        arguments: object = None,
        *,
        tool_call_id: str | None = None,
        step: str | None = None,
        attempt: Attempt | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> ToolCall:
        """Before the tool runs: whatever happens then, the call is in the history. ``repeat_of`` names an equal call made
        before. Finish it with :meth:`finish_tool_call` and its ``seq``.

        ``step`` names it within the run of ``attempt``: if a call of that name has succeeded or failed there, that call is
        given, and nothing is written; one that was cancelled or is unknown is made again. Raises StepOpen, ToolCallOpen.
        """
        return self._loop.call(
            self._async.start_tool_call(
                session_id,
                tool,
                arguments,
                tool_call_id=tool_call_id,
                step=step,
                attempt=attempt,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def finish_tool_call(
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
        return self._loop.call(
            self._async.finish_tool_call(
                session_id,
                seq,
                result=result,
                error=error,
                cancelled=cancelled,
                attempt=attempt,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def tool_history(
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
        return self._loop.call(
            self._async.tool_history(
                session_id,
                run_id=run_id,
                tool=tool,
                tool_call_id=tool_call_id,
                is_open=is_open,
                order=order,
                limit=limit,
                cursor=cursor,
            )
        )

    def get_working_memory(self, session_id: str, *, run_id: str | None = None) -> WorkingMemory:
        """The session's memory; with ``run_id`` as that run sees it, under its own layer if it has one. Raises RunNotFound."""
        return self._loop.call(self._async.get_working_memory(session_id, run_id=run_id))

    def update_working_memory(
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

        The patch of an ``attempt`` whose run has a layer of its own (``add_run(memory="run")``) goes into that layer, which is
        bounded like the memory; the answer is the memory as the run sees it. A child run writes where its parent does; as it
        has no turn, its ``set`` and ``clear`` need ``expected_version``.
        """
        return self._loop.call(
            self._async.update_working_memory(
                session_id, patch, attempt=attempt, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def replace_working_memory(
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
        return self._loop.call(
            self._async.replace_working_memory(
                session_id, memory, attempt=attempt, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def add_run(
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
        """See :meth:`RunManager.add_run`."""
        return self._loop.call(
            self._async.add_run(
                session_id,
                goal=goal,
                agent=agent,
                input=input,
                on_busy=on_busy,
                max_attempts=max_attempts,
                memory=memory,
                metadata=metadata,
                start=start,
                lease=lease,
                expected_version=expected_version,
                idempotency_key=idempotency_key,
            )
        )

    def events(
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
        return self._loop.call(
            self._async.events(
                session_id,
                after=after,
                before=before,
                kind=kind,
                run_id=run_id,
                order=order,
                limit=limit,
                cursor=cursor,
            )
        )

    @overload
    def follow(
        self, session_id: str, *, after: int | None = None, run_id: str | None = None, text: Literal[False] = False
    ) -> Iteration[Event]: ...

    @overload
    def follow(
        self,
        session_id: str,
        *,
        after: int | None = None,
        run_id: str | None = None,
        text: bool,
        position: TextPosition | None = None,
    ) -> Iteration[Event | TextDelta]: ...

    def follow(
        self,
        session_id: str,
        *,
        after: int | None = None,
        run_id: str | None = None,
        text: bool = False,
        position: TextPosition | None = None,
    ) -> Iteration[Event | TextDelta]:
        """Every event after ``after`` (None: from when the first is asked for), in order, as they come; with ``run_id`` those of one run, until
        it has ended. A follower that starts again after the last ``seq`` it saw loses and repeats nothing. Ends with
        SessionDeleted when the session is deleted. Raises ResyncRequired if what was seen is not in the log: ``after`` lies behind its
        end, or a failover of a store without ``prefix_after_failover`` took back what it had acknowledged to nobody.

        With ``text`` also what is being said, as TextDelta objects between the events: each is stored, and comes before the
        event of its message, which holds the whole text (``event.streamed`` is the deltas' ``message``). Who starts again is given what is
        still streaming from its beginning, or of one message from ``position``, the last delta's.
        """
        return Iteration(
            self._loop, self._async.follow(session_id, after=after, run_id=run_id, text=text, position=position)
        )

    def context(
        self, session_id: str, *, max_tokens: int = 8000, run_number: int | None = None, run_id: str | None = None
    ) -> Context:
        """What a model should see, in at most ``max_tokens``: the instructions at the beginning of the session, the newest
        messages that fit, pairs of call and result whole, and before the newest message of the user the session state (memory,
        runs, tool calls) as data. ``messages`` go straight into a chat API, whatever was stored. Once not everything fits,
        results of more than a quarter of the window are shown with their middle left out, and the newest message with as much
        of it as fits.

        Messages that nobody will answer any more (their run was cancelled before it began) are left out, and what child runs
        said; with ``run_number`` also what belongs to later runs. With ``run_id`` it is what that run sees: nothing of later
        runs, and the working memory under the run's own layer; a child run sees its own messages behind the instructions
        and the session state, and nothing else of the conversation. Raises RunNotFound.
        """
        return self._loop.call(
            self._async.context(session_id, max_tokens=max_tokens, run_number=run_number, run_id=run_id)
        )

    def fork_session(
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
        return self._loop.call(
            self._async.fork_session(
                session_id, up_to=up_to, title=title, expected_version=expected_version, idempotency_key=idempotency_key
            )
        )

    def export_sessions(self, session_ids: Iterable[str] | None = None, **filters: Any) -> Iteration[bytes]:
        """JSON lines, one conversation a line, in pieces to be joined: ``source``, ``licence``, ``session_id`` (the
        external_id where there is one), ``messages``, ``meta``, and a ``satchel`` object with what these five lack.
        Without ids: all that :meth:`list_sessions` would show with these ``filters``; each that is there throughout comes
        once, whatever changes meanwhile, and one that is deleted meanwhile is left out. A line is handed out when all of it
        was read, so it is whole or not there."""
        return Iteration(
            self._loop, self._async.export_sessions(None if session_ids is None else tuple(session_ids), **filters)
        )

    def import_sessions(self, lines: Iterable[bytes | str], *, user_id: str | None = None) -> Iteration[Imported]:
        """Conversations from JSON lines, as :meth:`export_sessions` writes them or with the five keys alone; gives one
        report for each as it is done.

        A conversation gets an id of ours and keeps its own as ``external_id``. It is written in chunks, and seen by
        nobody before its last. The same call goes on where a former one stopped, and leaves out what is there already
        (``exists``: a session of this name that begins with all of the line). Where another session of its owner has the name, or less is
        in it than in the line, that is left and reported as ``differs``. All become ``user_id``'s (left out: one's own); a principal that
        is not bound to one user may leave it out for lines that name their owner: then each stays its owner's.

        A line is checked as strictly as what anybody writes, and whole, before anything of it is stored. Actors are kept as
        given for an admin and the operator; what anybody else brings was done by this principal. Raises InvalidInput,
        LimitExceeded, NotAllowed, naming the line and the place in it; the lines before it are imported.
        """
        return Iteration(self._loop, self._async.import_sessions(Feed(lines), user_id=user_id))

    def run(
        self,
        session_id: str,
        *,
        goal: str = "",
        input: Mapping[str, Any] | str | bytes | None = None,
        agent: str = "",
        on_busy: OnBusy = "queue",
        memory: MemoryOf = "session",
        metadata: Mapping[str, Any] | None = None,
        lease: float = LEASE,
        idempotency_key: str | None = None,
    ) -> AbstractContextManager[RunContext]:
        """Execute a run here: wait for the turn, renew the lease, and at the end complete it, or fail it if the block raises.

        ``with sessions.run(session_id, goal=…, input=…) as run: …`` gives a RunContext. Leaving the wait (a
        cancelled task) cancels the run. Raises as :meth:`RunManager.add_run`; RunFenced from a write of a run that is
        lost, and at once when an earlier call with this ``idempotency_key`` added the run: it is executed once.
        """
        return Held(
            self._loop,
            self._async.run(
                session_id,
                goal=goal,
                input=input,
                agent=agent,
                on_busy=on_busy,
                memory=memory,
                metadata=metadata,
                lease=lease,
                idempotency_key=idempotency_key,
            ),
            lambda running: RunContext(running, self._loop),
        )
