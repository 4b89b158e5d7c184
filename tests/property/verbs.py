"""Every verb of the public door, in the plain model. The arguments are those of the managers."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from satchel.domain.principal import Principal
from tests.property.model import (
    ENDED,
    Change,
    Facts,
    Model,
    ModelCall,
    ModelPolicy,
    ModelRun,
    ModelSession,
    Refused,
    conflict,
    side_of,
)

TEXTS = ("goal", "next_action")
Writer = tuple[str, int] | None


@dataclass(frozen=True)
class Said:
    """A message, and what of it matters."""

    body: bytes
    role: str
    asks: tuple[str, ...] = ()
    answers: str | None = None


def works(who: Principal) -> bool:
    return who.role in ("agent", "admin", "operator")


def may_write(who: Principal, role: str | None) -> bool:
    if role == "user":
        return True
    if role in ("system", "developer"):
        return who.role in ("admin", "operator") or (who.role == "agent" and who.acting_for is None)
    return works(who)


class Verbs(Model):
    def copy(self) -> Verbs:
        other = Verbs(self.clock)
        other.sessions = copy.deepcopy(self.sessions)
        other.named = dict(self.named)
        other.keyed = dict(self.keyed)
        other.forks = dict(self.forks)
        return other

    # -- lifecycle

    def create_session(
        self,
        who: Principal,
        *,
        fresh: str,
        owner: str,
        title: str,
        external_id: str | None,
        if_exists: str,
        metadata: dict[str, Any],
        policy: ModelPolicy,
        key: str | None,
    ) -> Facts:
        request = ("create", owner, title, external_id, metadata, policy)
        generation = 0
        while True:
            found = self._named(who, owner, external_id, key, generation)
            if found is None:
                break
            session = self.sessions[who.tenant_id, found]
            if self.sees(who, session):
                self.settle(session)
            if session.user_id != owner or not self.sees(who, session):
                raise Refused("session_not_found")
            if session.status != "DELETED":
                return self._found_again(who, session, request, external_id, if_exists, key)
            if external_id is None:
                raise Refused("session_deleted")
            generation += 1
        now = self.clock.now
        session = ModelSession(
            session_id=fresh,
            tenant_id=who.tenant_id,
            user_id=owner,
            created=now,
            updated=now,
            active=now,
            clock_from=now,
            policy=policy,
            title=title,
            first_title=title,
            metadata=dict(metadata),
            first_metadata=dict(metadata),
            external_id=external_id,
            generation=generation,
        )
        self.sessions[who.tenant_id, fresh] = session
        if external_id is not None:
            self.named[who.tenant_id, owner, external_id, generation] = fresh
        elif key is not None:
            self.keyed[who.tenant_id, owner, side_of(who), key] = fresh
        answer: Facts = {"session_id": fresh, "replayed": False}
        if key is not None:
            session.keys[side_of(who), key] = (request, answer)
        return answer

    def _named(
        self, who: Principal, owner: str, external_id: str | None, key: str | None, generation: int
    ) -> str | None:
        if external_id is not None:
            return self.named.get((who.tenant_id, owner, external_id, generation))
        return None if key is None else self.keyed.get((who.tenant_id, owner, side_of(who), key))

    def _found_again(
        self,
        who: Principal,
        session: ModelSession,
        request: Any,
        external_id: str | None,
        if_exists: str,
        key: str | None,
    ) -> Facts:
        answer: Facts = {"session_id": session.session_id, "replayed": False}
        place = (side_of(who), key or "")
        if place in session.keys:
            first, _ = session.keys[place]
            if first != request:
                raise Refused("idempotency_mismatch")
            return answer | {"replayed": True}
        if external_id is not None and if_exists == "raise":
            raise Refused("session_exists")
        if key is not None:
            session.keys[place] = (request, answer)
        return answer

    def close_session(self, who: Principal, session_id: str, *, reason: str, **options: Any) -> Facts:
        def must_not_be_expired(session: ModelSession) -> None:
            if session.status == "EXPIRED":
                raise Refused("session_expired")

        def effect(session: ModelSession) -> Facts:
            if session.status == "ACTIVE":
                self._leave(session, who.actor, "CLOSED", reason)
            return {"session_id": session_id}

        return self.write(
            who,
            session_id,
            effect,
            request=("close", reason),
            needs_active=False,
            turn_check=must_not_be_expired,
            **options,
        )

    def expire_session(self, who: Principal, session_id: str, *, reason: str, **options: Any) -> Facts:
        def must_not_be_closed(session: ModelSession) -> None:
            if session.status == "CLOSED":
                raise Refused("session_closed")

        def effect(session: ModelSession) -> Facts:
            if session.status == "ACTIVE":
                self._leave(session, who.actor, "EXPIRED", reason)
            return {"session_id": session_id}

        return self.write(
            who,
            session_id,
            effect,
            request=("expire", reason),
            needs_active=False,
            allowed=who.role in ("admin", "operator"),
            turn_check=must_not_be_closed,
            **options,
        )

    def restore_session(self, who: Principal, session_id: str, *, reason: str, **options: Any) -> Facts:
        def effect(session: ModelSession) -> Facts:
            if session.status == "ACTIVE":
                return {"session_id": session_id}
            policy = session.policy
            by = policy.restore_closed if session.status == "CLOSED" else policy.restore_expired
            if by == "never" or (by == "admin" and who.role not in ("admin", "operator")):
                raise Refused("restore_refused")
            change = Change(self, session, who.actor)
            change.event("session_restored")
            change.moved("ACTIVE", reason)
            change.done()
            session.active = session.clock_from = self.clock.now
            return {"session_id": session_id}

        return self.write(who, session_id, effect, request=("restore", reason), needs_active=False, **options)

    def delete_session(self, who: Principal, session_id: str, *, reason: str, **options: Any) -> Facts:
        def effect(session: ModelSession) -> Facts:
            self._bury(session, who.actor, reason)
            return {"session_id": session_id}

        return self.write(
            who,
            session_id,
            effect,
            request=("delete", reason),
            needs_active=False,
            deleted=lambda _: {"session_id": session_id, "replayed": False},
            **options,
        )

    def transfer_session(self, who: Principal, session_id: str, *, to: str, **options: Any) -> Facts:
        def effect(session: ModelSession) -> Facts:
            if session.user_id != to:
                change = Change(self, session, who.actor)
                change.event("session_transferred")
                session.user_id = to
                change.touch("status")
                change.done()
            return {"session_id": session_id}

        allowed = who.role in ("admin", "operator")
        return self.write(who, session_id, effect, request=("transfer", to), allowed=allowed, **options)

    def update_session(
        self, who: Principal, session_id: str, *, title: str | None, metadata: dict[str, Any] | None, **options: Any
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            change = Change(self, session, who.actor)
            if title is not None and title != session.title:
                change.event("title_changed")
                change.touch("title")
                session.title = title
            if metadata is not None:
                merged = session.metadata | metadata
                merged = {name: value for name, value in merged.items() if name not in metadata or value is not None}
                if merged != session.metadata:
                    change.event("metadata_changed")
                    change.touch("metadata")
                    session.metadata = merged
            if any(entry.version == change.version for entry in session.log):
                change.done()
            return {"session_id": session_id}

        return self.write(who, session_id, effect, request=("update", title, metadata), **options)

    def fork_session(self, who: Principal, session_id: str, *, fresh: str, title: str | None, key: str | None) -> Facts:
        source = self.visible(who, session_id)
        self.settle(source)
        if source.status == "DELETED":
            raise Refused("session_deleted")
        place = (who.tenant_id, session_id, side_of(who), key or "")
        if key is not None and place in self.forks:
            first, made = self.forks[place]
            fork = self.sessions[who.tenant_id, made]
            if not self.sees(who, fork):
                raise Refused("session_not_found")
            self.settle(fork)
            if fork.status == "DELETED":
                raise Refused("session_deleted")
            if first != title:
                raise Refused("idempotency_mismatch")
            return {"session_id": made, "replayed": True}
        if key is not None:
            self.forks[place] = (title, fresh)
        session = copy.deepcopy(source)
        now = self.clock.now
        session.session_id, session.external_id, session.generation = fresh, None, 0
        session.keys, session.copied = {}, True
        session.created = session.clock_from = session.active = now
        session.updated = max([now, *(entry.at for entry in session.log)])
        wanted = source.title if title is None else title
        change = Change(self, session, "operator")
        for run_id in [*session.queue, *([session.turn] if session.turn else [])]:
            change.end_run(session.runs[run_id], "FAILED", "moved", error="moved")
        for call in session.open_calls():
            change.end_call(call, "unknown")
        session.first_title, session.first_metadata = wanted, session.metadata
        if any(entry.kind == "title_changed" for entry in session.log) and wanted != session.title:
            change.event("title_changed")
            change.touch("title")
        session.title = wanted
        if session.status != "ACTIVE":
            change.event("session_restored")
            change.moved("ACTIVE", "fork")
        if session.last_seq > source.last_seq:
            change.done()
        self.sessions[who.tenant_id, fresh] = session
        answer: Facts = {"session_id": fresh, "replayed": False}
        if key is not None:  # as with a creation, the key's record stands in the new session
            session.keys[side_of(who), key] = (("fork", session_id, title), answer)
        return answer

    # -- messages

    def append_messages(
        self, who: Principal, session_id: str, *, messages: list[Said], status: str, writer: Writer, **options: Any
    ) -> Facts:
        run_id = None if writer is None else writer[0]

        def effect(session: ModelSession) -> Facts:
            change = Change(self, session, who.actor)
            seqs = [self._say(change, said, run_id, status) for said in messages]
            return {"seqs": seqs, "version": change.done()}

        allowed = all(may_write(who, said.role) for said in messages) and (status == "complete" or works(who))
        request = ("append", messages, status, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=allowed, **options)

    def _say(self, change: Change, said: Said, run_id: str | None, status: str) -> int:
        ends = [call for call in change.session.open_calls() if said.answers is not None and call.label == said.answers]
        seq = change.message(
            said.body,
            role=said.role,
            asks=said.asks,
            answers=said.answers,
            run_id=run_id,
            status=status,
            refers_to=ends[0].seq if ends else None,
        )
        if ends:
            change.ended_call(ends[0], "succeeded", result="done")
        return seq

    def retract_message(self, who: Principal, session_id: str, *, seq: int, reason: str, **options: Any) -> Facts:
        def effect(session: ModelSession) -> Facts:
            entry = session.log[seq - 1] if seq <= session.last_seq else None
            if entry is None or entry.kind != "message":
                raise Refused("message_not_found")
            if not may_write(who, entry.role):
                raise Refused("not_allowed")
            if seq in session.taken_back:
                return {"seq": seq, "version": session.version}
            change = Change(self, session, who.actor)
            change.event("message_retracted", run_id=entry.run_id, refers_to=seq)
            change.touch("messages")
            session.taken_back.add(seq)
            return {"seq": seq, "version": change.done()}

        return self.write(who, session_id, effect, request=("retract", seq, reason), **options)

    # -- tool history

    def start_tool_call(
        self,
        who: Principal,
        session_id: str,
        *,
        tool: str,
        arguments: Any,
        label: str | None,
        writer: Writer,
        **options: Any,
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            self._label_is_free(session, label)
            change = Change(self, session, who.actor)
            call = self._new_call(change, "tool_call_started", tool, arguments, label, writer)
            return {"seq": call.seq, "status": "started", "repeat_of": call.repeat_of, "version": change.done()}

        request = ("start_tool", tool, arguments, label, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    def append_tool_history(
        self,
        who: Principal,
        session_id: str,
        *,
        tool: str,
        arguments: Any,
        label: str | None,
        ok: bool,
        value: Any,
        writer: Writer,
        **options: Any,
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            self._label_is_free(session, label)
            change = Change(self, session, who.actor)
            call = self._new_call(change, "tool_call_recorded", tool, arguments, label, writer)
            outcome = {"result": value} if ok else {"error": value}
            status = "succeeded" if ok else "failed"
            if label in session.asked:
                change.end_call(call, status, **outcome)
            else:
                change.ended_call(call, status, **outcome)
            return {"seq": call.seq, "status": status, "repeat_of": call.repeat_of, "version": change.done()}

        request = ("record_tool", tool, arguments, label, ok, value, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    def _label_is_free(self, session: ModelSession, label: str | None) -> None:
        if label is not None and any(call.label == label for call in session.open_calls()):
            raise Refused("tool_call_open")

    def _new_call(
        self, change: Change, kind: str, tool: str, arguments: Any, label: str | None, writer: Writer
    ) -> ModelCall:
        run_id = None if writer is None else writer[0]
        same = [c.seq for c in change.session.calls.values() if (c.tool, c.arguments) == (tool, arguments)]
        call = ModelCall(
            seq=change.event(kind, run_id=run_id),
            version=change.version,
            tool=tool,
            arguments=arguments,
            label=label,
            run_id=run_id,
            start=self.clock.now,
            repeat_of=max(same, default=None),
        )
        change.session.calls[call.seq] = call
        change.touch("tool_history")
        return call

    def finish_tool_call(
        self, who: Principal, session_id: str, *, seq: int, how: str, value: Any, writer: Writer, **options: Any
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            call = session.calls.get(seq)
            if call is None:
                raise Refused("tool_call_not_found")
            if call.status != "started":
                raise Refused("tool_call_ended")
            if call.run_id is not None and (writer is None or writer[0] != call.run_id):
                raise Refused("run_fenced")
            change = Change(self, session, who.actor)
            outcome = {"result": value} if how == "succeeded" else {"error": value} if how == "failed" else {}
            change.end_call(call, how, **outcome)
            return {"seq": seq, "status": how, "repeat_of": call.repeat_of, "version": change.done()}

        request = ("finish_tool", seq, how, value, writer)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    # -- working memory

    def update_working_memory(
        self,
        who: Principal,
        session_id: str,
        *,
        patch: dict[str, Any],
        writer: Writer,
        expected: int | None,
        **options: Any,
    ) -> Facts:
        def patched(memory: dict[str, Any]) -> dict[str, Any]:
            memory = dict(memory)
            for name in patch.get("clear", ()):
                memory.pop(name, None)
            for name, items in patch.get("remove", {}).items():
                memory[name] = [item for item in memory.get(name, []) if item not in items]
            for name, items in patch.get("append", {}).items():
                memory[name] = memory.get(name, []) + items
            return {**memory, **patch.get("set", {})}

        needs_version = bool(patch.get("clear") or patch.get("set"))
        return self._memory(who, session_id, patched, ("patch", patch), needs_version, writer, expected, options)

    def replace_working_memory(
        self,
        who: Principal,
        session_id: str,
        *,
        memory: dict[str, Any],
        writer: Writer,
        expected: int | None,
        **options: Any,
    ) -> Facts:
        return self._memory(
            who, session_id, lambda _: dict(memory), ("replace", memory), True, writer, expected, options
        )

    def _memory(
        self,
        who: Principal,
        session_id: str,
        changed: Any,
        request: Any,
        needs_version: bool,
        writer: Writer,
        expected: int | None,
        options: dict[str, Any],
    ) -> Facts:
        def check(session: ModelSession) -> None:
            if expected is None and needs_version and writer is None:
                raise Refused("version_required")
            if expected is None:
                return
            if expected > session.version or session.changed.get("working_memory", 0) > expected:
                raise conflict(session, expected)

        def effect(session: ModelSession) -> Facts:
            memory = {name: value for name, value in changed(session.memory).items() if value}
            if memory == session.memory:
                return {"version": session.version, "memory": memory}
            change = Change(self, session, who.actor)
            change.event("working_memory_changed", run_id=None if writer is None else writer[0])
            change.touch("working_memory")
            session.memory = memory
            return {"version": change.done(), "memory": memory}

        return self.write(
            who,
            session_id,
            effect,
            request=(*request, writer),
            writer=writer,
            allowed=works(who),
            version_check=check,
            **options,
        )

    # -- runs

    def add_run(
        self,
        who: Principal,
        session_id: str,
        *,
        fresh: str,
        goal: str,
        input: str | None,
        on_busy: str,
        max_attempts: int,
        start: bool,
        lease: int,
        **options: Any,
    ) -> Facts:
        def admit(session: ModelSession) -> None:
            if session.turn is not None and on_busy == "reject":
                raise Refused("run_active", run_id=session.turn)
            if session.turn is not None and len(session.queue) >= 16:
                raise Refused("queue_full")

        def effect(session: ModelSession) -> Facts:
            change = Change(self, session, who.actor)
            body = None if input is None else f'{{"role":"user","content":"{input}"}}'.encode()
            run = ModelRun(
                run_id=fresh,
                number=len(session.runs) + 1,
                goal=goal,
                created=self.clock.now,
                max_attempts=max_attempts,
                input=body,
            )
            session.runs[fresh] = run
            change.wrote_run(run)
            change.event("run_added", run_id=fresh)
            if session.turn is None:
                session.turn = fresh
                if start:
                    change.start_run(run, lease)
            elif on_busy == "queue":
                session.queue.append(fresh)
            else:
                session.queue.insert(0, fresh)
                change.stop_run(session.runs[session.turn], "replaced")
            return {"run_id": fresh, "status": run.status, "attempt": run.attempt, "version": change.done()}

        request = ("add_run", goal, input, on_busy, max_attempts, start)
        allowed = not start or works(who)
        return self.write(who, session_id, effect, request=request, turn_check=admit, allowed=allowed, **options)

    def start_run(self, who: Principal, session_id: str, *, run_id: str, lease: int, **options: Any) -> Facts:
        def effect(session: ModelSession) -> Facts:
            run = self._run(session, run_id)
            if run.status != "READY":
                raise Refused("illegal_transition")
            if session.turn != run_id:
                raise Refused("run_active", run_id=session.turn)
            change = Change(self, session, who.actor)
            change.start_run(run, lease)
            return self._run_facts(run, change)

        return self.write(who, session_id, effect, request=("start_run", run_id), allowed=works(who), **options)

    def _run(self, session: ModelSession, run_id: str) -> ModelRun:
        if run_id not in session.runs:
            raise Refused("run_not_found")
        return session.runs[run_id]

    def _run_facts(self, run: ModelRun, change: Change) -> Facts:
        return {"run_id": run.run_id, "status": run.status, "attempt": run.attempt, "version": change.done()}

    def renew_run(self, who: Principal, session_id: str, *, writer: tuple[str, int]) -> Facts:
        def effect(session: ModelSession) -> Facts:
            session.lease_until = self.clock.lease_now + session.lease
            session.lease_clock = self.clock.lease_clock
            return {"cancel_requested": session.runs[writer[0]].cancel_requested}

        return self.write(who, session_id, effect, request=None, writer=writer, allowed=works(who))

    def add_step(
        self, who: Principal, session_id: str, *, tokens: int, writer: tuple[str, int], **options: Any
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            run = session.runs[writer[0]]
            change = Change(self, session, who.actor)
            run.tokens += tokens
            change.count_step(run.run_id)
            change.event("run_step", run_id=run.run_id)
            return self._run_facts(run, change)

        # A step's request names its run, not the attempt.
        request = ("step", writer[0], tokens)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    def end_run(
        self, who: Principal, session_id: str, *, status: str, writer: tuple[str, int], **options: Any
    ) -> Facts:
        reasons = {"COMPLETED": "end_turn", "FAILED": "error", "CANCELLED": "cancelled"}

        def effect(session: ModelSession) -> Facts:
            run = session.runs[writer[0]]
            change = Change(self, session, who.actor)
            calls = "cancelled" if status == "CANCELLED" else "unknown"
            error = "broken" if status == "FAILED" else None
            change.end_run(run, status, reasons[status], error=error, calls=calls)
            return self._run_facts(run, change)

        request = ("end_run", writer, status)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    def cancel_run(self, who: Principal, session_id: str, *, run_id: str, reason: str, **options: Any) -> Facts:
        def effect(session: ModelSession) -> Facts:
            run = self._run(session, run_id)
            if run.status in ("COMPLETED", "FAILED"):
                raise Refused("illegal_transition")
            facts: Facts = {"run_id": run_id, "attempt": run.attempt}
            if run.status not in ENDED and not run.cancel_requested:
                change = Change(self, session, who.actor)
                change.stop_run(run, reason)
                change.done()
            return facts | {"status": run.status, "version": session.version}

        return self.write(who, session_id, effect, request=("cancel_run", run_id, reason), **options)

    # -- what is overdue, and lists

    def sweep(self) -> None:
        for session in self.sessions.values():
            self.settle(session)

    def read(self, who: Principal, session_id: str) -> ModelSession:
        session = self.visible(who, session_id)
        self.settle(session)
        if session.status == "DELETED":
            raise Refused("session_deleted")
        return session

    def status_now(self, session: ModelSession) -> str:
        expires = session.expires
        return "EXPIRED" if expires is not None and self.clock.now >= expires else session.status

    def listed(self, who: Principal, status: str | None) -> list[str]:
        shown = [
            session
            for session in self.sessions.values()
            if self.sees(who, session)
            and session.status != "DELETED"
            and (status is None or self.status_now(session) == status)
        ]
        shown.sort(key=lambda session: (session.updated, session.session_id.encode()), reverse=True)
        return [session.session_id for session in shown]
