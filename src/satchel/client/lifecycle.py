"""A session begins, changes its name or owner, rests, comes back, and ends: over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import msgspec

from satchel.access import checked_choice, checked_policy, checked_whole
from satchel.client.connection import Method
from satchel.client.reading import SESSIONS, RemoteReading, path_of
from satchel.client.snapshots import session_from_json
from satchel.domain.ids import checked_id
from satchel.domain.message import admit_metadata
from satchel.domain.policy import DEFAULT_POLICY, Policy
from satchel.domain.session import Session
from satchel.runs import checked_text


class RemoteLifecycle(RemoteReading):
    """See satchel.sessions.lifecycle.SessionLifecycle, and fork_session of satchel.sessions.transfer."""

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
        """See satchel.SessionManager.create_session."""
        limits = self._server.limits
        if user_id is not None:
            checked_id(user_id, field="user_id", limits=limits)
        self._check_title(title)
        checked_choice(if_exists, ("return", "raise"), field="if_exists")
        if external_id is not None:
            checked_id(external_id, field="external_id", limits=limits)
        body = {
            "title": title,
            "user_id": user_id,
            "external_id": external_id,
            "if_exists": if_exists,
            "metadata": None if metadata is None else msgspec.Raw(admit_metadata(metadata, limits=limits)),
            "policy": None if policy is None else _shown(policy),
        }
        reply = await self._server.write("POST", SESSIONS, body, about={}, idempotency_key=idempotency_key)
        session = session_from_json(reply.body, replayed=reply.replayed)
        return session if reply.status == 201 else msgspec.structs.replace(session, existed=True)

    async def update_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """See satchel.SessionManager.update_session."""
        if title is not None:
            self._check_title(title)
        patch = None if metadata is None else admit_metadata(metadata, limits=self._server.limits)
        if title is None and patch is None:
            patch = b"{}"  # nothing changes
        body = {"title": title, "metadata": None if patch is None else msgspec.Raw(patch)}
        return await self._change("PATCH", session_id, "", body, expected_version, idempotency_key)

    async def transfer_session(
        self,
        session_id: str,
        user_id: str,
        *,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """See satchel.SessionManager.transfer_session."""
        checked_id(user_id, field="user_id", limits=self._server.limits)
        body = {"user_id": user_id}
        return await self._change("POST", session_id, "/transfer", body, expected_version, idempotency_key)

    async def close_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """See satchel.SessionManager.close_session."""
        return await self._transition("close", session_id, reason, expected_version, idempotency_key)

    async def restore_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """See satchel.SessionManager.restore_session."""
        return await self._transition("restore", session_id, reason, expected_version, idempotency_key)

    async def expire_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """See satchel.SessionManager.expire_session."""
        return await self._transition("expire", session_id, reason, expected_version, idempotency_key)

    async def delete_session(
        self,
        session_id: str,
        *,
        reason: str = "",
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """See satchel.SessionManager.delete_session."""
        checked_text(reason, field="reason")
        query = {"reason": reason} if reason else None
        return await self._change("DELETE", session_id, "", None, expected_version, idempotency_key, query)

    async def fork_session(
        self,
        session_id: str,
        *,
        up_to: int | None = None,
        title: str | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """See satchel.SessionManager.fork_session."""
        if up_to is not None:
            checked_whole(up_to, field="up_to")
        if title is not None:
            self._check_title(title)
        body = {"up_to": up_to, "title": title}
        return await self._change("POST", session_id, "/fork", body, expected_version, idempotency_key)

    async def _transition(
        self, verb: str, session_id: str, reason: str, expected_version: int | None, idempotency_key: str | None
    ) -> Session:
        checked_text(reason, field="reason")
        body = {"reason": reason}
        return await self._change("POST", session_id, f"/{verb}", body, expected_version, idempotency_key)

    async def _change(
        self,
        method: Method,
        session_id: str,
        verb: str,
        body: Mapping[str, Any] | None,
        expected_version: int | None,
        idempotency_key: str | None,
        query: Mapping[str, str] | None = None,
    ) -> Session:
        reply = await self._server.write(
            method,
            path_of(session_id) + verb,
            body,
            about={"session_id": session_id},
            query=query,
            expected_version=expected_version,
            idempotency_key=idempotency_key,
        )
        return session_from_json(reply.body, replayed=reply.replayed)


def _shown(policy: Policy) -> dict[str, Any]:
    """As JSON has it; durations to the microsecond. Raises InvalidInput."""
    checked_policy(policy)
    policy.over(DEFAULT_POLICY)
    shown: dict[str, Any] = {}
    for name in policy.__struct_fields__:
        value = getattr(policy, name)
        if value is msgspec.UNSET:
            continue
        shown[name] = _duration(value) if isinstance(value, timedelta) else value
    return shown


def _duration(length: timedelta) -> str:
    seconds, micros = divmod(length // timedelta(microseconds=1), 1_000_000)
    return f"{seconds}.{micros:06}s"
