"""How many replicas must have a write before it is acknowledged, and the wait for them.

WAIT stands in the same pipeline as the writes: it waits for what its own connection wrote. The map of a cluster may be a moment
old; so the master itself is asked, behind the writes, who follows it by now: a replica that has come back may take its place at
any moment, and what it lacks then is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from satchel.stores.redis.connection import Line, Reply


class Needed(NamedTuple):
    """``least``: as many as are known. ``asks_master``: and all that follow it by now. ``patience``: milliseconds."""

    least: int
    asks_master: bool
    patience: int

    @property
    def is_none(self) -> bool:
        return self.least == 0 and not self.asks_master

    async def tell(self, line: Line, words: Sequence[Sequence[bytes | str | int]], heard: list[Reply]) -> bool:
        """``heard`` gets the replies to ``words``. False: too few have it. Raises what means that the connection is lost."""
        behind: list[tuple[str | int, ...]] = []
        if self.asks_master:
            behind.append(("INFO", "replication"))
        if self.least:
            behind.append(("WAIT", self.least, self.patience))
        await line.ask([*words, *behind], heard)
        waited = _count(heard.pop()) if self.least else 0
        followers = _followers(heard.pop()) if self.asks_master else 0
        if self.least <= waited < followers:
            again: list[Reply] = []
            await line.ask([("WAIT", followers, self.patience)], again)
            waited = _count(again[0])
        return waited >= max(self.least, followers)


NONE = Needed(least=0, asks_master=False, patience=1)


def _count(waited: Reply) -> int:
    """How many replicas have it; an error says that of none."""
    return 0 if isinstance(waited, Exception) else int(waited)


def _followers(info: Reply) -> int:
    """Those that have all but the last of it; who is still given a copy of everything is no successor yet."""
    return 0 if isinstance(info, Exception) else info.count(b"state=online")
