"""``satchel doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

import satchel
from satchel import OpenStore, StoreError
from satchel.cli import flags, output, sentences
from satchel.cli.exit_codes import ExitCode
from satchel.cli.failures import StoreNotShared
from satchel.cli.store import check_there, run_async
from satchel.cli.visible import one_line
from satchel.errors import InvalidInput, StoreMisused
from satchel.store import Capabilities, Finding, Schema

# What it means that a store says no to a promise, or whose time it goes by.
MEANINGS: dict[tuple[str, Any], str] = {
    ("durable", False): "what was acknowledged is gone when the process dies, or the power",
    ("shared", False): "one process alone may open it: a second server needs another store",
    (
        "prefix_after_failover",
        False,
    ): "after a failover a reader may miss what was read before it; a follower is told so (resync) and reads again",
    (
        "erases_traces",
        False,
    ): "deleted text cannot be read any more, but its bytes stay in the database's files, log and backups"
    " until they are written over or dropped",
    ("clock", "process"): "expiry goes by the clock of the machine that serves it: keep it set (NTP)",
    ("clock", "server"): "expiry and leases go by the database server's clock, whatever the clients' clocks say",
}
LEVELS = ("error", "warning", "ok")


def examine_store(*, store: flags.OperatorsStore, json: flags.Json = False) -> int:
    """Check a store's settings: what is as it should be, what weakens a promise, and the line that mends it. Then what the
    store itself can promise, and what each no means.

    The exit code is 1 if anything is an error; a warning is none. Nothing is changed.
    """
    if store.startswith("memory:"):
        raise StoreNotShared
    check_there(store)
    opened = satchel.open(store)
    findings = run_async(_findings(opened))
    capabilities = opened.store.capabilities
    if json:
        output.write_json(_document(findings, capabilities))
    else:
        _show(findings, capabilities)
    return ExitCode.UNEXPECTED if any(one.is_fatal for one in findings) else ExitCode.OK


async def _findings(store: OpenStore) -> list[Finding]:
    """Worst first. To open a store brings it up to date: one that is not is only asked for its schema."""
    try:
        schema = await store.store.schema()
        found = [] if schema is None else [_of_schema(schema)]
        if all(one.is_ok for one in found):
            found += await _checked(store)
    except StoreError as error:
        found = [
            Finding(
                is_fatal=True,
                what=f"connection={error.code}",
                why=f"nothing can be stored or read: {error}",
                mend="see that the server runs, and that the address, the account and its rights are right",
            ),
            *await _asked_why(store),
        ]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


async def _checked(store: OpenStore) -> list[Finding]:
    """A store that will not open on a database which keeps less than it should can be asked why."""
    try:
        async with store:
            return list(await store.store.check())
    except InvalidInput:
        if why := await _asked_why(store):
            return why
        raise


async def _asked_why(store: OpenStore) -> list[Finding]:
    """A store that is not open."""
    try:
        return list(await store.store.check())
    except (StoreMisused, StoreError):  # it has nothing to say before it is open, or cannot
        return []


def _of_schema(schema: Schema) -> Finding:
    what = f"schema={schema.found}"
    if schema.found > schema.known:
        return Finding(
            is_fatal=True,
            what=what,
            why=f"this program knows {schema.known} and refuses to open what a newer one wrote; nothing else was checked",
            mend="pip install --upgrade satchel",
        )
    if schema.pending:
        return Finding(
            what=what,
            why=f"{sentences.count(len(schema.pending), 'step')} to come, which the next program to open it takes; nothing else"
            " was checked",
            mend="satchel migrate up --store URL",
        )
    return Finding(is_ok=True, what=what, why="the newest that this program knows")


def _capabilities(capabilities: Capabilities) -> list[tuple[str, Any, str]]:
    """Each with what it means, where it is a no."""
    return [
        (name, value, MEANINGS.get((name, value), ""))
        for name, value in msgspec.structs.asdict(capabilities).items()
        if name not in ("name", "parallel_batches")  # neither is a promise
    ]


def _document(findings: Sequence[Finding], capabilities: Capabilities) -> dict[str, Any]:
    return {
        "store": capabilities.name,
        "ok": not any(one.is_fatal for one in findings),
        "findings": [
            {"level": one.level, "what": one.what, "why": one.why, "mend": one.mend or None} for one in findings
        ],
        "capabilities": [
            {"name": name, "value": value, "means": means or None} for name, value, means in _capabilities(capabilities)
        ],
    }


def _show(findings: Sequence[Finding], capabilities: Capabilities) -> None:
    for one in findings:
        output.write_text(one_line(f"{one.level:<8} {one.what}: {one.why}"))
        if one.mend:
            output.write_text(one_line(f"         mend: {one.mend}"))
    output.write_text(f"\nthe store {capabilities.name} promises")
    for name, value, means in _capabilities(capabilities):
        said = {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
        output.write_text(f"{said:<8} {name}" + (f": {means}" if means else ""))
    errors, warnings, good = (sum(one.level == level for one in findings) for level in LEVELS)
    counted = f"{sentences.count(errors, 'error')}, {sentences.count(warnings, 'warning')}, {good} ok"
    output.write_text(f"\n{counted}")
