"""The turn, the queue, and what happens to a run between them, in the plain model."""

from __future__ import annotations

from typing import Any

from satchel.domain.principal import Principal
from tests.property.model import (
    ENDED,
    Change,
    Facts,
    Model,
    ModelRun,
    ModelSession,
    Refused,
    side_of,
)
from tests.property.rights import works


class RunVerbs(Model):
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
        memory: str,
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
                memory=memory,
                input=body,
                added_by=who.actor,
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
            if start and run.status == "READY":  # its client waits, and will start it
                change.give_lease(run, lease)
            return {"run_id": fresh, "status": run.status, "attempt": run.attempt, "version": change.done()}

        request = ("add_run", goal, input, on_busy, max_attempts, memory, start)
        allowed = not start or works(who)
        return self.write(who, session_id, effect, request=request, turn_check=admit, allowed=allowed, **options)

    def add_child_run(
        self, who: Principal, session_id: str, *, fresh: str, goal: str, writer: tuple[str, int], **options: Any
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            if session.turn != writer[0]:
                raise Refused("run_nested")
            if len(session.children) >= 32:
                raise Refused("limit_exceeded")
            change = Change(self, session, who.actor)
            run = ModelRun(
                run_id=fresh,
                number=len(session.runs) + 1,
                goal=goal,
                created=self.clock.now,
                max_attempts=1,
                input=None,
                status="RUNNING",
                attempt=1,
                started=self.clock.now,
                parent_run_id=writer[0],
            )
            session.runs[fresh] = run
            session.children.append(fresh)
            change.wrote_run(run)
            change.event("run_added", run_id=fresh)
            return self._run_facts(run, change)

        request = ("add_child_run", writer, goal)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

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
            if session.turn != writer[0]:  # a child run lives under its parent's lease
                raise Refused("run_fenced")
            self._renew(session, writer[0])
            return {"cancel_requested": session.runs[writer[0]].cancel_requested}

        return self.write(who, session_id, effect, request=None, writer=writer, allowed=works(who))

    def _renew(self, session: ModelSession, run_id: str) -> None:
        lease = session.leases[run_id]
        lease.until, lease.clock = self.clock.lease_now + lease.each, self.clock.lease_clock

    def keep_waiting(self, who: Principal, session_id: str, *, run_id: str) -> Facts:
        def effect(session: ModelSession) -> Facts:
            run = self._run(session, run_id)
            if run.status in ("READY", "WAITING") and run_id in session.leases:
                self._renew(session, run_id)
            return {"run_id": run_id, "status": run.status, "attempt": run.attempt}

        return self.write(who, session_id, effect, request=None, allowed=works(who))

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
            if status == "COMPLETED" and run.memory == "run":
                change.wrote_run(run)
                change.merge(run)
            change.end_run(run, status, reasons[status], error=error, calls=calls)
            return self._run_facts(run, change)

        request = ("end_run", writer, status)
        return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), **options)

    def ask_question(
        self,
        who: Principal,
        session_id: str,
        *,
        name: str,
        wants: str,
        expires_in: int,
        here: bool,
        writer: tuple[str, int],
        key: str | None,
    ) -> Facts:
        def asked(session: ModelSession) -> Facts:
            run = session.runs[writer[0]]
            known = {"is_answered": name in run.answered, "answer": run.answered.get(name)}
            return {"run_id": run.run_id, "status": run.status, "attempt": run.attempt, **known}

        def effect(session: ModelSession) -> Facts:
            run = session.runs[writer[0]]
            if name in run.answered:
                return asked(session) | {"version": session.version}
            if run.parent_run_id is not None:
                raise Refused("illegal_transition")
            if run.cancel_requested:
                raise Refused("cancel_requested")
            if session.children:
                raise Refused("illegal_transition")
            if any(call.run_id == run.run_id for call in session.open_calls()):
                raise Refused("tool_call_open")
            change = Change(self, session, who.actor)
            run.status, run.question, run.wants = "WAITING", name, wants
            run.expires = self.clock.now + expires_in
            change.wrote_run(run)
            change.event("question_asked", run_id=run.run_id)
            if here:
                self._renew(session, run.run_id)
            else:
                del session.leases[run.run_id]
            return asked(session) | {"version": change.done()}

        request = ("ask", writer, name, wants, here)
        try:
            return self.write(who, session_id, effect, request=request, writer=writer, allowed=works(who), key=key)
        except Refused as refused:
            session = self.sessions.get((who.tenant_id, session_id))
            if refused.code != "run_fenced" or session is None or session.turn != writer[0]:
                raise
            run = session.runs[writer[0]]
            if (run.status, run.attempt, run.question) != ("WAITING", writer[1], name):
                raise
            answer = asked(session) | {"version": session.version, "replayed": False}  # it is asked
            if key is not None:
                session.keys[f"{side_of(who)} {writer}", key] = (request, answer)
            return answer

    def answer_run(
        self, who: Principal, session_id: str, *, run_id: str, answer: Any, name: str | None, **options: Any
    ) -> Facts:
        def effect(session: ModelSession) -> Facts:
            run = self._run(session, run_id)
            if run.status != "WAITING" or run.question is None:
                raise Refused("illegal_transition")
            if name not in (None, run.question):
                raise Refused("other_question")
            if run.wants == "integer" and not isinstance(answer, int):
                raise Refused("invalid_input")
            change = Change(self, session, who.actor)
            run.answered[run.question] = answer
            run.status, run.question, run.expires = "READY", None, None
            change.wrote_run(run)
            change.event("question_answered", run_id=run_id)
            return self._run_facts(run, change)

        return self.write(who, session_id, effect, request=("answer_run", run_id, answer, name), **options)

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
