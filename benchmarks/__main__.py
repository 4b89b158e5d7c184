"""``python -m benchmarks [--stores NAME…] [--quick] [--json] [--only NAME…]``: exits with 1 if a figure does not reach what it should."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

import msgspec

from benchmarks import redis, servers
from benchmarks.appends import appends, file_size
from benchmarks.cycles import cycles
from benchmarks.figures import Figure
from benchmarks.followers import thousand
from benchmarks.http import http
from benchmarks.processes import import_memory, import_time, lone_writer
from benchmarks.reads import lists, long_sessions
from benchmarks.streams import delays
from benchmarks.workers import pickup

Group = Callable[[], Awaitable[list[Figure]]]
STORES = ("sqlite", *servers.KINDS, "redis")


def groups(*, quick: bool) -> dict[str, Group]:
    """The figures of the embedded store, by what is measured together. ``quick``: fewer rounds, under 60 s in all."""
    rounds = 5 if quick else 11
    few = 3 if quick else 11  # of what takes long
    each = 30 if quick else 60

    async def serial() -> list[Figure]:
        return [await appends("append.serial", writers=1, sessions=1, each=20 * each, rounds=rounds, reach=0.45)]

    async def many() -> list[Figure]:
        return [await appends("append.64x64", writers=64, sessions=64, each=4 * each, rounds=few, reach=0.55)]

    async def hot() -> list[Figure]:
        return [await appends("append.16x1", writers=16, sessions=1, each=10 * each, rounds=rounds, reach=0.45)]

    async def beside() -> list[Figure]:
        return [await lone_writer(seconds=3 if quick else 15)]

    async def long() -> list[Figure]:
        return await long_sessions(rounds=rounds, calls=30 if quick else 60)

    async def size() -> list[Figure]:
        return [await file_size()]

    async def listed() -> list[Figure]:
        return [await lists(rounds=rounds, calls=30 if quick else 60)]

    async def processes() -> list[Figure]:
        return [*import_time(rounds=rounds), import_memory()]

    async def picked_up() -> list[Figure]:
        return await pickup(runs=50 if quick else 300)

    async def cycled() -> list[Figure]:
        return [await cycles(each=15, rounds=few, reach=0.3)]

    async def followed_by_many() -> list[Figure]:
        return await thousand(seconds=2 if quick else 10)

    async def over_http() -> list[Figure]:
        return await http(rounds=few, each=each)

    async def followed() -> list[Figure]:
        return await delays(count=30 if quick else 150)

    async def counted() -> list[Figure]:
        from benchmarks.tokens import tokens  # it loads a tokenizer's vocabulary: a second

        return tokens(rounds=rounds)

    return {
        "append.serial": serial,
        "append.64x64": many,
        "append.16x1": hot,
        "append.beside": beside,
        "long": long,
        "bytes": size,
        "list.100k": listed,
        "run.pickup": picked_up,
        "run.cycle": cycled,
        "follow.1000": followed_by_many,
        "http": over_http,
        "follow": followed,
        "context.tokens": counted,
        "processes": processes,
    }


async def measure(chosen: dict[str, Group]) -> list[Figure]:
    figures: list[Figure] = []
    for name, group in chosen.items():
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        figures.extend(await group())
    return figures


def show(figures: list[Figure]) -> None:
    width = max(len(figure.name) for figure in figures) + 2
    print(f"{'figure':<{width}}{'satchel':>12}{'limit':>12}{'ratio':>8}{'reach':>8}   unit")
    for figure in figures:
        limit = figure.limit if figure.limit is not None else figure.bound
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        reach = f"≥ {figure.reach:.2f}" if figure.reach is not None else "≤"
        mark = "" if figure.is_reached else "   BELOW ITS REACH"
        print(
            f"{figure.name:<{width}}{figure.satchel:>12,.1f}{limit or 0:>12,.1f}{ratio:>8}{reach:>8}   {figure.unit}{mark}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=["sqlite"], help="which stores to measure")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: under 60 s")
    parser.add_argument("--json", action="store_true", help='one document: {"results": [{"name", "unit", …}]}')
    parser.add_argument("--only", nargs="+", metavar="GROUP", help="some groups, those of --stores")
    options = parser.parse_args()
    databases = [servers.Databases(kind) for kind in servers.KINDS if kind in options.stores]
    redis_databases = redis.Databases()
    known: dict[str, Group] = {}
    if "sqlite" in options.stores:
        known |= groups(quick=options.quick)
    for each in databases:
        known |= servers.groups(each, quick=options.quick)
    if "redis" in options.stores:
        known |= redis.groups(redis_databases, quick=options.quick)
    unknown = [name for name in options.only or () if name not in known]
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = {name: group for name, group in known.items() if not options.only or name in options.only}
    try:
        figures = asyncio.run(measure(chosen))
    finally:
        for each in databases:
            each.stop()
        redis_databases.stop()
    if options.json:
        print(msgspec.json.encode({"results": figures}).decode())
    else:
        show(figures)
    return 0 if all(figure.is_reached for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
