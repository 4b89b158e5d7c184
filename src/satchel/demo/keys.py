"""Who calls in the demo, and by which API keys."""

from __future__ import annotations

from typing import NamedTuple

from satchel import OpenStore, Principal
from satchel.http.keys import KeyRing

LASTING = 86_400.0  # seconds; a demo that is killed leaves its keys behind


class Caller(NamedTuple):
    """``user``: who it is, or for whom an agent acts."""

    name: str
    role: str
    user: str

    def principal(self, tenant: str) -> Principal:
        """Who a server takes the caller for."""
        if self.role == "user":
            return Principal.user(self.user, tenant_id=tenant)
        return Principal.agent(self.name, tenant_id=tenant, acting_for=self.user)


ADA = Caller("ada", "user", "ada")
BOB = Caller("bob", "user", "bob")
DESK = Caller("desk", "agent", "ada")  # an agent of Ada's that is no run
CALLERS = (ADA, BOB, DESK)


class Keys:
    """A key for each caller."""

    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._keys: dict[Caller, str] = {}

    async def make(self, store: OpenStore) -> None:
        ring = KeyRing(store)
        for caller in CALLERS:
            whose = {"user_id": caller.user} if caller.role == "user" else {"acting_for": caller.user}
            self._keys[caller] = await ring.create(
                tenant_id=self._tenant, role=caller.role, expires_in=LASTING, **whose
            )

    def of(self, caller: Caller) -> str:
        return self._keys[caller]

    async def revoke(self, store: OpenStore) -> None:
        """Those that were made, however far ``make`` came."""
        ring = KeyRing(store)
        for key in await ring.kept(tenant_id=self._tenant):
            await ring.revoke(key.key_id)
