"""The PostgreSQL store: each of its doors is one statement, on a connection of the pool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, Want
from satchel.errors import StoreUnavailable
from satchel.store import Capabilities, Change, Finding, Loaded, Schema, Setting
from satchel.stores.postgres import erasing, reading, schema, settings
from satchel.stores.postgres.address import parse_address
from satchel.stores.postgres.checking import check, check_hosts
from satchel.stores.postgres.connection import (
    DRIVER_ERRORS,
    FAULTS,
    Fetch,
    Line,
    Row,
    connect,
    first_connect,
    is_lost,
    meaning_of,
    state_of,
)
from satchel.stores.postgres.hints import Hints
from satchel.stores.postgres.loading import load
from satchel.stores.postgres.writing import write, write_locked
from satchel.stores.sql.pool import Pool
from satchel.stores.sql.reads import Reading
from satchel.stores.sql.store import Decide, ServerStore
from satchel.stores.sql.writing import Basis, Written

T = TypeVar("T")

# A commit that waits for a standby, as each write does, waits for all that stands before it in the log.
_VOUCH = "SELECT pg_logical_emit_message(true, 'satchel', '') IS NOT NULL"
_UNKNOWN_FUNCTION = "42883"

_CAPABILITIES = Capabilities(
    name="postgres",
    durable=True,
    shared=True,
    prefix_after_failover=True,
    clock="server",
    erases_traces=False,
    parallel_batches=2,
)


class PostgresStore(ServerStore):
    """``url`` is described at ``satchel.open``."""

    _reading: ClassVar[Reading] = reading

    def __init__(self, url: str, *, clock: Callable[[], Clock] | None = None) -> None:
        super().__init__(clock=clock)
        self._address = parse_address(url)

    @property
    def capabilities(self) -> Capabilities:
        return _CAPABILITIES

    async def check(self) -> Sequence[Finding]:
        """Also before it is open; then of the hosts alone, if there are several and none that takes writes."""
        hosts = await check_hosts(self._address)
        if self._opened is not None:
            return [*await check(self._fetch, self._address), *hosts]
        try:
            return [*await self._apart_from_all(lambda line: check(line.fetch, self._address)), *hosts]
        except StoreUnavailable:
            if hosts:
                return hosts
            raise

    async def schema(self) -> Schema:
        return await self._apart_from_all(schema.look)

    async def _apart_from_all(self, ask: Callable[[Line], Awaitable[T]]) -> T:
        """On a connection of its own."""
        try:
            line = await first_connect(self._address)
            try:
                return await ask(line)
            finally:
                await line.close(self._address.connect_timeout)
        except DRIVER_ERRORS as error:
            raise meaning_of(error) from error

    async def _start(self) -> tuple[Pool[Line], Hints]:
        line = await self._first_line()
        again = partial(connect, self._address, is_shared=line.is_shared)
        pool = Pool(self._address, again, FAULTS, first=line)
        return pool, Hints(again, partial(self._read, pool))  # which tell also while the store closes

    async def _first_line(self) -> Line:
        """With the schema up to date."""
        try:
            line = await first_connect(self._address)
            try:
                await schema.prepare(line)
            except BaseException:
                line.terminate()
                raise
        except DRIVER_ERRORS as error:
            raise meaning_of(error) from error
        return line

    async def _read(self, pool: Pool[Line], statement: str, *values: object) -> list[Row]:
        """What a value raises that no statement can take is the caller's to weigh."""
        try:
            try:
                async with pool.use() as line:
                    return await line.fetch(statement, *values)
            except DRIVER_ERRORS as error:
                if not is_lost(error) or isinstance(error, TimeoutError):
                    raise
            async with pool.use() as line:
                return await line.fetch(statement, *values)
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

    async def _vouch(self, pool: Pool[Line]) -> None:
        try:
            await self._read(pool, _VOUCH)
        except StoreUnavailable as error:
            if (
                state_of(error.__cause__) != _UNKNOWN_FUNCTION
            ):  # one that only speaks as PostgreSQL does has no such standbys
                raise

    async def _erase(self, pool: Pool[Line], ref: SessionRef, limit: int) -> int:
        return await erasing.erase_rows(pool, ref, limit)

    async def _set(self, pool: Pool[Line], name: str, base: int | None, value: bytes | None) -> Setting | None:
        return await settings.setting(pool, name, base, value)
