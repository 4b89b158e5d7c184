"""A server whose memory runs full under its writers, again and again, and has room again."""

from __future__ import annotations

import re

from satchel.servers import RedisServer
from tests.proof.full_disk import ROOM, filled
from tests.proof.program import Program, Report, Task


async def full_memory(task: Task) -> Report:
    with task.store.make(task.folder, True) as database:
        server = database.server
        assert isinstance(server, RedisServer)

        def fill() -> None:
            used = re.search(rb"used_memory:(\d+)", server.ask("INFO", "memory"))
            assert used is not None
            server.ask("CONFIG", "SET", "maxmemory", str(int(used[1]) + ROOM // 4))

        return await filled(task, database, fill=fill, make_room=lambda: server.ask("CONFIG", "SET", "maxmemory", "0"))


FULL_MEMORY = Program(
    name="full_memory",
    shows="a full memory refuses writes, loses nothing, and needs nobody once it has room; reads go on",
    run=full_memory,
    bounds={"fills": 5},
    weak=("answers_before_commit",),
    stores=("redis",),
)
