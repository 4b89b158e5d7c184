"""Connections to a server, and what its errors mean."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
from asyncpg import exceptions
from asyncpg.connect_utils import SessionAttribute

from satchel.errors import InvalidInput, SatchelError, StoreBusy, StoreCorrupt, StoreUnavailable
from satchel.stores.postgres.address import Address, refused_settings, target_of
from satchel.stores.postgres.hosts import first_that_answers, single_hosts
from satchel.stores.sql.pool import Faults
from satchel.stores.sql.reaching import (
    NotReached,
    no_database,
    no_right,
    no_right_to,
    no_tls,
    other_server,
    refused,
    silent,
    unreached,
)

STATEMENT_PATIENCE = 30.0  # seconds until a server that does not answer is given up
LOCK_PATIENCE = 5  # seconds that a statement waits for a row which another transaction holds
STATEMENTS = 200

# A server whose `statement_timeout` ends the wait for a standby says that the commit is done, with a warning.
# A direct connection keeps prepared statements, and settings of its own. The plan of an array of unknown length is the right
# one, and is made once.
_SETTINGS = {
    "application_name": "satchel",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "lock_timeout": f"{LOCK_PATIENCE}s",
    "plan_cache_mode": "force_generic_plan",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "10s",
}
# Behind a pooler nothing may outlive the transaction.
_BEGIN = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{LOCK_PATIENCE}s'; SET LOCAL idle_in_transaction_session_timeout = '10s';"
    " SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL jit = off; SET LOCAL statement_timeout = 0"
)

# The driver looks up each type of ours once. It turns `jit` off for that and puts it back as it was: which must not be as in a
# transaction of ours, or a pooler's next guest finds it off.
_EVERY_TYPE = "SELECT NULL::bigint[], NULL::bytea[], NULL::boolean[], ARRAY[ROW(1)]"

Row = Any  # asyncpg.Record, or the tuple of a row inside an array
Fetch = Callable[..., Awaitable[list[Row]]]  # one statement and its values


class StandbyUnheard(exceptions.InterfaceError):
    """The commit is on the server's own disk, and somebody ended its wait for a standby: a failover may lose it."""


class Line:
    """One connection. ``is_shared``: a pooler gives each transaction another server process."""

    __slots__ = ("_is_warned", "connection", "is_shared")

    def __init__(self, connection: Any, *, is_shared: bool) -> None:
        self.connection = connection
        self.is_shared = is_shared
        self._is_warned = False
        connection.add_log_listener(self._warned)

    def _warned(self, connection: object, message: Any) -> None:
        """What no statement of ours means to hear: the code of a warning that has none of its own."""
        del connection
        self._is_warned = self._is_warned or message.sqlstate == _WARNING

    def _check_warned(self) -> None:
        if self._is_warned:
            raise StandbyUnheard("the wait for a standby was ended")

    def is_closed(self) -> bool:
        return bool(self.connection.is_closed())

    def terminate(self) -> None:
        self.connection.terminate()

    async def close(self, patience: float) -> None:
        await self.connection.close(timeout=patience)

    async def fetch(self, statement: str, *values: object) -> list[Row]:
        """One statement, which is a transaction by itself."""
        if not self.is_shared:
            rows: list[Row] = await self.connection.fetch(statement, *values, timeout=STATEMENT_PATIENCE)
            self._check_warned()
            return rows
        async with self.transaction():
            return await self.fetch_inside(statement, *values)

    async def fetch_inside(self, statement: str, *values: object) -> list[Row]:
        """In the transaction that is open."""
        rows: list[Row] = await self.connection.fetch(statement, *values, timeout=STATEMENT_PATIENCE)
        return rows

    async def run_inside(self, statement: str, *values: object) -> int:
        """The rows that it changed."""
        status: str = await self.connection.execute(statement, *values, timeout=STATEMENT_PATIENCE)
        count = status.rsplit(" ", 1)[-1]
        return int(count) if count.isdigit() else 0

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.connection.execute(_BEGIN, timeout=STATEMENT_PATIENCE)
        try:
            yield
        except BaseException as error:
            if leaves_usable(error) and not self.connection.is_closed():
                await self.connection.execute("ROLLBACK", timeout=STATEMENT_PATIENCE)
            raise
        await self.connection.execute("COMMIT", timeout=STATEMENT_PATIENCE)
        self._check_warned()


