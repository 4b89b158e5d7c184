from __future__ import annotations

from collections.abc import AsyncIterator, Generator

import pytest

import satchel
from satchel import NotServed, OpenStore
from satchel.client.connection import Connection
from satchel.testing.stage import ADAS_AGENT
from tests.client.served import key_of, served


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """What a service does not do (test_client.py says what that is), no promise through it is about."""
    try:
        return (yield)
    except NotServed as refused:
        pytest.skip(str(refused))


@pytest.fixture
async def store() -> AsyncIterator[OpenStore]:
    async with satchel.open("memory:") as opened:
        yield opened


@pytest.fixture
async def url(store: OpenStore) -> AsyncIterator[str]:
    async with served(store) as address:
        yield address


@pytest.fixture
async def client(url: str) -> AsyncIterator[Connection]:
    async with satchel.connect(url, key_of(ADAS_AGENT)) as connection:
        yield connection
