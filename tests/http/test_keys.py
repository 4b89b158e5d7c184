"""API keys: made, kept as hashes, found, revoked, expired."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import satchel
from satchel.domain.api_key import ID_BYTES, SECRET_BYTES, make_key, split_key
from satchel.errors import InvalidInput, StoreCorrupt, Unauthenticated
from satchel.http.keys import REFRESH, SETTING, KeyNotFound, KeyRing

BITS = bytes(range(ID_BYTES + SECRET_BYTES))


def test_a_key_has_a_prefix_an_id_and_a_secret_of_256_bits() -> None:
    kept, text = make_key(BITS, tenant_id="acme", role="admin", now=5)
    key_id, secret = split_key(text)
    assert text == f"satchel_{key_id}_{secret}"
    assert (kept.key_id, kept.subject) == (key_id, f"key-{key_id}")
    assert len(secret) * 5 >= 256
    assert secret not in kept.secret_hash
    assert kept.opens_with(secret)
    assert not kept.opens_with(secret[:-1] + "a" if secret[-1] != "a" else secret[:-1] + "b")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"role": "operator"}, "role"),
        ({"role": "user"}, "user"),
        ({"role": "user", "user_id": ""}, "user"),
        ({"role": "user", "user_id": "ada", "acting_for": "bob"}, "acting_for"),
        ({"role": "agent", "user_id": "ada"}, "user"),
        ({"role": "agent", "acting_for": ""}, "acting_for"),
        ({"role": "admin", "acting_for": "ada"}, "acting_for"),
        ({"role": "admin", "tenant_id": ""}, "tenant"),
        ({"role": "admin", "expires_at": 5}, "expires_at"),
    ],
)
def test_a_key_that_would_stand_for_nobody_or_for_too_many_is_not_made(options: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make_key(BITS, **{"tenant_id": "acme", "now": 5} | options)  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.field == field


async def test_only_a_hash_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "keys.db"
    async with satchel.open(f"sqlite:///{path}") as store:
        text = await KeyRing(store).create(tenant_id="acme", role="agent")
    secret = split_key(text)[1].encode()
    for file in tmp_path.iterdir():
        assert secret not in file.read_bytes()
    async with satchel.open(f"sqlite:///{path}") as store:
        assert (await KeyRing(store).find(text)).tenant_id == "acme"


async def test_keys_that_are_made_at_once_are_all_there() -> None:
    async with satchel.open("memory:") as store:
        rings = [KeyRing(store), KeyRing(store)]
        made = await asyncio.gather(*(rings[number % 2].create(tenant_id="acme", role="admin") for number in range(20)))
        for text in made:
            assert (await rings[0].find(text)).role == "admin"
        assert len(await rings[1].kept()) == 20


async def test_an_expired_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with satchel.open("memory:") as store:
        ring = KeyRing(store)
        text = await ring.create(tenant_id="acme", role="admin", expires_in=60)
        assert (await ring.find(text)).subject.startswith("key-")
        real = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() + 61 * 10**9)
        with pytest.raises(Unauthenticated):
            await ring.find(text)


async def test_another_server_refuses_a_revoked_key_within_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with satchel.open("memory:") as store:
        here, there = KeyRing(store), KeyRing(store)
        text = await here.create(tenant_id="acme", role="admin")
        await there.find(text)
        await here.revoke(split_key(text)[0])
        with pytest.raises(Unauthenticated):
            await here.find(text)
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + REFRESH)
        with pytest.raises(Unauthenticated):
            await there.find(text)


async def test_a_key_opens_as_soon_as_it_is_made() -> None:
    """Also where another server made it right after this one had looked."""
    async with satchel.open("memory:") as store:
        server, other = KeyRing(store), KeyRing(store)
        for tenant_id in ("acme", "globex", "initech"):
            key = await other.create(tenant_id=tenant_id, role="admin")
            assert (await server.find(key)).tenant_id == tenant_id


async def test_unknown_keys_do_not_each_cost_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with satchel.open("memory:") as store:
        ring = KeyRing(store)
        reads = 0
        setting = store.store.setting

        async def counted(name: str) -> object:
            nonlocal reads
            reads += 1
            return await setting(name)

        monkeypatch.setattr(store.store, "setting", counted)
        _, unknown = make_key(BITS, tenant_id="acme", role="admin", now=5)
        answers = await asyncio.gather(*(ring.find(unknown) for _ in range(100)), return_exceptions=True)
        answers += await asyncio.gather(*(ring.find(unknown) for _ in range(100)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unauthenticated] * 200
        assert reads <= 4  # for each hundred one that was under way already, and one behind it


async def test_a_tenants_keys_are_its_own() -> None:
    async with satchel.open("memory:") as store:
        ring = KeyRing(store)
        text = await ring.create(tenant_id="acme", role="admin")
        key_id = split_key(text)[0]
        assert await ring.kept(tenant_id="umbrella") == []
        with pytest.raises(KeyNotFound):
            await ring.revoke(key_id, tenant_id="umbrella")
        assert (await ring.revoke(key_id, tenant_id="acme")).key_id == key_id
        with pytest.raises(KeyNotFound):
            await ring.revoke(key_id)


async def test_a_list_of_keys_that_cannot_be_read_lets_nobody_in() -> None:
    async with satchel.open("memory:") as store:
        await store.store.setting(SETTING, value=b'{"broken":')
        _, text = make_key(BITS, tenant_id="acme", role="admin", now=5)
        with pytest.raises(StoreCorrupt):
            await KeyRing(store).find(text)
