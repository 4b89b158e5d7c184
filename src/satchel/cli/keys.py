"""``satchel keys``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import satchel
from satchel.cli import flags, output
from satchel.cli.failures import FlagRefused, StoreNotShared
from satchel.cli.store import check_there, new_file, run_async, say_made
from satchel.domain.api_key import ApiKey, split_key
from satchel.domain.clock import rfc3339
from satchel.http.keys import KeyRing
from satchel.http.settings import duration


def create_key(
    *,
    store: flags.KeysStore,
    tenant: flags.KeysTenant,
    role: flags.KeyRole,
    user: flags.KeyUser = None,
    acting_for: flags.ActingFor = None,
    expires_in: flags.ExpiresIn = None,
    json: flags.Json = False,
) -> None:
    """Make a key, and print it: the key alone, or with --json its facts and the `key`. It is not kept, only a hash of it is: nothing can show it again.

    A user's key stands for --user. An agent's reaches all sessions of its tenant, or with --acting-for those of one user.
    """
    run_async(_create(store, tenant, role, user, acting_for, expires_in, json=json))


async def _create(
    url: str, tenant: str, role: str, user: str | None, acting_for: str | None, expires_in: str | None, *, json: bool
) -> None:
    lasting = None if expires_in is None else duration(expires_in, field="--expires-in")
    async with _ring(url, create=True, json=json) as ring:
        key = await ring.create(
            tenant_id=tenant,
            role=role,
            user_id=user,
            acting_for=acting_for,
            expires_in=None if lasting is None else lasting.total_seconds(),
        )
        (kept,) = (one for one in await ring.kept(tenant_id=tenant) if one.key_id == split_key(key)[0])
    if json:
        output.write_json(_shown(kept) | {"key": key})
    else:
        output.write_bytes(key.encode() + b"\n")


def list_keys(*, store: flags.KeysStore, tenant: flags.SomeTenant = None, json: flags.Json = False) -> None:
    """List the keys, oldest first: whose they are, never what they are."""
    run_async(_list(store, tenant, json=json))


async def _list(url: str, tenant: str | None, *, json: bool) -> None:
    if tenant == "":
        raise FlagRefused("--tenant is empty, and an empty text is not an identity")
    async with _ring(url) as ring:
        found = await ring.kept(tenant_id=tenant)
    if json:
        output.write_json([_shown(key) for key in found])
        return
    if not found:
        output.say("no keys")
        return
    from satchel.cli.tables import print_keys

    print_keys(output.console(), [_shown(key) for key in found])


def revoke_key(
    key_id: flags.KeyId,
    /,
    *,
    store: flags.KeysStore,
    tenant: flags.SomeTenant = None,
    json: flags.Json = False,
) -> None:
    """Revoke a key. Servers refuse it within two seconds; streams that it opened end within their heartbeat."""
    run_async(_revoke(key_id, store, tenant, json=json))


async def _revoke(key_id: str, url: str, tenant: str | None, *, json: bool) -> None:
    async with _ring(url) as ring:
        key = await ring.revoke(key_id, tenant_id=tenant)
    if json:
        output.write_json(_shown(key))
        return
    output.say(f"{key_id} is revoked")


@asynccontextmanager
async def _ring(url: str, *, create: bool = False, json: bool = False) -> AsyncIterator[KeyRing]:
    if url.startswith("memory:"):
        raise StoreNotShared
    if not create:
        check_there(url)
    made = new_file(url)
    async with satchel.open(url) as store:
        say_made(made, json=json)
        yield KeyRing(store)


def _shown(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.key_id,
        "tenant_id": key.tenant_id,
        "role": key.role,
        "subject": key.subject,
        "acting_for": key.acting_for,
        "created_at": rfc3339(key.created_at),
        "expires_at": None if key.expires_at is None else rfc3339(key.expires_at),
    }
