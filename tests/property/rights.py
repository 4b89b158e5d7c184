"""Who may do what, plainly."""

from __future__ import annotations

from satchel.domain.principal import Principal

Writer = tuple[str, int] | None


def works(who: Principal) -> bool:
    return who.role in ("agent", "admin", "operator")


def may_write(who: Principal, role: str | None) -> bool:
    if role == "user":
        return True
    if role in ("system", "developer"):
        return who.role in ("admin", "operator") or (who.role == "agent" and who.acting_for is None)
    return works(who)
