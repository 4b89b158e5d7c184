from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.door import Door, open_door


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with open_door(agents=("coding", "data")) as opened:
        yield opened
