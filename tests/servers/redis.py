"""The Redis server of this test process: started when the first test asks for it, stopped when the last has ended."""

from __future__ import annotations

import functools

from satchel.servers import RedisServer
from tests.servers.shared import started

_started: list[RedisServer] = []


@functools.cache
def server() -> RedisServer:
    """Durable, but for the wait for the disk: whoever tests that has a server of its own."""
    made = RedisServer(settings={"databases": "64"})
    started(made, "redis-server")
    _started.append(made)
    return made


_DATABASES: dict[str, tuple[int, object]] = {}


def emptied_database(name: str, *, once_for: object) -> str:
    """The address of a database that is emptied for each new ``once_for`` (a test's folder, say)."""
    number, emptied_for = _DATABASES.get(name, (len(_DATABASES), None))
    if once_for != emptied_for:
        server().ask("FLUSHDB", database=number)
    _DATABASES[name] = (number, once_for)
    return server().url(number)


def stop_all() -> None:
    while _started:
        _started.pop().stop()
