"""Tokens of an identity provider: what is let in, and everything that is not."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

import satchel
from satchel.errors import ExtraMissing, InvalidInput
from satchel.http import tokens as tokens_module
from satchel.http.identity import Credentials
from satchel.http.keys import KeyRing
from satchel.http.settings import JwtSettings
from satchel.http.tokens import IMPATIENCE, REFRESH, Tokens
from tests.http.door import Door, open_door

KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwks(**keys: Any) -> str:
    shown = []
    for name, key in keys.items():
        algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        shown.append(json.loads(algorithm.to_jwk(key.public_key())) | {"kid": name, "use": "sig"})
    return json.dumps({"keys": shown})


def token(*, key: Any = KEY, kid: str | None = "main", algorithm: str = "ES256", **changes: Any) -> str:
    claims: dict[str, Any] = {
        "iss": "https://id.example",
        "aud": "satchel",
        "sub": "ada",
        "tenant": "acme",
        "role": "user",
        "exp": time.time() + 60,
    } | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key, algorithm=algorithm, headers=None if kid is None else {"kid": kid})


def settings(path: Path, **changes: Any) -> JwtSettings:
    return JwtSettings(**{"issuer": "https://id.example", "audience": "satchel", "jwks": str(path)} | changes)


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(main=KEY))
    async with satchel.open("memory:") as store:
        identity = Credentials(KeyRing(store), Tokens(settings(path)))
        async with open_door(identity=identity) as opened:
            yield opened


async def answer(door: Door, text: str, **headers: str) -> int:
    got = await door("GET", "/v1/sessions", who=None, headers={"Authorization": f"Bearer {text}"} | headers)
    assert not text or text not in got.text
    return got.status_code


async def test_a_token_stands_for_whom_its_claims_say(door: Door) -> None:
    async def made(**claims: Any) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token(**claims)}"}
        got = await door("POST", "/v1/sessions", who=None, headers=headers)
        assert got.status_code == 201, got.text
        session: dict[str, Any] = got.json()
        return session

    session = await made()
    assert (session["tenant_id"], session["user_id"]) == ("acme", "ada")
    acting = await made(role="agent", sub="shop", acting_for="bob")
    assert acting["user_id"] == "bob"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "another"},
        {"aud": None},
        {"nbf": 4_000_000_000},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": 5},
        {"sub": None},
        {"sub": ""},
        {"role": None},
        {"role": "operator"},
        {"role": "root"},
        {"key": OTHER, "algorithm": "RS256"},
        {"kid": "unknown"},
    ],
    ids="-".join,
)
async def test_a_token_that_is_not_right_in_everything_opens_nothing(door: Door, changes: dict[str, Any]) -> None:
    assert await answer(door, token(**changes)) == 401


async def test_a_token_cannot_choose_its_own_algorithm(door: Door) -> None:
    assert await answer(door, token()) == 200
    assert await answer(door, token(key=None, algorithm="none")) == 401
    assert await answer(door, token(key="x" * 64, algorithm="HS256")) == 401
    for wrong in ("", "a.b.c", "x" * 20_000, token() + "x", token()[:-3]):
        assert await answer(door, wrong) == 401


async def test_a_bound_token_acts_for_nobody_else(door: Door) -> None:
    bound = token(role="agent", acting_for="bob")
    assert await answer(door, bound, **{"Satchel-Acting-For": "bob"}) == 200
    assert await answer(door, bound, **{"Satchel-Acting-For": "ada"}) == 403
    assert await answer(door, token(role="agent"), **{"Satchel-Acting-For": "ada"}) == 200
    assert await answer(door, token(), **{"Satchel-Acting-For": "bob"}) == 403


async def test_keys_are_read_anew_when_the_provider_rotates_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(main=KEY))
    tokens = Tokens(settings(path))
    assert (await tokens.principal(token(), acting_for=None)).subject == "ada"
    path.write_text(jwks(main=KEY, next=OTHER))
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + IMPATIENCE + 1)
    rotated = token(key=OTHER, kid="next", algorithm="RS256")
    assert (await tokens.principal(rotated, acting_for=None)).subject == "ada"


class SlowFile:
    """What the keys are read from, while somebody else may ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        self._read = tokens_module._read  # noqa: SLF001  # a provider that takes its time
        monkeypatch.setattr(tokens_module, "_read", self)

    def __call__(self, place: str) -> str:
        self.began.set()
        assert self.may_end.wait(20)
        return self._read(place)


async def test_who_comes_while_the_keys_are_read_waits_for_them(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowFile(monkeypatch)
    first = asyncio.create_task(answer(door, token()))
    await asyncio.to_thread(slow.began.wait, 20)
    second = asyncio.create_task(answer(door, token(sub="bob")))
    await asyncio.sleep(0.1)
    slow.may_end.set()
    assert (await first, await second) == (200, 200)

    # A key that is new: the same. One that is known is not kept waiting.
    slow.began.clear()
    slow.may_end.clear()
    (tmp_path / "jwks.json").write_text(jwks(main=KEY, next=OTHER))
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + REFRESH + 1)
    rotated = token(key=OTHER, kid="next", algorithm="RS256")
    first = asyncio.create_task(answer(door, rotated))
    await asyncio.to_thread(slow.began.wait, 20)
    second = asyncio.create_task(answer(door, rotated))
    assert await asyncio.wait_for(answer(door, token()), 10) == 200
    slow.may_end.set()
    assert (await first, await second) == (200, 200)


@pytest.mark.parametrize("said", ["[]", "no JSON", '{"keys": 5}', None], ids=str)
async def test_a_provider_that_says_something_else_lets_nobody_in_and_breaks_nothing(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    def read(place: str) -> str:
        raise IncompleteRead(b"") from None

    if said is None:
        monkeypatch.setattr(tokens_module, "_read", read)
    else:
        (tmp_path / "jwks.json").write_text(said)
    assert await answer(door, token()) == 401


def test_tokens_without_their_package_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ExtraMissing, match=r"needs pyjwt, .* pip install 'pyjwt\[crypto\]'"):
        Tokens(settings(tmp_path / "jwks.json"))


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithms": ("HS256",)},
        {"algorithms": ("none",)},
        {"algorithms": ()},
        {"issuer": ""},
        {"audience": ""},
        {"jwks": "http://id.example/keys"},
        {"jwks": "ftp://id.example/keys"},
    ],
    ids="-".join,
)
def test_settings_that_could_let_somebody_in_by_mistake_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Tokens(settings(tmp_path / "jwks.json", **changes))
