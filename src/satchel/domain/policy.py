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
    context_window: int | None = None
    context_share: float = 0.8


DEFAULT_POLICY = SessionPolicy()


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What a server, a tenant or a session wants to differ from the default; what is not given is inherited.

    ``idle``: EXPIRED after this time without an accepted change (default 30 days). ``max_lifetime``: EXPIRED this long
    after creation or restore, busy or not. ``retention``: erased this long after it was closed or expired; by default
    nothing is erased unless somebody asks. None switches a duration off.

    ``context_window``: the tokens that the session's model can read (None, the default: not known), and ``context_share`` of
    it (default 0.8): a write that makes the session's ``context_tokens`` pass it adds an event ``context_threshold``.
    """

    idle: timedelta | UnsetType | None = UNSET
    max_lifetime: timedelta | UnsetType | None = UNSET
    retention: timedelta | UnsetType | None = UNSET
    restore_closed: RestoreBy | UnsetType = UNSET
    restore_expired: RestoreBy | UnsetType = UNSET
    context_window: int | UnsetType | None = UNSET
    context_share: float | UnsetType = UNSET

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
        changes |= self._window()
        return msgspec.structs.replace(base, **changes) if changes else base

    def _window(self) -> dict[str, object]:
        changes: dict[str, object] = {}
        if self.context_window is not UNSET:
            window = self.context_window
            if window is not None and (type(window) is not int or not 1 <= window < 1 << 53):
                raise InvalidInput("must be a whole number of tokens, or None", field="policy.context_window")
            changes["context_window"] = window
        if self.context_share is not UNSET:
            share = self.context_share
            if type(share) not in (int, float) or not 0 < share <= 1:
                raise InvalidInput("must be more than 0 and at most 1", field="policy.context_share")
            changes["context_share"] = float(share)
        return changes
