"""`satchel` that keeps no record of what a key was answered with.

python -m tests.proof.forgetting serve …
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from satchel import cli, opening
from satchel.store import Change, Outcome
from satchel.testing.wrappers import StoreWrapper


class ForgettingStore(StoreWrapper):
    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        return await self.inner.commit([msgspec.structs.replace(change, idempotency=()) for change in changes])


if __name__ == "__main__":
    store_at = opening.store_at
    opening.store_at = lambda url: ForgettingStore(store_at(url))
    sys.exit(cli.main())
