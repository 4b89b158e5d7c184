"""A batch of changes: a script for each, all of a server's in one pipeline. What is certain is answered; what nobody can
know is UNKNOWN."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, SessionState
from satchel.errors import SatchelError, StoreUnavailable
from satchel.store import Change, Loaded, Outcome
from satchel.stores.redis.applying import NO_BASIS, Basis, Prepared, prepare
from satchel.stores.redis.connection import LOST, Command, Reply, call, is_of_one_command, meaning_of
from satchel.stores.redis.names import Keys
from satchel.stores.redis.servers import Servers, slot_of

_log = logging.getLogger("satchel.stores.redis")

KEPT_PLACES = 100_000
HELD_FOR = 0.25  # seconds for which a session is held for one writer, at most: from its load to its commit
_BAD_VALUES = (ValueError, TypeError, AttributeError, OverflowError)


class Written(NamedTuple):
    """``now``: the server's clock, where it answered with it."""

    outcomes: list[Outcome]
    now: int | None


class Directory:
    """In which buckets a user, or a tenant, may have sessions. It is written before the first session there, so no session is
    ever missing in a list; a bucket that stands there for nothing costs a look. What was written once is remembered."""

    def __init__(self, servers: Servers, keys: Keys) -> None:
        self._servers = servers
        self._keys = keys
        self._known: set[tuple[str, str, int]] = set()

    async def enter(self, changes: Sequence[Change], basis: Basis) -> None:
        """Before the sessions themselves: what does not stand there yet, as far as is known; twice is fine. Raises
        StoreUnavailable and StoreBusy."""
        found: dict[bytes, Command] = {}
        for change in changes:
            tenant_id, user_id = change.ref.tenant_id, change.record.user_id
            bucket = self._keys.names(change.ref).bucket
            if change.base is not None:
                before = basis.records.get(change.ref)
                has_entry = (tenant_id, user_id, bucket) in self._known if before is None else before.user_id == user_id
                if has_entry:
                    continue
            for key in (self._keys.buckets_of(tenant_id, None), self._keys.buckets_of(tenant_id, user_id)):
                found[b"%d %b" % (bucket, key)] = Command(slot_of(key), ("SADD", key, bucket))
        if not found:
            return
        for reply in await self._servers.run(list(found.values()), writes=True):
            if isinstance(reply, Exception):
                raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
        if len(self._known) > KEPT_PLACES:
            self._known.clear()
        self._known.update(
            (change.ref.tenant_id, change.record.user_id, self._keys.names(change.ref).bucket) for change in changes
        )


class Writer:
    """``holder`` names this store among all that write."""

    def __init__(self, servers: Servers, keys: Keys, *, holder: str) -> None:
        self._servers = servers
        self._keys = keys
        self._holder = holder
        self._directory = Directory(servers, keys)

    async def write(self, changes: Sequence[Change], clock: Clock | None, basis: Basis = NO_BASIS) -> Written:
        """``clock`` where it is not the server's. Raises StoreUnavailable and StoreBusy: nothing was stored."""
        outcomes = [Outcome.REJECTED] * len(changes)
        commands: list[Command] = []
        places: list[int] = []
        for place, change in enumerate(changes):
            command = self._command(change, clock, basis)
            if command is not None:
                commands.append(command)
                places.append(place)
        if not commands:
            return Written(outcomes, None)
        await self._directory.enter([changes[place] for place in places], basis)
        replies = await self._servers.run(commands, writes=True)
        now: int | None = None
        for index, place in enumerate(places):
            if replies[index] == -2 or isinstance(replies[index], bytes):
                replies[index] = await self._write_fully(changes[place], clock, basis, replies[index])
            outcomes[place] = _outcome(changes[place].ref, replies[index])
            if outcomes[place] is Outcome.APPLIED:
                now = replies[index]
        if Outcome.APPLIED not in outcomes and Outcome.UNKNOWN not in outcomes:
            for reply in replies:
                if isinstance(reply, Exception) and not is_of_one_command(reply):  # of the server: it holds for all
                    raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
        return Written(outcomes, now)

    def _command(
        self, change: Change, clock: Clock | None, basis: Basis, *, is_full: bool = False, old_user: str | None = None
    ) -> Command | None:
        """None for what cannot be stored."""
        try:
            prepared: Prepared = prepare(
                self._keys, change, clock, basis, holder=self._holder, is_full=is_full, old_user=old_user
            )
        except _BAD_VALUES:
            _log.exception("a change of session %s cannot be stored", ascii(change.ref.session_id))
            return None
        return call(self._keys.slots[prepared.names.bucket], "commit", prepared.keys, prepared.arguments)

    async def confirm(self, loaded: Loaded, refs: Iterable[SessionRef]) -> bool:
        """That all replicas have these sessions as they were loaded: what is answered on them may be an earlier write that its
        caller never heard of. False: they changed since. Raises StoreUnavailable: the replicas do not say."""
        commands: list[Command] = []
        for ref in refs:
            state = loaded.sessions[ref]
            if not isinstance(state, SessionState):
                continue
            names = self._keys.names(ref)
            slot = self._keys.slots[names.bucket]
            if self._servers.needed(self._servers.owner(slot)).is_none:
                continue
            record = state.record
            seen = (b"", b"") if record is None else (record.revision, record.updated_at)
            commands.append(call(slot, "fence", (names.session, self._keys.fence(names.bucket)), seen))
        if not commands:
            return True
        replies = await self._servers.run(commands, writes=True)
        for reply in replies:
            if reply is LOST:
                raise StoreUnavailable("too few replicas have what was written last")
            if isinstance(reply, Exception):
                raise reply if isinstance(reply, SatchelError) else meaning_of(reply)
        return 0 not in replies

    def hold(self, refs: Iterable[SessionRef], own_now: bytes | int, *, seconds: float = HELD_FOR) -> list[Command]:
        """Keeps sessions for this writer for a moment; each answers 1 if it does. For 0 seconds lets go of them."""
        found: list[Command] = []
        for ref in refs:
            names = self._keys.names(ref)
            arguments = (own_now, self._holder, int(seconds * 1e6))
            found.append(call(self._keys.slots[names.bucket], "hold", (names.session,), arguments))
        return found

    async def _write_fully(self, change: Change, clock: Clock | None, basis: Basis, reply: Reply) -> Reply:
        """The script needs keys that it was not given: of the queues, or of the list of the user before."""
        for _ in range(2):
            old_user = reply.decode() if isinstance(reply, bytes) else None
            command = self._command(change, clock, basis, is_full=True, old_user=old_user)
            assert command is not None  # it was sound a moment ago
            try:
                (reply,) = await self._servers.run([command], writes=True)
            except SatchelError as error:
                return error
            if not isinstance(reply, bytes):
                return reply
        return 0  # somebody else changed it meanwhile


def _outcome(ref: SessionRef, reply: Reply) -> Outcome:
    if reply is LOST:
        return Outcome.UNKNOWN
    if isinstance(reply, Exception):
        if not is_of_one_command(reply):
            return Outcome.STALE  # nothing was stored, and whoever asks again will hear why
        _log.error("a change of session %s cannot be stored: %s", ascii(ref.session_id), reply)
        return Outcome.REJECTED
    if reply == -1:
        _log.error("a change of session %s does not follow on its log", ascii(ref.session_id))
        return Outcome.REJECTED
    return Outcome.APPLIED if reply > 0 else Outcome.STALE
