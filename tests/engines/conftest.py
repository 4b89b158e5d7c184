"""What the tests of the chat engine share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import satchel
from tests.engines.chat_stage import ChatStage
from tests.engines.model_server import model_server


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChatStage]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "SATCHEL_MODEL"):
        monkeypatch.delenv(name, raising=False)
    async with model_server() as model, satchel.open("memory:") as store:
        yield ChatStage(store, model)
