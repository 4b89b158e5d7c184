"""All sessions from one store to another: copied one by one, and proved at the end by reading both sides."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import IO, TypeVar

import msgspec

from satchel.domain.ids import SessionRef
from satchel.errors import SatchelError, StoreMisused, StoreUnavailable
from satchel.opened import OpenStore
from satchel.transfer.copying import Copied, Proof, copy_session, prove

T = TypeVar("T")
A = TypeVar("A")

PAGE = 500
AT_ONCE = 16  # sessions that are copied together, and share commits
HELD = 4 * 1024 * 1024  # bytes of the list of what was copied that stay in memory; what is more waits in a file

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Copied).decode


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A session that could not be copied, or read again; the others were."""

    ref: SessionRef
    error: SatchelError


class Sum(msgspec.Struct, kw_only=True):
    """What was compared at the end. The digests are over all sessions in order of their refs."""

    sessions: int = 0
    tombstones: int = 0
    events: int = 0
    messages: int = 0
    ahead: int = 0
    source: str = ""
    destination: str = ""


class Move:
    """From ``source`` to ``target``; ``tenant_id``: only this tenant's. Use ``copy``, then ``verify``, then ``close``."""

    def __init__(self, source: OpenStore, target: OpenStore, *, tenant_id: str | None = None) -> None:
        self._source = source
        self._target = target
        self._tenant_id = tenant_id
        self._done: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=HELD)  # noqa: SIM115  # closed by `close`
        self.sum = Sum()

    def close(self) -> None:
        self._done.close()

    async def count(self) -> int:
        """How many records there are now."""
        number = 0
        async for refs in self._pages():
            number += len(refs)
        return number

    async def copy(self) -> AsyncIterator[Copied | Failed]:
        """What became of each session, in order. Raises StoreUnavailable, StoreMisused when a store is away."""
        async for refs in self._pages():
            async for copied in _few_at_once(refs, self._copied):
                if isinstance(copied, Copied) and copied.portrait is not None:
                    self._done.write(_encode(copied) + b"\n")
                yield copied

    async def verify(self) -> AsyncIterator[tuple[Copied, Proof | Failed]]:
        """Each session that was copied or was there, read again at the destination. ``sum`` is whole behind the last."""
        source, destination = hashlib.sha256(), hashlib.sha256()
        self._done.seek(0)
        while some := [_decode(line) for _, line in zip(range(AT_ONCE), self._done, strict=False)]:
            for copied, proof in zip(some, await asyncio.gather(*map(self._proved, some)), strict=True):
                wanted = copied.portrait
                assert wanted is not None  # only these are kept
                source.update(wanted.all)
                if isinstance(proof, Proof) and proof.portrait is not None:
                    destination.update(proof.portrait.all)
                    self._add(copied, proof)
                yield copied, proof
        self.sum.source, self.sum.destination = source.hexdigest(), destination.hexdigest()

    def _add(self, copied: Copied, proof: Proof) -> None:
        found = proof.portrait
        assert found is not None
        if copied.frame is None:
            self.sum.tombstones += 1
            return
        self.sum.sessions += 1
        self.sum.events += found.events
        self.sum.messages += found.messages
        self.sum.ahead += proof.is_ahead

    async def _copied(self, ref: SessionRef) -> Copied | Failed:
        try:
            return await copy_session(self._source, self._target, ref)
        except (StoreUnavailable, StoreMisused):
            raise
        except SatchelError as error:
            return Failed(ref=ref, error=error)

    async def _proved(self, copied: Copied) -> Proof | Failed:
        try:
            return await prove(self._target.store, copied)
        except (StoreUnavailable, StoreMisused):
            raise
        except SatchelError as error:
            return Failed(ref=copied.ref, error=error)

    async def _pages(self) -> AsyncIterator[list[SessionRef]]:
        tenant_id = self._tenant_id
        after = None if tenant_id is None else SessionRef(tenant_id, "")
        while True:
            refs = await self._source.store.refs(after=after, limit=PAGE)
            chosen = [ref for ref in refs if tenant_id is None or ref.tenant_id == tenant_id]
            yield chosen
            if len(refs) < PAGE or len(chosen) < len(refs):
                return
            after = refs[-1]


async def _few_at_once(items: Sequence[T], work: Callable[[T], Awaitable[A]]) -> AsyncIterator[A]:
    """In order."""
    for start in range(0, len(items), AT_ONCE):
        for answer in await asyncio.gather(*(work(item) for item in items[start : start + AT_ONCE])):
            yield answer
