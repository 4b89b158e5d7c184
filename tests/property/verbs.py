"""Every verb of the public door, in the plain model. The arguments are those of the managers."""

from __future__ import annotations

import pickle

from satchel.domain.principal import Principal
from tests.property.content_verbs import ContentVerbs
from tests.property.model import (
    ModelSession,
    Refused,
)
from tests.property.run_verbs import RunVerbs
from tests.property.session_verbs import SessionVerbs


class Verbs(SessionVerbs, ContentVerbs, RunVerbs):
    def copy(self) -> Verbs:
        other = Verbs(self.clock)
        other.sessions = pickle.loads(pickle.dumps(self.sessions))  # noqa: S301  # our own; four times as quick as a deepcopy
        other.named = dict(self.named)
        other.keyed = dict(self.keyed)
        other.forks = dict(self.forks)
        return other

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
        now, expires, erases = self.clock.now, session.expires, session.erases
        if expires is not None and now >= expires:
            retention = session.policy.retention
            return "DELETED" if retention is not None and now >= expires + retention else "EXPIRED"
        return "DELETED" if erases is not None and now >= erases else session.status

    def listed(self, who: Principal, status: str | None) -> list[str]:
        shown = [
            session
            for session in self.sessions.values()
            if self.sees(who, session)
            and self.status_now(session) != "DELETED"
            and (status is None or self.status_now(session) == status)
        ]
        shown.sort(key=lambda session: (session.updated, session.session_id.encode()), reverse=True)
        return [session.session_id for session in shown]