async def connect(address: Address, *, is_shared: bool) -> Line:
    """To the host that takes writes. Raises NotReached, InvalidInput, the driver's errors, OSError and TimeoutError."""
    dsns = single_hosts(address.dsn)
    if len(dsns) == 1:
        return await _connect_to(address.dsn, address, is_shared=is_shared)
    return await first_that_answers(
        [partial(_connect_to, dsn, address, is_shared=is_shared) for dsn in dsns],
        errors=DRIVER_ERRORS,
        most_telling=_most_telling,
        let_go=Line.terminate,
    )


def _most_telling(failed: list[Exception]) -> Exception:
    """What does not pass by itself, then that somebody answers who takes no writes, then that somebody cannot be reached."""
    return min(
        failed, key=lambda error: (_may_pass(error), isinstance(error, OSError), not isinstance(error, TimeoutError))
    )


async def _connect_to(dsn: str, address: Address, *, is_shared: bool) -> Line:
    try:
        return await _open(dsn, address, is_shared=is_shared)
    except (*DRIVER_ERRORS, UnicodeError) as error:  # the latter of a name that no host can have
        if known := _not_reached(error, dsn, is_shared=is_shared):
            raise known from error
        raise


async def _open(dsn: str, address: Address, *, is_shared: bool) -> Line:
    connection = await asyncpg.connect(
        dsn,
        timeout=address.connect_timeout,
        target_session_attrs=SessionAttribute(address.target_session_attrs),
        statement_cache_size=0 if is_shared else STATEMENTS,
        max_cached_statement_lifetime=0,
        max_cacheable_statement_size=0,
        server_settings=None if is_shared else _SETTINGS,
    )
    if is_shared:
        try:
            async with connection.transaction():
                await connection.fetch(_EVERY_TYPE, timeout=address.connect_timeout)
        except BaseException:
            connection.terminate()
            raise
    return Line(connection, is_shared=is_shared)


async def first_connect(address: Address) -> Line:
    """Finds out whether a pooler stands between: it refuses our settings, or another process answers than greeted us."""
    try:
        line = await connect(address, is_shared=False)
    except exceptions.PostgresError as error:
        if state_of(error) != _UNKNOWN_SETTING:
            raise
        return await connect(address, is_shared=True)
    try:
        pid = int(line.connection.get_server_pid())
        # A statement without values: nothing is prepared, in whoever's process it runs.
        await line.connection.execute(f"DO $$ BEGIN ASSERT pg_backend_pid() = {pid}; END $$")
    except exceptions.AssertError:
        line.connection.terminate()
        return await connect(address, is_shared=True)
    except BaseException:
        line.connection.terminate()
        raise
    return line


# What the errors mean

_REFUSED = frozenset({"28P01", "28000"})
_NO_DATABASE = "3D000"
_NO_RIGHT = "42501"
_NO_SETTING = frozenset({"42704", "22023", "55P02", "42602"})  # unknown, not with this value, not while the server runs
_WARNING = "01000"
_UNKNOWN_SETTING = "08P01"  # what pgbouncer says to a setting that it does not keep apart
_LOST = ("08", "57P")  # the connection is gone, or the server goes away
_AGAIN = frozenset({"40001", "40P01", "55P03"})
_UNBINDABLE = frozenset({"22000", "22003", "22021", "22P05"})
_READ_ONLY = frozenset({"25006"})

GONE = (OSError, TimeoutError, exceptions.InterfaceError, exceptions.InternalClientError)
DRIVER_ERRORS = (exceptions.PostgresError, *GONE)


def state_of(error: BaseException | None) -> str:
    """The SQLSTATE; "" when the server said none."""
    found = getattr(error, "sqlstate", None)
    return found if isinstance(found, str) else ""


def _is_of_a_value(error: BaseException) -> bool:
    """The driver itself refused a value; nothing was sent."""
    return isinstance(error, exceptions.InterfaceError) and isinstance(error, ValueError)


def is_unbindable(error: BaseException) -> bool:
    """A value that no statement can take: a number beyond 64 bits, half a character, NUL."""
    return _is_of_a_value(error) or state_of(error) in _UNBINDABLE


def is_lost(error: BaseException) -> bool:
    """Nobody knows what became of the statement."""
    if isinstance(error, exceptions.PostgresError):
        return state_of(error).startswith(_LOST)
    return isinstance(error, GONE) and not _is_of_a_value(error)


