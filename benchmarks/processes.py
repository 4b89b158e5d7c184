"""Figures of whole processes: the import of the package, and the memory of a large import."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import satchel
from benchmarks.figures import Figure, bounded
from satchel import Principal, SessionManager

MESSAGES = 100_000

_IMPORT = f"""
import asyncio, pathlib, re, resource, sys
import satchel
from satchel import Principal, SessionManager

async def main() -> None:
    async with satchel.open("sqlite:///" + sys.argv[2]) as store:
        manager = SessionManager(store, Principal.operator(tenant_id="acme", acting_for="ada"))
        with open(sys.argv[1], "rb") as lines:
            total = sum([imported.messages async for imported in manager.import_sessions(lines)])
        assert total == {MESSAGES}, total

asyncio.run(main())
status = pathlib.Path("/proc/self/status")  # what the system says of this process alone: ru_maxrss knows its parent too
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
print((int(peak[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024)
"""


_RIVAL = """
import asyncio, sys
import satchel
from satchel import Principal, SessionManager

async def main() -> None:
    async with satchel.open(sys.argv[1]) as store:
        manager = SessionManager(store, Principal.agent("rival", tenant_id="acme", acting_for="bob"))
        ids = [(await manager.create_session()).session_id for _ in range(64)]

        async def writer(session_id: str) -> None:
            while True:
                await manager.append_message(session_id, {"role": "user", "content": "x" * 400})

        print("ready", flush=True)
        await asyncio.wait_for(asyncio.gather(*map(writer, ids)), timeout=60)

asyncio.run(main())
"""


async def lone_writer(*, seconds: float) -> Figure:
    """How long one writer waits for an append while another process commits 64 at a time without pause."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/shared.db"
        async with satchel.open(url) as store:
            manager = SessionManager(store, Principal.agent("lone", tenant_id="acme", acting_for="ada"))
            session_id = (await manager.create_session()).session_id
            rival = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _RIVAL, url, stdout=asyncio.subprocess.PIPE
            )
            assert rival.stdout is not None
            try:
                await rival.stdout.readline()
                waits: list[float] = []
                end = time.perf_counter() + seconds
                while (began := time.perf_counter()) < end:
                    await manager.append_message(session_id, {"role": "user", "content": "hello"})
                    waits.append((time.perf_counter() - began) * 1000)
            finally:
                rival.kill()
                await rival.wait()
        return bounded("append.beside", "ms, p99", statistics.quantiles(waits, n=100)[98], bound=50)


def _environment() -> dict[str, str]:
    """Compiled modules are kept, as they are wherever a package is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _start(statement: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, env=_environment())
    return (time.perf_counter() - began) * 1000


def import_time(*, rounds: int) -> list[Figure]:
    """``import satchel`` beside ``import msgspec``; and, since the package loads what a program names, the manager too,
    beside what no program of that kind can do without. As processes in turn."""

    def more(statement: str, limit: str) -> float:
        _start(statement)
        return statistics.median(_start(statement) - _start(limit) for _ in range(rounds))

    manager = more("from satchel import SessionManager, open", "import asyncio, msgspec")
    return [
        bounded("import", "ms more than msgspec", more("import satchel", "import msgspec"), bound=60),
        bounded("import.manager", "ms more than asyncio and msgspec", manager, bound=100),
    ]


def import_memory() -> Figure:
    """100,000 messages imported: 99 conversations of 500 messages, and one of 50,500."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "many.jsonl"
        with lines.open("w") as out:
            for number in range(100):
                count = 500 if number else MESSAGES - 99 * 500
                said = ",".join(f'{{"role":"user","content":"{index:06d} {"x" * 400}"}}' for index in range(count))
                out.write(f'{{"source":"b","licence":"","session_id":"c{number}","messages":[{said}],"meta":{{}}}}\n')
        done = subprocess.run(
            [sys.executable, "-c", _IMPORT, str(lines), str(Path(folder) / "store.db")],
            check=True,
            capture_output=True,
            text=True,
            env=_environment(),
        )
        return bounded("import.memory", "MiB resident", float(done.stdout), bound=200)
