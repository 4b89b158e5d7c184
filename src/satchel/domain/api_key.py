"""API keys: what one looks like, what is kept of it, and whom it stands for.

A key is a prefix, an id and a secret of 256 random bits. Only a hash of the secret is kept: it cannot be guessed, so a
quick hash will do.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from satchel.domain.ids import checked_id
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.domain.principal import Principal
from satchel.errors import InvalidInput, NotAllowed, Unauthenticated

KeyRole = Literal["user", "agent", "admin"]
KEY_ROLES: tuple[KeyRole, ...] = ("user", "agent", "admin")

ID_BYTES = 10
SECRET_BYTES = 32
_KEY = re.compile(r"satchel_([a-z2-7]{16})_([a-z2-7]{52})")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key as it is kept. ``subject`` is how events name its holder; times are microseconds."""

    key_id: str
    secret_hash: str
    tenant_id: str
    role: KeyRole
    subject: str
    acting_for: str | None = None
    created_at: int
    expires_at: int | None = None

    def is_expired(self, now: int) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def opens_with(self, secret: str) -> bool:
        return hmac.compare_digest(self.secret_hash, hash_secret(secret))

    def principal(self, acting_for: str | None = None) -> Principal:
        """Whom the key stands for; an agent's may be narrowed to one user by the request. Raises NotAllowed."""
        if acting_for is not None and acting_for != self.acting_for:
            if self.role != "agent":
                raise NotAllowed(role=self.role, action="act for somebody else")
            if self.acting_for is not None:
                raise NotAllowed(role=self.role, action="act for another user than its key's")
        return Principal(
            tenant_id=self.tenant_id, subject=self.subject, role=self.role, acting_for=acting_for or self.acting_for
        )


def make_key(
    bits: bytes,
    *,
    tenant_id: str,
    role: str,
    user_id: str | None = None,
    acting_for: str | None = None,
    now: int,
    expires_at: int | None = None,
) -> tuple[ApiKey, str]:
    """What is kept, and the key itself, which nobody can ask for again. ``bits``: ID_BYTES + SECRET_BYTES random bytes.

    A user's key needs ``user_id``; an admin's may have one, as the name in the log. An agent's may be bound to one user by
    ``acting_for``. Raises InvalidInput.
    """
    if role not in KEY_ROLES:
        raise InvalidInput(f"must be one of {', '.join(KEY_ROLES)}", field="role")
    checked_id(tenant_id, field="tenant", limits=DEFAULT_LIMITS)
    for name, value in (("user", user_id), ("acting_for", acting_for)):
        if value is not None:
            checked_id(value, field=name, limits=DEFAULT_LIMITS)
    if role == "user" and user_id is None:
        raise InvalidInput("is needed: a user's key stands for one user", field="user")
    if role == "agent" and user_id is not None:
        raise InvalidInput("is not for agents; acting_for binds an agent's key to one user", field="user")
    if role != "agent" and acting_for is not None:
        raise InvalidInput(f"is for agents: a key of role {role} acts for nobody else", field="acting_for")
    if expires_at is not None and expires_at <= now:
        raise InvalidInput("must be later than now", field="expires_at")
    key_id = _letters(bits[:ID_BYTES])
    secret = _letters(bits[ID_BYTES : ID_BYTES + SECRET_BYTES])
    kept = ApiKey(
        key_id=key_id,
        secret_hash=hash_secret(secret),
        tenant_id=tenant_id,
        role=role,
        subject=user_id or f"key-{key_id}",
        acting_for=acting_for,
        created_at=now,
        expires_at=expires_at,
    )
    return kept, f"satchel_{key_id}_{secret}"


def split_key(text: str) -> tuple[str, str]:
    """The id and the secret of what may be a key. Raises Unauthenticated, which does not repeat it."""
    found = _KEY.fullmatch(text)
    if found is None:
        raise Unauthenticated("not a key of this service")
    return found[1], found[2]


def check_key(kept: ApiKey | None, secret: str, now: int) -> ApiKey:
    """Raises Unauthenticated: the same for a key that never was, that was revoked, and that is another's."""
    if kept is None or not kept.opens_with(secret) or kept.is_expired(now):
        raise Unauthenticated("this key is unknown, revoked or expired")
    return kept


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _letters(data: bytes) -> str:
    return base64.b32encode(data).decode().lower().rstrip("=")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[ApiKey]).decode


def encode_keys(keys: Iterable[ApiKey]) -> bytes:
    return _encode(list(keys))


def decode_keys(data: bytes) -> list[ApiKey]:
    """Raises ValueError."""
    return _decode(data)
