"""Connections to a server, and what its errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as ConnectionLost

from satchel.errors import InvalidInput, SatchelError, StoreBusy, StoreCorrupt, StoreUnavailable
from satchel.stores.redis.address import Address, Place
from satchel.stores.redis.scripts import SCRIPTS, Script
from satchel.stores.sql.reaching import NotReached, no_database, refused, shown_place, silent, unreached

PATIENCE = 30.0  # seconds until a server that does not answer is given up

T = TypeVar("T")

Reply = Any  # what the server answers: bytes, a number, None, or a list of these; or its error


class Command(NamedTuple):
    """What one server is told. ``slot`` says which, in a cluster."""

    slot: int
    words: tuple[bytes | str | int, ...]
    script: Script | None = None


class Lost(Exception):  # not raised: it stands in the place of a reply
    """In the place of a reply: nobody knows what became of the command, or whether all replicas have it."""


LOST = Lost()


def call(slot: int, name: str, keys: Sequence[bytes], arguments: Iterable[bytes | str | int] = ()) -> Command:
    """A script."""
    script = SCRIPTS[name]
    return Command(slot, ("EVALSHA", script.sha, len(keys), *keys, *arguments), script)


class Line:
    """One connection. Whoever breaks off in the middle closes it."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, address: Address, place: Place) -> Line:
        """Raises NotReached, the driver's errors, OSError and TimeoutError."""
        options: dict[str, Any] = {
            "host": place[0],
            "port": place[1],
            "db": address.database,
            "username": address.username,
            "password": address.password,
            "socket_timeout": None,
            "socket_connect_timeout": address.connect_timeout,
            "protocol": 2,
        }
        if address.has_tls:
            connection: Connection = SSLConnection(**options | dict(address.tls))
        else:
            connection = Connection(**options)
        try:
            async with asyncio.timeout(address.connect_timeout):
                await connection.connect()  # type: ignore[no-untyped-call]  # the driver says nothing of it
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, DRIVER_ERRORS) and (known := _not_reached(error, address, place)):
                raise known from error
            raise
        return cls(connection)

    @property
    def is_open(self) -> bool:
        return bool(self._connection.is_connected)

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)

    async def tell(self, words: Sequence[bytes | str | int]) -> None:
        """Without waiting for the reply."""
        await self._connection.send_packed_command(self._connection.pack_command(*words), check_health=False)

    async def hear(self) -> Reply:
        """The next reply, or its error, however long it takes."""
        try:
            return await self._connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    async def ask(self, commands: Sequence[Sequence[bytes | str | int]], heard: list[Reply]) -> None:
        """All at once; replies are added to ``heard`` as they come. An error of a command is its reply. Raises what means that
        the connection is lost; then nobody knows what became of the rest."""
        connection = self._connection
        pack = connection.pack_command
        packed = b"".join([part for words in commands for part in pack(*words)])
        async with asyncio.timeout(PATIENCE):
            await connection.send_packed_command(packed, check_health=False)
            for _ in commands:
                try:
                    heard.append(await connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    heard.append(error)


# What the errors mean

GONE = (OSError, TimeoutError, ConnectionLost)
DRIVER_ERRORS = (RedisError, OSError, TimeoutError)

Remedy = Literal["load the script", "go there", "ask there", "look again", "none"]
_LOOK_AGAIN = (TryAgainError, ClusterDownError, MasterDownError, ReadOnlyError, BusyLoadingError)


def remedy_for(error: object) -> Remedy:
    """What may help against a command's error. Nothing was done by it."""
    if isinstance(error, NoScriptError):
        return "load the script"
    if isinstance(error, MovedError):
        return "go there"
    if isinstance(error, AskError):
        return "ask there"
    if isinstance(error, _LOOK_AGAIN) or str(error).startswith(("LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN")):
        return "look again"
    return "none"


def is_refusal(error: BaseException) -> bool:
    """To connect again will not help: wrong passwords, missing rights."""
    if isinstance(error, NotReached):
        return not error.may_pass
    return isinstance(error, (AuthenticationError, AuthorizationError, NoPermissionError)) or (
        isinstance(error, ResponseError) and remedy_for(error) == "none"
    )


def needs_password(error: BaseException) -> bool:
    """The address gives none, and the server says so to every command: none was done."""
    return isinstance(error, AuthenticationError) and "required" in str(error)


def is_of_one_command(error: object) -> bool:
    """Its script failed on what it found: not the server's state, but this command's own trouble."""
    return isinstance(error, ResponseError) and type(error) is ResponseError and _word(error) not in _STATES


_STATES = frozenset({"MISCONF", "OOM", "NOREPLICAS", "BUSY", "LOADING", "READONLY", "NOAUTH", "NOPERM", "CLUSTERDOWN"})


def _word(error: object) -> str:
    """The first of an error, which names its kind. Nothing else of it is shown: it may hold keys and values."""
    first = str(error).split(" ", 1)[0]
    return first if first.isupper() and first.isalpha() else ""


def _not_reached(error: Exception, address: Address, place: Place) -> NotReached | None:
    """What was met when connecting, if it is known what to do about it."""
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return refused(has_password=address.password is not None)
    if isinstance(error, ResponseError):
        if "DB index is out of range" not in str(error):
            return None
        number = address.database
        return no_database(str(number), mend=f"databases {number + 1}  in redis.conf, and start the server anew")
    return unreached(error, place=shown_place(*place), host=place[0])


def meaning_of(error: BaseException) -> SatchelError:
    """What a caller hears: no text of the server's, which may show keys and values."""
    if isinstance(error, NotReached):
        return error.meaning()
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return refused(has_password=not needs_password(error)).meaning()
    if str(error).startswith("max number of clients"):
        return StoreBusy("the server takes no more connections; nothing was stored")
    if isinstance(error, NoPermissionError):
        return StoreUnavailable("the server's account may not do this (NOPERM)")
    if isinstance(error, OutOfMemoryError) or _word(error) == "OOM":
        return StoreUnavailable("the server's memory is full (maxmemory)")
    if isinstance(error, ReadOnlyError):
        return StoreUnavailable("no server takes writes now")
    if isinstance(error, BusyLoadingError):
        return StoreUnavailable("the server is still loading its data")
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return silent()
    if isinstance(error, ResponseError):
        word = _word(error)
        if word == "MISCONF":
            return StoreUnavailable("the server cannot write to its disk")
        if word == "BUSY":
            return StoreBusy("a script of somebody else's keeps the server busy; nothing was stored")
        if word == "WRONGTYPE" or not word:
            return StoreCorrupt("the database")
        return StoreUnavailable(f"Redis says {word}")
    if isinstance(error, UnicodeError):
        return InvalidInput(f"holds a value that this store cannot look for ({type(error).__name__})", field="request")
    return StoreUnavailable(f"the server cannot be reached ({type(error).__name__})")


async def meant(reading: Awaitable[T]) -> T:
    """What is asked for by a value that is no text is the caller's to weigh."""
    try:
        return await reading
    except UnicodeError as error:
        raise meaning_of(error) from error
