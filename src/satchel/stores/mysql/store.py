"""The MySQL and MariaDB store: each answer is one snapshot, each batch of changes one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeVar

import msgspec

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, Want
from satchel.errors import InvalidInput
from satchel.store import Capabilities, Change, Finding, Loaded, Schema, Setting
from satchel.stores.mysql import erasing, reading, schema, settings
from satchel.stores.mysql.address import parse_address
from satchel.stores.mysql.checking import check
from satchel.stores.mysql.connection import Fetch, Line, Rows, connect
from satchel.stores.mysql.faults import DRIVER_ERRORS, FAULTS, is_lost, is_worth_another_try, meaning_of
from satchel.stores.mysql.hints import Looks
from satchel.stores.mysql.loading import load
from satchel.stores.mysql.writing import write, write_locked
from satchel.stores.sql.pool import Pool
from satchel.stores.sql.store import Decide, Reading, ServerStore
from satchel.stores.sql.writing import Basis, Written

T = TypeVar("T")

_CAPABILITIES = Capabilities(
    name="mysql",
    durable=True,
    shared=True,
    prefix_after_failover=True,
    clock="server",
    erases_traces=False,
    parallel_batches=2,
)


class MysqlStore(ServerStore):
    """``url`` is described at ``satchel.open``."""

    _reading: ClassVar[Reading] = reading

    def __init__(self, url: str, *, clock: Callable[[], Clock] | None = None) -> None:
        super().__init__(clock=clock)
        self._address = parse_address(url)

    @property
    def capabilities(self) -> Capabilities:
        if self._address.is_relaxed:
            return msgspec.structs.replace(_CAPABILITIES, durable=False)
        return _CAPABILITIES

    async def check(self) -> Sequence[Finding]:
        """Also of a server that ``open`` refuses."""
        if self._opened is None:
            return await self._apart_from_all(lambda line: check(line.fetch, self._address))
        return await check(self._fetch, self._address)

    async def schema(self) -> Schema:
        return await self._apart_from_all(schema.look)

    async def _apart_from_all(self, ask: Callable[[Line], Awaitable[T]]) -> T:
        """On a connection of its own."""
        try:
            line = await connect(self._address)
            try:
                return await ask(line)
            finally:
                await line.close(self._address.connect_timeout)
        except DRIVER_ERRORS as error:
            raise meaning_of(error) from error

    async def _start(self) -> tuple[Pool[Line], Looks]:
        again = partial(connect, self._address)
        try:
            line = await again()
            try:
                await self._refuse_what_loses(line)
                await schema.prepare(line, self._address.database)
            except BaseException:
                line.terminate()
                raise
        except DRIVER_ERRORS as error:
            raise meaning_of(error) from error
        return Pool(self._address, again, FAULTS, first=line), Looks(self._fetch)

    async def _refuse_what_loses(self, line: Line) -> None:
        """Raises InvalidInput, unless the address says that it may be so."""
        broken = [finding for finding in await check(line.fetch, self._address) if finding.is_fatal]
        if broken and not self._address.is_relaxed:
            said = "; ".join(f"{finding.what}: {finding.why}" for finding in broken)
            raise InvalidInput(
                f"the server does not keep what it should ({said}); durability=relaxed in the address accepts that",
                field="url",
            )

    async def _read(self, pool: Pool[Line], *statements: bytes) -> list[Rows]:
        try:
            try:
                async with pool.use() as line:
                    return await line.fetch(*statements)
            except DRIVER_ERRORS as error:
                if isinstance(error, TimeoutError) or not (is_lost(error) or is_worth_another_try(error)):
                    raise
            async with pool.use() as line:
                return await line.fetch(*statements)
        except DRIVER_ERRORS as error:
            raise meaning_of(error) from error

    async def _load(self, fetch: Fetch, wanted: Mapping[SessionRef, Want]) -> Loaded:
        return await load(fetch, self._read_clock, wanted)

    async def _write_batch(
        self, pool: Pool[Line], changes: Sequence[Change], clock: Clock | None, basis: Basis
    ) -> Written:
        return await write(pool, changes, clock, basis)

    async def _write_locked(
        self, pool: Pool[Line], wanted: Mapping[SessionRef, Want], decide: Decide
    ) -> tuple[Sequence[Change], Written]:
        return await write_locked(pool, self._read_clock, wanted, decide, self._clock)

    async def _erase(self, pool: Pool[Line], ref: SessionRef, limit: int) -> int:
        return await erasing.erase_rows(pool, ref, limit)

    async def _set(self, pool: Pool[Line], name: str, base: int | None, value: bytes | None) -> Setting | None:
        return await settings.setting(pool, name, base, value)
