"""What is done to whole sessions, in the plain model."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from satchel.domain.principal import Principal
from tests.property.model import (
    Change,
    Facts,
    Model,
    ModelPolicy,
    ModelSession,
    Refused,
    side_of,
)


class SessionVerbs(Model):
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
            if session.user_id == owner and session.status != "DELETED":
                return self._found_again(who, session, request, external_id, if_exists, key)
            if external_id is None:
                raise Refused("session_deleted" if session.user_id == owner else "session_not_found")
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
            change.event("session_restored", note=reason)
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
                change.event("session_transferred", note=(session.user_id, to))
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
                change.event("title_changed", note=title)
                change.touch("title")
                session.title = title
            if metadata is not None:
                merged = session.metadata | metadata
                merged = {name: value for name, value in merged.items() if name not in metadata or value is not None}
                if merged != session.metadata:
                    change.event("metadata_changed", note=metadata)
                    change.touch("metadata")
                    session.metadata = merged
            if any(entry.version == change.version for entry in session.log):
                change.done()
            return {"session_id": session_id}

        return self.write(who, session_id, effect, request=("update", title, metadata), **options)

    def _moved(self, source: ModelSession) -> tuple[ModelSession, Change]:
        """A copy whose clocks start anew and whose open work has ended: leases and keys do not travel."""
        session = copy.deepcopy(source)
        session.keys = {}
        session.clock_from = session.active = self.clock.now
        change = Change(self, session, "operator")
        for run_id in [*session.children, *session.queue, *([session.turn] if session.turn else [])]:
            change.end_run(session.runs[run_id], "FAILED", "moved", error="moved")
        for call in session.open_calls():
            change.end_call(call, "unknown")
        return session, change

    def import_session(self, source: ModelSession, tenant_id: str, *, fresh: str) -> Facts:
        """``source`` was exported, and comes to the user of the same name in ``tenant_id``."""
        name = source.external_id or source.session_id
        owner, generation = source.user_id, 0
        while (found := self.named.get((tenant_id, owner, name, generation))) is not None:
            there = self.sessions[tenant_id, found]
            if there.status != "DELETED" and there.user_id == owner:
                return {"session_id": found, "result": "exists" if _holds(there, source) else "differs"}
            generation += 1
        session, change = self._moved(source)
        session.tenant_id, session.session_id = tenant_id, fresh
        session.external_id, session.generation = name, generation
        session.first_title, session.first_metadata = session.title, session.metadata
        if session.last_seq > source.last_seq:
            change.done()
        self.sessions[tenant_id, fresh] = session
        self.named[tenant_id, owner, name, generation] = fresh
        return {"session_id": fresh, "result": "imported"}

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
        now = self.clock.now
        session, change = self._moved(source)
        session.session_id, session.external_id, session.generation = fresh, None, 0
        session.created = now
        session.updated = max([now, *(entry.at for entry in session.log)])
        wanted = source.title if title is None else title
        session.first_title, session.first_metadata = wanted, session.metadata
        if any(entry.kind == "title_changed" for entry in session.log) and wanted != session.title:
            change.event("title_changed", note=wanted)
            change.touch("title")
        session.title = wanted
        if session.status != "ACTIVE":
            change.event("session_restored", note="fork")
            change.moved("ACTIVE", "fork")
        if session.last_seq > source.last_seq:
            change.done()
        self.sessions[who.tenant_id, fresh] = session
        answer: Facts = {"session_id": fresh, "replayed": False}
        if key is not None:  # as with a creation, the key's record stands in the new session
            session.keys[side_of(who), key] = (("fork", session_id, title), answer)
        return answer


def _holds(there: ModelSession, source: ModelSession) -> bool:
    """Whether it begins with all that was done in ``source``. That it expired by itself in the end, with what was open, was done
    by nobody."""
    last = source.log[-1] if source.log else None
    by_time = [] if last is None or last.version != source.expired_in else [last.version]
    done = [replace(entry, actor="") for entry in source.log if entry.version not in by_time]  # whoever did it
    ended = [entry for entry in source.log if entry.version in by_time]
    runs = {entry.run_id for entry in ended if entry.kind == "run_ended"}
    calls = {entry.refers_to for entry in ended if entry.kind == "tool_call_finished"}
    return (
        there.created == source.created
        and [replace(entry, actor="") for entry in there.log[: len(done)]] == done
        # The log of a model does not say how these ended.
        and all(
            (run.status, run.stop_reason) == (there.runs[run.run_id].status, there.runs[run.run_id].stop_reason)
            for run in source.runs.values()
            if run.ended is not None and run.run_id not in runs
        )
        and all(
            (call.status, call.result, call.error)
            == (there.calls[seq].status, there.calls[seq].result, there.calls[seq].error)
            for seq, call in source.calls.items()
            if call.end is not None and seq not in calls
        )
    )
