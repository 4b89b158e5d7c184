"""The command: which programs, on which stores, how much of them; what came out."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from satchel.servers import ServerMissing
from tests.proof import records
from tests.proof.program import NotHere, Program, Report, Task
from tests.proof.programs import PROGRAMS
from tests.proof.stores import STORES


def run(program: Program, store: str, *, weak: str = "", bounds: dict[str, int], is_seen: bool = False) -> Report:
    """Raises NotHere."""
    began = time.monotonic()
    name = f"{program.name} on {store}" + (f", {weak}" if weak else "")

    def say(line: str) -> None:
        if is_seen:
            print(f"  {time.monotonic() - began:6.1f} s  {name}: {line}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="satchel-proof-") as folder:
        Path(folder).chmod(0o711)  # a database's own account looks for its folder in it
        task = Task(
            store=STORES[store],
            folder=Path(folder),
            bounds=program.bounds_on(store, weak=weak) | bounds,
            weak=weak,
            say=say,
        )
        say("starts")
        try:
            report = asyncio.run(program.run(task))
        except ServerMissing as missing:
            raise NotHere(str(missing)) from missing
        except TimeoutError:
            report = Report(figures={}, faults=["what was waited for did not come: it did not recover by itself"])
    report.seconds = time.monotonic() - began
    return report


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof",
        description="Break it on purpose, and see that it holds.",
        epilog="Programs: " + "; ".join(f"{one.name} ({one.shows})" for one in PROGRAMS.values()),
    )
    parser.add_argument("what", nargs="*", metavar="PROGRAM|BOUND=N", help="which, and how much of them: events=200000")
    parser.add_argument("--store", action="append", choices=list(STORES), help="repeat it for several; all, left out")
    parser.add_argument("--weak", action="store_true", help="the variants that must fail, too")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/reliability.md")
    options = parser.parse_intermixed_args()
    names = [word for word in options.what if "=" not in word]
    bounds = {name: int(number) for name, _, number in (word.partition("=") for word in options.what if "=" in word)}
    if unknown := [name for name in names if name not in PROGRAMS]:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    known = {bound for program in PROGRAMS.values() for bound in program.bounds}
    if unknown := [name for name in bounds if name not in known]:
        parser.error(f"no bound {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    is_good = True
    for program in (PROGRAMS[name] for name in names or PROGRAMS):
        for store in (store for store in options.store or STORES if store in program.stores):
            for weak in ("", *(program.weak if options.weak else ())):
                is_good &= _show(program, store, weak, bounds, is_written=options.write)
    return 0 if is_good else 1


def _show(program: Program, store: str, weak: str, bounds: dict[str, int], *, is_written: bool) -> bool:
    title = f"{program.name:<14}{store:<10}{weak or 'as it is':<24}"
    given = {name: number for name, number in bounds.items() if name in program.bounds}
    try:
        report = run(program, store, weak=weak, bounds=given, is_seen=True)
    except NotHere as reason:
        print(f"{title}skipped: {reason}", flush=True)
        return True
    is_good = bool(report.faults) == bool(weak)
    verdict = (f"found: {len(report.faults)} faults" if weak else "holds") if is_good else "FAILS"
    shown = ", ".join(f"{name} {value}" for name, value in report.figures.items())
    print(f"{title}{verdict:<22}{report.seconds:6.1f} s   {shown}", flush=True)
    for fault in report.faults[: 3 if weak and is_good else 20]:
        print(f"    {fault}", flush=True)
    if weak and not is_good:
        print("    what was broken on purpose was not found out: the program proves nothing", flush=True)
    if is_written:
        records.write(program, store, weak, report)
    return is_good
