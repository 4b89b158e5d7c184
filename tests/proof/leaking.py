"""`satchel` with a leak that was planted: each commit leaves something behind in memory.

python -m tests.proof.leaking serve …
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from satchel import cli, opening
from satchel.store import Change, Outcome, Store
from satchel.testing.wrappers import StoreWrapper
from tests.proof.trimmed import give_back

LEAKED = 64 * 1024  # bytes of each commit: a busy machine makes few


class LeakingStore(StoreWrapper):
    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._kept: list[bytes] = []

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        self._kept.append(os.urandom(LEAKED))
        return await self.inner.commit(changes)


if __name__ == "__main__":
    store_at = opening.store_at
    give_back()
    opening.store_at = lambda url: LeakingStore(store_at(url))
    sys.exit(cli.main())
