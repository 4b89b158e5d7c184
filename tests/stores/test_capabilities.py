"""What a store says that it cannot do stands in the docs, and nothing else does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from satchel.opening import store_at
from satchel.store import Capabilities

STORES = {
    "memory": "memory:",
    "sqlite": "sqlite:///a.db",
    "postgres": "postgresql://localhost/a",
    "mysql": "mysql://h/a",
    "redis": "redis://localhost",
}
TABLE = Path(__file__).parents[2] / "docs" / "stores.md"
_SAID = {True: "yes", False: "no"}


def rows() -> list[list[str]]:
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[: lines.index("|---" * (1 + len(STORES)) + "|") + 7]
    ]


@pytest.mark.parametrize("name", STORES)
def test_the_table_of_stores_says_what_each_store_says(name: str) -> None:
    head, _, *promises = [row for row in rows() if len(row) == 1 + len(STORES)]
    said = store_at(STORES[name]).capabilities
    assert said.name == name
    column = head.index(name)
    told = {}
    for row in promises:
        found = re.match("`(\\w+)`", row[0])
        assert found is not None
        told[found[1]] = row[column]
    expected = {
        field: _SAID.get(getattr(said, field), getattr(said, field))
        for field in Capabilities.__struct_fields__
        if field not in ("name", "parallel_batches")
    }
    assert told == expected
