"""Hostile bytes, found by atheris: coverage leads it. No exception but those that say what is wrong, no hang, bounded memory."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
import time
from pathlib import Path

from tests.proof.hostile_targets import SEEDS, TARGETS, WEAK, environment
from tests.proof.program import NotHere, Program, Report, Task
from tests.proof.served import ROOT

HANG = 10  # seconds for one input
MEGABYTES = 1024  # of memory
LONGEST = 4096  # bytes of one input
AT_ONCE = 2


async def hostile(task: Task) -> Report:
    if importlib.util.find_spec("atheris") is None:
        raise NotHere("atheris is not installed: make fuzzer")
    began = time.monotonic()
    report = Report(figures={"targets": 0, "inputs": 0})
    room = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> None:
        async with room:
            inputs, fault = await fuzz(name, task)
        report.figures["targets"] = int(report.figures["targets"]) + 1
        report.figures["inputs"] = int(report.figures["inputs"]) + inputs
        report.faults += [fault] if fault else []
        task.say(f"{name}: {inputs} inputs{', ' + fault if fault else ''}")

    await asyncio.gather(*(one(name) for name in (WEAK if task.weak else TARGETS)))
    report.seconds = time.monotonic() - began
    return report


async def fuzz(name: str, task: Task) -> tuple[int, str]:
    """How many inputs were tried, and what was wrong with the last of them."""
    folder = task.folder / name
    await asyncio.to_thread(_seed, folder, SEEDS.get(name, ()))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", "-m", "tests.proof.fuzz", name,
        f"-max_total_time={task.bounds['seconds']}", f"-timeout={HANG}", f"-rss_limit_mb={MEGABYTES}",
        f"-max_len={LONGEST}", f"-seed={task.bounds['seed']}", f"-artifact_prefix={folder}-", "-print_final_stats=1",
        str(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=ROOT, env=environment(),
    )  # fmt: skip
    try:
        async with asyncio.timeout(task.bounds["seconds"] + 90):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return 0, f"{name}: it did not end"
    said = output.decode(errors="replace")
    counted = re.search(r"stat::number_of_executed_units:\s+(\d+)", said)
    inputs = int(counted[1]) if counted else 0
    if process.returncode == 0:
        return inputs, "" if inputs else f"{name}: nothing was tried"
    return inputs, f"{name}: {_cause(said)} {_input(task.folder, name)}"


def _seed(folder: Path, seeds: tuple[bytes, ...]) -> None:
    folder.mkdir()
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)


def _cause(said: str) -> str:
    found = re.search(r"=== Uncaught Python exception: ===\n(.*?)\n(?:==|\n)", said, re.DOTALL)
    if found is None:
        found = re.search(r"ERROR: libFuzzer: (.*)", said)
    return " ".join(found[1].split())[:900] if found else said[-900:]


def _input(folder: Path, name: str) -> str:
    kept = sorted(folder.glob(f"{name}-*"))
    return f"by {kept[0].read_bytes()[:300]!r}" if kept else ""


HOSTILE = Program(
    name="hostile",
    shows="no bytes of a stranger make anything but an error that says what is wrong with them",
    run=hostile,
    bounds={"seconds": 20, "seed": 1},
    stores=("sqlite",),
    weak=("without_typed_errors",),
)
