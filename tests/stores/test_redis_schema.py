"""What an earlier schema wrote to Redis is read right by this one, and goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from redis import Redis

from satchel.errors import SchemaMismatch
from satchel.stores.redis import RedisStore, schema
from satchel.testing.clock import SettableClock
from satchel.testing.stage import Stage
from tests.servers.redis import emptied_database
from tests.stores.test_migrations import FIXTURES, goes_on, reads_right

NAMES = sorted(path.stem for path in FIXTURES.glob("redis-*.commands"))


def test_every_schema_has_a_fixture() -> None:
    assert [f"redis-{number:04}" for number in range(1, schema.KNOWN + 1)] == NAMES, "python -m tools.make_fixtures"


@pytest.mark.parametrize("name", NAMES)
async def test_what_an_earlier_schema_wrote_reads_right_and_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = emptied_database("schema", once_for=tmp_path)
    with Redis.from_url(url) as client:
        for line in (FIXTURES / f"{name}.commands").read_text(encoding="utf-8").splitlines():
            client.execute_command(*(word.encode("latin-1") for word in json.loads(line)))
    clock = SettableClock()
    stage = Stage(RedisStore(url, clock=clock), clock)
    async with stage.opened:
        await reads_right(stage, (FIXTURES / f"{name}.jsonl").read_bytes())
        await goes_on(stage)
    monkeypatch.setattr(schema, "KNOWN", schema.KNOWN - 1)
    with pytest.raises(SchemaMismatch):
        await RedisStore(url).open()
