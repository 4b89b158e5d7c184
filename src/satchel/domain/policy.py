"""How long a session lives, and who may open it again."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from satchel.domain.clock import DAY
from satchel.errors import InvalidInput

LONGEST = 36_500 * DAY

RestoreBy = Literal["owner", "admin", "never"]


class SessionPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy that one session was given; durations in microseconds, None is never."""

    idle: int | None = 30 * DAY
    max_lifetime: int | None = None
    retention: int | None = None
    restore_closed: RestoreBy = "owner"
    restore_expired: RestoreBy = "owner"


DEFAULT_POLICY = SessionPolicy()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a server, a tenant or a session wants to differ from the default; what is not given is inherited.

    ``idle``: EXPIRED after this time without an accepted change (default 30 days). ``max_lifetime``: EXPIRED this long
    after creation or restore, busy or not. ``retention``: erased this long after it was closed or expired; by default
    nothing is erased unless somebody asks. None switches a duration off.
    """

    idle: timedelta | UnsetType | None = UNSET
    max_lifetime: timedelta | UnsetType | None = UNSET
    retention: timedelta | UnsetType | None = UNSET
    restore_closed: RestoreBy | UnsetType = UNSET
    restore_expired: RestoreBy | UnsetType = UNSET

    def over(self, base: SessionPolicy) -> SessionPolicy:
        """This policy's wishes, laid over ``base``. Raises InvalidInput for a duration that is not positive."""
        changes: dict[str, object] = {}
        for name in ("idle", "max_lifetime", "retention"):
            value = getattr(self, name)
            if value is UNSET:
                continue
            if value is not None and not isinstance(value, timedelta):
                raise InvalidInput(f"must be a timedelta or None, not {type(value).__name__}", field=f"policy.{name}")
            micros = None if value is None else value // timedelta(microseconds=1)
            if micros is not None and micros <= 0:
                raise InvalidInput("must be longer than nothing", field=f"policy.{name}")
            if micros is not None and micros > LONGEST:  # what it leads to must be a date that can be shown
                raise InvalidInput("must be at most 36500 days; None is never", field=f"policy.{name}")
            changes[name] = micros
        for name in ("restore_closed", "restore_expired"):
            value = getattr(self, name)
            if value is UNSET:
                continue
            if value not in ("owner", "admin", "never"):
                raise InvalidInput("must be owner, admin or never", field=f"policy.{name}")
            changes[name] = value
        return msgspec.structs.replace(base, **changes) if changes else base
