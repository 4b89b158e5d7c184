"""Who may do what. Ownership comes first: what a principal cannot see, it is told does not exist."""

from __future__ import annotations

from typing import Literal

from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.errors import NotAllowed

Right = Literal[
    "use",  # create, read, list, rename, close, restore, delete, fork, export; user messages; add, cancel, answer runs
    "work",  # assistant and tool messages, working memory, tool history, run progress
    "instruct",  # system and developer messages
    "govern",  # expire, transfer
]


def may_see(principal: Principal, record: SessionRecord) -> bool:
    """Whether the session is this principal's. Both sides are compared byte by byte; None is all of one tenant."""
    if record.tenant_id != principal.tenant_id:
        return False
    user_id = principal.user_id
    return user_id is None or user_id == record.user_id


def may(principal: Principal, right: Right) -> bool:
    role = principal.role
    if right == "use" or role in ("operator", "admin"):
        return True
    if right == "work":
        return role == "agent"
    if right == "instruct":
        return role == "agent" and (principal.acting_for is None or principal.is_local)
    return False


def require(principal: Principal, right: Right, action: str) -> None:
    """Raises NotAllowed. A role is refused, never rewritten."""
    if not may(principal, right):
        raise NotAllowed(role=principal.role, action=action)
