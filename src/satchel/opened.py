"""A store that is open, with what all its managers share: the committer, the limits, the policy, the counter of tokens."""

from __future__ import annotations

from typing import NoReturn

from satchel.commit import Committer
from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.domain.policy import DEFAULT_POLICY, SessionPolicy
from satchel.domain.tokens import TokenCounter, checked_counter
from satchel.errors import StoreMisused
from satchel.store import Store


class OpenStore:
    """A store with its committer, its limits and its policy. Use it as an async context manager, or ``open`` and ``close``."""

    def __init__(
        self,
        store: Store,
        *,
        limits: Limits = DEFAULT_LIMITS,
        policy: SessionPolicy = DEFAULT_POLICY,
        count_tokens: TokenCounter | None = None,
    ) -> None:
        """``count_tokens``: how the model counts; left out, tokens are estimated. Raises InvalidInput if it is no function."""
        self.store = store
        self.count_tokens = checked_counter(count_tokens)
        self.limits = limits
        self.policy = policy
        self.committer = Committer(store)

    async def open(self) -> OpenStore:
        """Also again, after it was closed."""
        await self.store.open()
        if self.committer.is_closed:
            self.committer = Committer(self.store)
        return self

    async def close(self) -> None:
        """Also when it is cancelled meanwhile: nobody else would."""
        try:
            await self.committer.close()
        finally:
            await self.store.close()

    def __enter__(self) -> NoReturn:
        raise StoreMisused("use `async with satchel.open(url) as store`; blocking code opens with satchel.sync.open")

    def __exit__(self, *exc: object) -> None:
        """Never reached; a `with` looks for it first."""

    async def __aenter__(self) -> OpenStore:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
