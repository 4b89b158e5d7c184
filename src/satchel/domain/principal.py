"""Who is calling."""

from __future__ import annotations

from typing import Literal

import msgspec

from satchel.domain.ids import checked_id
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.errors import InvalidInput, Unauthenticated

Role = Literal["user", "agent", "admin", "operator"]
ROLES: tuple[Role, ...] = ("user", "agent", "admin", "operator")

LOCAL = "local"


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A caller: one tenant, a subject in it, a role, and for an agent (or the operator) the one user it acts for.

    An empty text is not an identity: constructing one raises Unauthenticated.
    """

    tenant_id: str
    subject: str
    role: Role
    acting_for: str | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise Unauthenticated(f"unknown role {self.role!r}")
        for name, value in (("tenant_id", self.tenant_id), ("subject", self.subject), ("acting_for", self.acting_for)):
            if name == "acting_for" and value is None:
                continue
            try:
                checked_id(value, field=name, limits=DEFAULT_LIMITS)
            except InvalidInput as wrong:
                raise Unauthenticated(f"no identity: {wrong}") from wrong
        if self.acting_for is not None and self.role not in ("agent", "operator"):
            raise Unauthenticated(f"role {self.role!r} cannot act for somebody else")

    @classmethod
    def user(cls, subject: str, *, tenant_id: str) -> Principal:
        """A person: sees and changes own sessions."""
        return cls(tenant_id=tenant_id, subject=subject, role="user")

    @classmethod
    def agent(cls, subject: str, *, tenant_id: str, acting_for: str | None = None) -> Principal:
        """A program of the tenant; narrowed to one user by ``acting_for``."""
        return cls(tenant_id=tenant_id, subject=subject, role="agent", acting_for=acting_for)

    @classmethod
    def admin(cls, subject: str, *, tenant_id: str) -> Principal:
        """A person who looks after all sessions of a tenant."""
        return cls(tenant_id=tenant_id, subject=subject, role="admin")

    @classmethod
    def operator(cls, *, tenant_id: str, acting_for: str | None = None) -> Principal:
        """The machine's own hand: the sweeper, and the command line on a store's URL."""
        return cls(tenant_id=tenant_id, subject="operator", role="operator", acting_for=acting_for)

    @classmethod
    def local(cls) -> Principal:
        """The only user of a private ``memory:`` store, with an agent's rights over its own sessions."""
        return cls(tenant_id=LOCAL, subject=LOCAL, role="agent", acting_for=LOCAL)

    @property
    def user_id(self) -> str | None:
        """The one user whose sessions this principal reaches; None: all of the tenant's."""
        return self.subject if self.role == "user" else self.acting_for

    @property
    def actor(self) -> str:
        """How events name this principal: ``user:ada``, ``agent:shop``, ``operator``."""
        return "operator" if self.role == "operator" else f"{self.role}:{self.subject}"

    @property
    def side(self) -> str:
        """The side of a session whose idempotency keys this principal shares."""
        return f"user:{self.user_id}" if self.user_id is not None else self.role

    @property
    def is_local(self) -> bool:
        return self.role == "agent" and self.tenant_id == self.subject == self.acting_for == LOCAL
