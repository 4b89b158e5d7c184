"""``satchel doctor``."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import Any

import msgspec

import satchel
from satchel import OpenStore, StoreError
from satchel.cli import flags, output, sentences
from satchel.cli.exit_codes import ExitCode
from satchel.cli.failures import StoreNotShared
from satchel.cli.store import check_there, run_async, without_password
from satchel.cli.visible import one_line
from satchel.errors import InvalidInput, StoreCorrupt, StoreMisused, StoreNotDurable, StoreUnavailable
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
DURABLE = "durable"
# Of what a store says when it cannot be opened, where it does not say itself what mends it.
MENDS: dict[str, str] = {
    "store_unavailable": "see that the server runs, and that the address, the account and its rights are right",
    "store_corrupt": "take the last good copy of the database",
    "store_busy": "satchel doctor  (once more, when those who keep it busy are done)",
}


def examine_store(*, store: flags.OperatorsStore, json: flags.Json = False) -> int:
    """Check a store's settings: what is as it should be, what weakens a promise, and the line that mends it. Then what the
    store itself can promise, and what each no means.

    The exit code is 1 if anything is an error; a warning is none. Nothing is changed.
    """
    if store.startswith("memory:"):
        raise StoreNotShared
    check_there(store)
    opened = satchel.open(store)
    findings = run_async(_findings(opened, store))
    capabilities = opened.store.capabilities
    if json:
        output.write_json(_document(findings, capabilities))
    else:
        _show(findings, capabilities)
    return ExitCode.UNEXPECTED if any(one.is_fatal for one in findings) else ExitCode.OK


async def _findings(store: OpenStore, url: str) -> list[Finding]:
    """Worst first. To open a store brings it up to date: one that is not is asked for its schema and its settings alone, at
    once, so that a server which does not answer is waited for once."""
    schema, settings = await asyncio.gather(_schema(store), _settings(store))
    if isinstance(schema, StoreError):
        found = [_of_trouble(schema), *settings]
    else:
        found = [] if schema is None else [_of_schema(schema, url)]
        if schema is None or schema.found == schema.known:
            found += await _checked(store, settings)
        elif schema.pending:
            found += settings
    return sorted(found, key=lambda one: LEVELS.index(one.level))


async def _schema(store: OpenStore) -> Schema | StoreError | None:
    try:
        return await store.store.schema()
    except StoreError as error:
        return error


async def _settings(store: OpenStore) -> list[Finding]:
    """Of a store that is not open."""
    try:
        return list(await store.store.check())
    except (StoreMisused, StoreError):  # it has nothing to say before it is open, or cannot
        return []


async def _checked(store: OpenStore, settings: list[Finding]) -> list[Finding]:
    """``settings``: why a store will not open on a database that keeps less than it should."""
    try:
        async with store:
            return list(await store.store.check())
    except (InvalidInput, StoreError) as error:
        if any(one.is_fatal for one in settings):
            return settings
        if isinstance(error, StoreError):
            return [_of_trouble(error), *settings]
        raise


def _of_trouble(error: StoreError) -> Finding:
    why, mend = str(error), ""
    if isinstance(error, StoreUnavailable):
        why, mend = error.reason, error.mend
    elif isinstance(error, StoreCorrupt):
        why, mend = f"{error.what} {error.trouble}", error.mend
    elif isinstance(error, StoreNotDurable):
        why, mend = error.what, error.line
    return Finding(
        is_fatal=True,
        what=f"connection={error.code}",
        why=f"nothing can be stored or read: {why}",
        mend=mend or MENDS.get(error.code, ""),
    )


def _of_schema(schema: Schema, url: str) -> Finding:
    what = f"schema={schema.found}"
    if schema.found > schema.known:
        return Finding(
            is_fatal=True,
            what=what,
            why=f"this program knows {schema.known} and refuses to open what a newer one wrote; nothing else was checked",
            mend="run a Satchel that is as new as the one that wrote it",
        )
    if schema.pending:
        return Finding(
            what=what,
            why=f"{sentences.count(len(schema.pending), 'step')} to come, which the next program to open it takes",
            mend=f"satchel migrate up --store {shlex.quote(without_password(url))}",
        )
    return Finding(is_ok=True, what=what, why="the newest that this program knows")


def _capabilities(capabilities: Capabilities, findings: Sequence[Finding]) -> list[tuple[str, Any, str]]:
    """Each with what it means, where it is a no. None: nobody knows."""
    return [
        _durable(findings) if (name, value) == (DURABLE, True) else (name, value, MEANINGS.get((name, value), ""))
        for name, value in msgspec.structs.asdict(capabilities).items()
        if name not in ("name", "parallel_batches")  # neither is a promise
    ]


def _durable(findings: Sequence[Finding]) -> tuple[str, bool | None, str]:
    """A store promises it of a database that is set up for it: whether this one is was looked at, or not."""
    looked_at = [one for one in findings if one.promise == DURABLE]
    if not looked_at:
        return DURABLE, None, "the settings that it hangs on were not checked"
    broken = ", ".join(one.what for one in looked_at if not one.is_ok)
    return DURABLE, not broken, f"not with {broken}" if broken else ""


def _document(findings: Sequence[Finding], capabilities: Capabilities) -> dict[str, Any]:
    return {
        "store": capabilities.name,
        "ok": not any(one.is_fatal for one in findings),
        "findings": [
            {"level": one.level, "what": one.what, "why": one.why, "mend": one.mend or None} for one in findings
        ],
        "capabilities": [
            {"name": name, "value": value, "means": means or None}
            for name, value, means in _capabilities(capabilities, findings)
        ],
    }


def _show(findings: Sequence[Finding], capabilities: Capabilities) -> None:
    for one in findings:
        output.write_text(one_line(f"{one.level:<8} {one.what}: {one.why}"))
        if one.mend:
            output.write_text(one_line(f"         mend: {one.mend}"))
    output.write_text(f"\nthe store {capabilities.name} promises")
    for name, value, means in _capabilities(capabilities, findings):
        said = {"True": "yes", "False": "no", "None": "unknown"}.get(str(value), str(value))
        output.write_text(one_line(f"{said:<8} {name}" + (f": {means}" if means else "")))
    errors, warnings, good = (sum(one.level == level for one in findings) for level in LEVELS)
    counted = f"{sentences.count(errors, 'error')}, {sentences.count(warnings, 'warning')}, {good} ok"
    output.write_text(f"\n{counted}")