def is_worth_another_try(error: BaseException) -> bool:
    """Nothing was stored, and the same may succeed: deadlocks, serialization, a row that somebody held for too long."""
    return state_of(error) in _AGAIN


def is_read_only(error: BaseException) -> bool:
    """The server takes no writes: it became a standby."""
    return state_of(error) in _READ_ONLY


def is_bad_change(error: BaseException) -> bool:
    """It cannot be stored, however often it is tried: a constraint, a value that is none, a row that is too large."""
    return is_unbindable(error) or state_of(error)[:2] in ("22", "23", "54")


def leaves_usable(error: BaseException) -> bool:
    """The connection is at rest after ``error``: the server refused a statement, or the fault was ours."""
    return isinstance(error, Exception) and not is_lost(error)


def _as_pooled(error: Exception) -> str:
    """The state that its server would have said: an older pgbouncer has one for all, and only its words differ."""
    said = str(error)
    if "database" in said and ("no such" in said or "does not exist" in said):
        return _NO_DATABASE
    return "28P01" if "authentication failed" in said or "no such user" in said else _UNKNOWN_SETTING


def _not_reached(error: Exception, dsn: str, *, is_shared: bool) -> NotReached | InvalidInput | None:
    """What was met when connecting, if it is known what to do about it."""
    target = target_of(dsn)
    state = _as_pooled(error) if (state := state_of(error)) == _UNKNOWN_SETTING else state
    if state in _REFUSED:
        return refused(has_password=target.has_password)
    if state == _NO_DATABASE:
        return no_database(target.database, mend=f'CREATE DATABASE "{target.database}";')
    if state == _NO_RIGHT:
        grant = f'GRANT CONNECT ON DATABASE "{target.database}" TO the user of the store\'s address;'
        return no_right_to(target.database, mend=grant)
    if state in _NO_SETTING or (state == _UNKNOWN_SETTING and is_shared):
        return refused_settings(dsn)
    if state or isinstance(error, exceptions.InterfaceError):
        return None
    if "rejected SSL upgrade" in str(error):  # the driver's own words, also of who answers nothing
        return no_tls(target.place) if "sslmode=" in dsn else other_server(target.place, "PostgreSQL")
    return unreached(error, place=target.place, host=target.host)


def meaning_of(error: BaseException) -> SatchelError:
    """What a caller hears: no text of the server's, which may show statements and values."""
    if isinstance(error, NotReached):
        return error.meaning()
    state = state_of(error)
    if isinstance(error, exceptions.ClientConfigurationError):
        return InvalidInput("is no address of a PostgreSQL server", field="url")
    if is_unbindable(error):
        return InvalidInput(f"holds a value that this store cannot look for ({type(error).__name__})", field="request")
    if state in _AGAIN:
        return StoreBusy("other transactions kept the rows; nothing was stored")
    if state == "53300":
        return StoreBusy("the server takes no more connections; nothing was stored")
    if state == _NO_RIGHT:
        return no_right(mend="GRANT ALL ON SCHEMA public TO the user of the store's address;")
    if state in ("XX001", "XX002"):
        return StoreCorrupt("the database")
    if state == "53100":
        return StoreUnavailable("the disk is full")
    if state in _READ_ONLY or isinstance(error, exceptions.TargetServerAttributeNotMatched):
        return StoreUnavailable("no server takes writes now")
    if isinstance(error, TimeoutError):
        return silent()
    if isinstance(error, StandbyUnheard):
        return StoreUnavailable("the server's standby was not heard")
    if state:
        return StoreUnavailable(f"PostgreSQL says {type(error).__name__.removesuffix('Error')} ({state})")
    return StoreUnavailable(f"the server cannot be reached ({type(error).__name__})")


def _may_pass(error: BaseException) -> bool:
    """Wrong passwords and missing databases stay as they are."""
    if isinstance(error, NotReached):
        return error.may_pass
    state = getattr(error, "sqlstate", None)
    return not isinstance(state, str) or state[:2] in ("08", "57", "53")


FAULTS = Faults(
    errors=DRIVER_ERRORS,
    meaning_of=meaning_of,
    is_lost=is_lost,
    is_worth_another_try=is_worth_another_try,
    is_read_only=is_read_only,
    is_bad_change=is_bad_change,
    leaves_usable=leaves_usable,
    may_pass=_may_pass,
)
