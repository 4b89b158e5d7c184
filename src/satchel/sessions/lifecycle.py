"""A session begins, changes its name or owner, rests, comes back, and ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from satchel.access import behind_a_write, checked_choice, checked_policy, request
from satchel.domain.decisions.lifecycle import (
    CloseSession,
    CreateSession,
    DeleteSession,
    ExpireSession,
    GenerationTaken,
    LifecycleDecision,
    RestoreSession,
    TransferSession,
    UpdateSession,
)
from satchel.domain.ids import RANDOM_BYTES, SessionRef, checked_id, derived_session_id, encode_id
from satchel.domain.message import admit_metadata
from satchel.domain.policy import Policy
from satchel.domain.rights import new_owner
from satchel.domain.session import Session, session_from
from satchel.runs import checked_text
from satchel.sessions.generations import generation_behind, ref_of
from satchel.sessions.reading import SessionReading
from satchel.sweeper import erase

_encode = msgspec.json.Encoder().encode


class SessionLifecycle(SessionReading):
    """Methods that make, rename, move, close, restore and delete a session."""

    async def create_session(
        self,
        *,
        title: str = "",
        user_id: str | None = None,
        external_id: str | None = None,
        if_exists: Literal["return", "raise"] = "return",
        metadata: Mapping[str, Any] | None = None,
        policy: Policy | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A new session: ACTIVE, version 0.

        ``user_id`` is the owner: left out by a user and by an agent acting for one, needed from others. ``external_id``
        is the caller's own name for the conversation: the same name finds the same session again (``if_exists="raise"``:
        SessionExists), and can meet nobody else's; after a deletion it names a new one. What was found has ``existed``.

        Raises InvalidInput, NotAllowed, SessionExists.
        """
        owner = new_owner(self._access.principal, user_id, limits=self._access.limits)
        limits = self._access.limits
        self._check_title(title)
        checked_choice(if_exists, ("return", "raise"), field="if_exists")
        if policy is not None:
            checked_policy(policy)
        if external_id is not None:
            checked_id(external_id, field="external_id", limits=limits)
        kept = b"" if metadata is None else admit_metadata(metadata, limits=limits)
        resolved = (policy or Policy()).over(self._access.policy)
        key = self._access.key(idempotency_key)
        tenant_id = self._access.principal.tenant_id
        random_id = encode_id("sess_", os.urandom(RANDOM_BYTES))
        generation = 0
        while True:
            if external_id is not None:
                session_id = ref_of(tenant_id, owner, external_id, generation).session_id
            elif key["caller_key"]:
                parts = (tenant_id, owner, self._access.principal.side, key["key"].hex())
                session_id = derived_session_id("key", *parts)
            else:
                session_id = random_id
            decision = CreateSession(
                ref=SessionRef(tenant_id, session_id),
                principal=self._access.principal,
                **key,
                fingerprint=request("create_session", owner, title, external_id, kept, _encode(policy)),
                user_id=owner,
                title=title,
                metadata=kept,
                policy=resolved,
                first_revision=int.from_bytes(os.urandom(6), "big"),
                external_id=external_id,
                generation=generation,
                if_exists=if_exists,
            )
            try:
                done = await self._access.submit(decision)
            except GenerationTaken:
                assert external_id is not None  # only names have generations
                generation = await generation_behind(self._access.store, tenant_id, owner, external_id, generation)
                continue
            made = done.value
            if done.answer.ids and not done.replayed and made.version == 0 and made.status == "ACTIVE":
                return session_from(made, now=done.answer.at, metadata=kept)  # there is nothing else to read yet
            session = await self._as_it_is(session_id, replayed=done.replayed)
            # Who finds changes nothing: only a creation names what it made, and its retry is answered alike.
            return session if done.answer.ids else msgspec.structs.replace(session, existed=True)

    async def rename_session(
        self,
        session_id: str,
        title: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        return await self.update_session(
            session_id, title=title, expected_version=expected_version, idempotency_key=idempotency_key
        )

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """A new title, a merge patch of the metadata (RFC 7396: null removes a member), or both."""
        if title is not None:
            self._check_title(title)
        patch = None if metadata is None else admit_metadata(metadata, limits=self._access.limits)
        done = await self._access.submit(
            UpdateSession(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request("update_session", title, patch),
                title=title,
                metadata_patch=patch,
                limits=self._access.limits,
            )
        )
        return await self._as_it_is(session_id, replayed=done.replayed)

    async def transfer_session(
        self,
        session_id: str,
        user_id: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """To another user of the tenant. For admins."""
        checked_id(user_id, field="user_id", limits=self._access.limits)
        done = await self._access.submit(
            TransferSession(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request("transfer_session", user_id),
                user_id=user_id,
            )
        )
        return await self._as_it_is(session_id, replayed=done.replayed)

    async def close_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """CLOSED: readable, no writes. Open runs end as CANCELLED, open tool calls as unknown. Twice is fine."""
        return await self._move(CloseSession, session_id, reason, expected_version, idempotency_key)

    async def restore_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """ACTIVE again, with everything: messages, working memory, tool history, runs. Its clocks start anew.

        Restoring an ACTIVE session is fine. Raises RestoreRefused if the session's policy does not let this caller.
        """
        return await self._move(RestoreSession, session_id, reason, expected_version, idempotency_key)

    async def expire_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """EXPIRED before its time. For admins."""
        return await self._move(ExpireSession, session_id, reason, expected_version, idempotency_key)

    async def _move(
        self,
        kind: type[LifecycleDecision],
        session_id: str,
        reason: str,
        expected_version: int | None,
        idempotency_key: str | None,
    ) -> Session:
        checked_text(reason, field="reason")
        done = await self._access.submit(
            kind(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request(kind.__name__, reason),
                reason=reason,
            )
        )
        return await self._as_it_is(session_id, replayed=done.replayed)

    async def delete_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Erase it: what comes back is the tombstone (status DELETED, the lifecycle history), and the id is never used
        again. When this returns nothing of the session can be read any more, and in a store of up to 32 MiB no trace of
        its text is left in the files; in a larger one the sweeper removes the traces, for all deletions at once, and
        finishes what was interrupted. Twice is fine."""
        checked_text(reason, field="reason")
        done = await self._access.submit(
            DeleteSession(
                **self._access.common(session_id, idempotency_key, expected_version, None),
                fingerprint=request("DeleteSession", reason),
                reason=reason,
            )
        )
        ref = self._access.ref(session_id)
        with behind_a_write():
            if done.value.erasing:
                await erase(self._access.opened, ref)
            page = await self._access.store.snapshot(ref, working_memory=False, metadata=False)
        return session_from(done.value if page.record is None else page.record, now=page.clock.now)
