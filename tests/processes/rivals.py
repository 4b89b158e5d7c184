"""Two processes that write to one session, each on the version that it read."""

from __future__ import annotations

import asyncio
import sys

_PROGRAM = """
import asyncio, sys
import satchel
from satchel import Principal, SessionManager, VersionConflict

async def main() -> None:
    async with satchel.open(sys.argv[1]) as store:
        manager = SessionManager(store, Principal.agent(sys.argv[3], tenant_id="acme", acting_for="ada"))
        won = []
        for turn in range(150):
            seen = (await manager.get_session(sys.argv[2], include=())).version
            try:
                message = await manager.append_message(
                    sys.argv[2], {"role": "user", "content": sys.argv[3]}, expected_version=seen
                )
            except VersionConflict as conflict:
                assert conflict.current > conflict.expected == seen
            else:
                assert message.version == seen + 1
                won.append(message.version)
        print(*won)

asyncio.run(main())
"""


async def rival_processes(url: str, session_id: str) -> tuple[set[int], set[int]]:
    """The versions that ``left`` and ``right`` won."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, url, session_id, name, stdout=asyncio.subprocess.PIPE
        )
        for name in ("left", "right")
    ]
    outputs = [(await process.communicate())[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    left, right = ({int(version) for version in output.split()} for output in outputs)
    return left, right
