"""Who may do what. Ownership comes first: what a principal cannot see, it is told does not exist."""

from __future__ import annotations

from typing import Literal

from satchel.domain.ids import checked_id
from satchel.domain.limits import Limits
from satchel.domain.message import Draft
from satchel.domain.principal import Principal
from satchel.domain.record import SessionRecord
from satchel.errors import InvalidInput, LimitExceeded, NotAllowed

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


def new_owner(principal: Principal, user_id: str | None, *, limits: Limits) -> str:
    """Whose a new session will be. Raises InvalidInput, NotAllowed."""
    bound = principal.user_id
    if user_id is None:
        if bound is None:
            raise InvalidInput("is needed: this principal is not bound to one user", field="user_id")
        return bound
    checked_id(user_id, field="user_id", limits=limits)
    if bound is not None and user_id != bound:
        raise NotAllowed(role=principal.role, action=f"create sessions of users other than {bound!r}")
    return user_id


def check_user_size(principal: Principal, draft: Draft, *, limits: Limits, field: str) -> None:
    """A user's message may be smaller than an agent's. Raises LimitExceeded."""
    if principal.role == "user" and len(draft.body) > limits.user_message:
        raise LimitExceeded(field=field, size=len(draft.body), limit=limits.user_message, setting="limits.user_message")


def require(principal: Principal, right: Right, action: str) -> None:
    """Raises NotAllowed. A role is refused, never rewritten."""
    if not may(principal, right):
        raise NotAllowed(role=principal.role, action=action)
