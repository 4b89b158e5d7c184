"""What a server's settings do to our promises."""

from __future__ import annotations

import asyncio
import time

import msgspec

from satchel.store import Finding
from satchel.stores.postgres.address import Address
from satchel.stores.postgres.connection import DRIVER_ERRORS, Fetch, connect, meaning_of
from satchel.stores.postgres.hosts import name_of_host, single_hosts
from satchel.stores.sql.checking import clock_finding

OLDEST = 130000  # the oldest server that is tested and still maintained
LISTENERS = 1  # connections of an open store beside its pool

_SETTINGS = """\
SELECT
    current_setting('server_version_num')::integer,
    current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on',
    current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names') <> '',
    (SELECT count(*) FROM pg_stat_replication),
    current_setting('max_connections')::integer,
    current_setting('superuser_reserved_connections')::integer
        + coalesce(current_setting('reserved_connections', true), '0')::integer,
    extract(epoch FROM clock_timestamp())::float8,
    pg_is_in_recovery(),
    current_setting('default_transaction_read_only') = 'on',
    current_setting('server_encoding'),
    to_regclass('schema_version') IS NOT NULL OR coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)"""
_ROLE = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'"

_RELOAD = "SELECT pg_reload_conf();"
_WRITABLE = f"ALTER SYSTEM SET default_transaction_read_only = off; {_RELOAD}"


async def check(fetch: Fetch, address: Address) -> list[Finding]:
    asked = time.time()
    row = (await fetch(_SETTINGS))[0]
    answered = time.time()
    (
        version,
        has_fsync,
        has_full_pages,
        commit,
        has_synchronous,
        standbys,
        most,
        reserved,
        server_time,
        is_standby,
        is_read_only,
        encoding,
        has_tables_or_may_make_them,
    ) = row
    return [
        *_refusals(is_standby=is_standby, is_read_only=is_read_only),
        _version(version),
        *_encoding(encoding),
        *_rights(is_enough=has_tables_or_may_make_them),
        _switch("fsync", is_on=has_fsync, why="a power cut may lose or damage everything that was acknowledged"),
        _switch("full_page_writes", is_on=has_full_pages, why="a power cut may leave half-written pages behind"),
        _commit(commit),
        *_standbys(commit, standbys=standbys, has_synchronous=has_synchronous),
        _connections(address.pool_size + LISTENERS, most, reserved=reserved),
        clock_finding(server_time - (asked + answered) / 2, uncertain=(answered - asked) / 2),
    ]


async def check_hosts(address: Address) -> list[Finding]:
    """Each host of an address that names several: who takes writes, who stands by, who does not answer."""
    dsns = single_hosts(address.dsn)
    if len(dsns) == 1:
        return []
    return list(await asyncio.gather(*(_check_host(dsn, address) for dsn in dsns)))


async def _check_host(dsn: str, address: Address) -> Finding:
    one = msgspec.structs.replace(address, dsn=dsn, target_session_attrs="any")
    what = f"host {name_of_host(dsn)}="
    try:
        line = await connect(one, is_shared=True)  # a pooler may stand between
        try:
            is_standby, is_read_only = (await line.fetch(_ROLE))[0]
        finally:
            line.terminate()
    except DRIVER_ERRORS as error:
        return Finding(
            what=f"{what}away",
            why=f"nobody can fail over to it: {meaning_of(error)}",
            mend="see that it runs, that this machine reaches it, and that the account may log in there",
        )
    if is_standby:
        return Finding(is_ok=True, what=f"{what}standby", why="it takes writes once it is promoted")
    if is_read_only:
        return Finding(what=f"{what}read-only", why="it is no standby, and refuses every write", mend=_WRITABLE)
    return Finding(is_ok=True, what=f"{what}primary", why="it takes writes")


def _refusals(*, is_standby: bool, is_read_only: bool) -> list[Finding]:
    if is_standby:
        return [
            Finding(
                is_fatal=True,
                what="pg_is_in_recovery=on",
                why="it is a standby: every write is refused",
                mend="name all hosts in the address, that the one which takes writes is used: postgresql://host1,host2/database",
            )
        ]
    if is_read_only:
        why = "every write is refused"
        return [Finding(is_fatal=True, what="default_transaction_read_only=on", why=why, mend=_WRITABLE)]
    return []


def _version(version: int) -> Finding:
    what = f"server_version_num={version}"
    if version < OLDEST:
        return Finding(
            is_fatal=True,
            what=what,
            why=f"the oldest server that is supported is {OLDEST}",
            mend="pg_upgrade to a version that is maintained",
        )
    return Finding(is_ok=True, what=what, why="a version that is supported")


def _switch(name: str, *, is_on: bool, why: str) -> Finding:
    if is_on:
        kept = "a power cut leaves what was acknowledged as it was"
        return Finding(is_ok=True, what=f"{name}=on", why=kept, promise="durable")
    mend = f"ALTER SYSTEM SET {name} = on; {_RELOAD}"
    return Finding(is_fatal=True, what=f"{name}=off", why=why, mend=mend, promise="durable")


def _rights(*, is_enough: bool) -> list[Finding]:
    if is_enough:
        return []
    return [
        Finding(
            what="privilege CREATE on the schema=no",
            why="this account cannot make the tables: a store is not opened before another has made them",
            mend="satchel migrate up  (with an account that may; or GRANT CREATE ON SCHEMA public TO this one;)",
        )
    ]


def _encoding(encoding: str) -> list[Finding]:
    if encoding == "UTF8":
        return []
    return [
        Finding(
            is_fatal=True,
            what=f"server_encoding={encoding}",
            why="it cannot keep texts of every language: no store is opened on it",
            mend="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0;  (and name it in the store's address)",
        )
    ]


def _commit(commit: str) -> Finding:
    what = f"synchronous_commit={commit}"
    if commit != "off":
        return Finding(is_ok=True, what=what, why="what is acknowledged is on the server's disk", promise="durable")
    return Finding(
        promise="durable",
        what=what,
        why="a power cut loses writes that were acknowledged just before",
        mend=f"ALTER SYSTEM SET synchronous_commit = on; {_RELOAD}",
    )


def _standbys(commit: str, *, standbys: int, has_synchronous: bool) -> list[Finding]:
    lost = "a failover loses writes that no standby had received yet"
    if standbys and not has_synchronous:
        mend = f"ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; {_RELOAD}"
        return [Finding(what="synchronous_standby_names=''", why=lost, mend=mend)]
    if has_synchronous and commit == "local":
        mend = f"ALTER SYSTEM SET synchronous_commit = on; {_RELOAD}"
        return [Finding(what="synchronous_commit=local", why=lost, mend=mend)]
    if has_synchronous:
        return [Finding(is_ok=True, what="synchronous_standby_names", why="a failover keeps what was acknowledged")]
    return []


def _connections(wanted: int, most: int, *, reserved: int) -> Finding:
    """``reserved``: of those the server keeps so many for administrators."""
    what = f"pool_size+{LISTENERS}={wanted}, max_connections={most} (of which {reserved} are reserved)"
    most -= reserved
    if wanted > most:
        return Finding(
            what=what,
            why="the server refuses connections before one process has its pool: calls hear StoreBusy",
            mend=f"ALTER SYSTEM SET max_connections = {2 * wanted + reserved};  (and start the server anew; or a smaller ?pool_size=)",
        )
    return Finding(is_ok=True, what=what, why=f"room for {most // wanted} processes with such a pool")
