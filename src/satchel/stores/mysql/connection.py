"""Connections to a server: statements in packets, and transactions."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncmy
from asyncmy import errors
from asyncmy.constants import CLIENT

from satchel.errors import InvalidInput
from satchel.stores.mysql.address import Address
from satchel.stores.mysql.faults import DEADLOCK, DRIVER_ERRORS, leaves_usable, not_reached

STATEMENT_PATIENCE = 30.0  # seconds until a server that does not answer is given up
LOCK_PATIENCE = 5  # seconds that a statement waits for a row which another transaction holds
IDLE = 20.0  # seconds after which a connection that nobody uses is replaced
SERVER_IDLE = 30  # seconds after which the server ends one, with whatever transaction is open

# A driver and a server agree on this and no character set: bytes go and come as they are.
_SETTINGS = (
    "SET NAMES binary; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    " SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00',"
    f" SESSION innodb_lock_wait_timeout = {LOCK_PATIENCE}, SESSION lock_wait_timeout = 60,"
    f" SESSION wait_timeout = {SERVER_IDLE}"
    " /*M! , SESSION idle_transaction_timeout = 10 */"  # a comment to MySQL
).encode()
# A node of a Galera cluster applies what it received a moment later: reads and transactions wait for what was acknowledged.
_IS_NODE = (
    b"SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'"
    b" OR Variable_name = 'group_replication_group_name' AND Value <> ''"
)
_NODE_SETTINGS = b"SET SESSION wsrep_sync_wait = 1"
START = b"START TRANSACTION"
COMMIT = b"COMMIT"
ROLLBACK = b"ROLLBACK"
# One snapshot for all statements until the COMMIT; it locks nothing.
_ONE_SNAPSHOT = (
    b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)
_ROOM = 1024  # bytes of a packet that are not ours

Row = Any  # a tuple of columns: numbers as int, all else as bytes
Rows = Sequence[Row]
Fetch = Callable[..., Awaitable[list[Rows]]]  # statements of one snapshot; the rows of each


class Result:
    """Of one statement: the rows that it found, or how many it changed."""

    __slots__ = ("changed", "rows")

    def __init__(self, rows: Rows, changed: int) -> None:
        self.rows = rows
        self.changed = changed


class Line:
    """One connection. ``packet``: bytes of statements that may go together; ``is_node``: of a cluster whose nodes all take writes; ``answered``: how
    many statements of the last ``run`` did not fail."""

    __slots__ = ("answered", "connection", "is_node", "packet", "used_at")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.packet = 1 << 20
        self.is_node = False
        self.answered = 0
        self.used_at = time.monotonic()

    def is_closed(self) -> bool:
        """Or as good as that: the server ends one that is idle for long."""
        # What `connected` says is that nobody here closed it.
        is_broken: bool = self.connection._stream_broken  # noqa: SLF001  # the driver's own pool asks the same
        return is_broken or time.monotonic() - self.used_at > IDLE

    def terminate(self) -> None:
        self.connection.close()

    async def close(self, patience: float) -> None:
        async with asyncio.timeout(patience):
            await self.connection.ensure_closed()

    async def run(self, *statements: bytes) -> list[Result]:
        """One after another, in as few packets as they fit into; after one that fails none is run."""
        return await self._run(_packets(statements, self.packet))

    async def run_inside(self, *statements: bytes) -> list[Result]:
        """The same in the transaction that the first of them or an earlier one began.

        A node of a cluster takes a transaction back when another node's, which was certified before it, needs its rows; it
        says so to the next packet. What stands behind in the same packet runs all the same, each statement by itself. So there
        each goes alone, and none follows one that was not in the transaction.
        """
        if not self.is_node:
            return await self.run(*statements)
        results: list[Result] = []
        for statement in statements:
            results += await self._run([statement])
            self.answered = len(results)
            if statement not in (COMMIT, ROLLBACK) and not self.connection.get_transaction_status():
                raise errors.OperationalError(DEADLOCK, "the transaction was taken back")
        return results

    async def _run(self, packets: Sequence[bytes]) -> list[Result]:
        self.answered = 0
        results: list[Result] = []
        async with asyncio.timeout(STATEMENT_PATIENCE):
            for packet in packets:
                await self.connection.query(packet)
                while True:
                    found = self.connection._result  # noqa: SLF001  # its cursor would ask for warnings in between
                    results.append(Result(found.rows or (), found.affected_rows))
                    self.answered += 1
                    if not found.has_next:
                        break
                    await self.connection.next_result()
        self.used_at = time.monotonic()
        return results

    async def fetch(self, *statements: bytes) -> list[Rows]:
        """The rows of each, all of one snapshot."""
        if len(statements) == 1:
            return [result.rows for result in await self.run(*statements)]
        try:
            found = await self.run(*_ONE_SNAPSHOT, *statements, COMMIT)
        except BaseException as error:
            await self.rest_after(error)
            raise
        return [result.rows for result in found[len(_ONE_SNAPSHOT) : -1]]

    async def fetch_inside(self, *statements: bytes) -> list[Rows]:
        """In the transaction that is open."""
        return [result.rows for result in await self.run_inside(*statements)]

    async def rest_after(self, error: BaseException) -> None:
        """Leave the transaction, unless the connection is lost anyway."""
        if leaves_usable(error) and not self.is_closed():
            with contextlib.suppress(*DRIVER_ERRORS):
                await self.run(ROLLBACK)
                return
            self.terminate()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self.run(START)
        try:
            yield
        except BaseException as error:
            await self.rest_after(error)
            raise
        await self.run(COMMIT)


def _packets(statements: Sequence[bytes], limit: int) -> list[bytes]:
    packets: list[bytes] = []
    start = size = 0
    for index, statement in enumerate(statements):
        if size and size + len(statement) > limit:
            packets.append(b";".join(statements[start:index]))
            start, size = index, 0
        size += len(statement) + 1
    packets.append(b";".join(statements[start:]))
    return packets


async def connect(address: Address) -> Line:
    """Raises NotReached, the driver's errors, OSError and TimeoutError."""
    try:
        return await _connect(address)
    except (*DRIVER_ERRORS, UnicodeError) as error:  # the latter of a name that no host can have
        if known := not_reached(error, address):
            raise known from error
        raise


async def _connect(address: Address) -> Line:
    async with asyncio.timeout(address.connect_timeout):
        connection = await asyncmy.connect(
            host=address.host,
            port=address.port,
            unix_socket=address.unix_socket,
            user=address.user,
            password=address.password,
            database=address.database,
            charset="utf8mb4",
            client_flag=CLIENT.FOUND_ROWS,  # matched rows, whether they changed or not
            autocommit=True,
            connect_timeout=address.connect_timeout,
            program_name="satchel",
            ssl=_context(address),
        )
        line = Line(connection)
        try:
            *_, packet, cluster = await line.run(_SETTINGS, b"SELECT @@max_allowed_packet", _IS_NODE)
            if cluster.rows:
                line.is_node = True
                if cluster.rows[0][0] == b"wsrep_on":
                    await line.run(_NODE_SETTINGS)
        except BaseException:
            line.terminate()
            raise
        line.packet = int(packet.rows[0][0]) - _ROOM
        return line


def _context(address: Address) -> ssl.SSLContext | None:
    if address.tls == "off":
        return None
    try:
        context = ssl.create_default_context(cafile=address.tls_ca)
    except OSError as error:  # also what a file raises that holds no certificates
        raise InvalidInput("tls_ca names no file of certificates", field="url") from error
    if address.tls == "on":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
