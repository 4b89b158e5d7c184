"""What a server's settings do to our promises."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from satchel.store import Finding
from satchel.stores.mysql.address import Address
from satchel.stores.mysql.connection import Fetch
from satchel.stores.mysql.queries import SQL
from satchel.stores.sql.checking import clock_finding

OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}  # the oldest that are still maintained
LARGEST_ROW = (
    16 << 20
)  # bytes of a packet: a message of 4 MiB of which each byte is escaped twice over, and what stands beside it

_NAMES = (
    "version",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_flush_method",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "max_allowed_packet",
    "max_connections",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_enabled",
    "wsrep_on",
)
_ASKED = (
    f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({', '.join(repr(name) for name in _NAMES)})".encode(),
    b"SHOW GLOBAL STATUS WHERE Variable_name = 'Slaves_connected'",
    SQL["clock"](),
)


async def check(fetch: Fetch, address: Address) -> list[Finding]:
    asked = time.time()
    *told, ((server_time,),) = await fetch(*_ASKED)
    answered = time.time()
    variables, status = ({row[0].decode().lower(): row[1].decode() for row in found} for found in told)
    return [
        *findings(variables, replicas=int(status.get("slaves_connected", 0))),
        _connections(address.pool_size, int(variables.get("max_connections", 0))),
        clock_finding(server_time / 1e6 - (asked + answered) / 2, uncertain=(answered - asked) / 2),
    ]


def findings(variables: Mapping[str, str], *, replicas: int = 0) -> list[Finding]:
    """What the server does with what it acknowledged."""
    return [
        _version(variables.get("version", "")),
        _flush(variables.get("innodb_flush_log_at_trx_commit", "1")),
        _doublewrite(variables.get("innodb_doublewrite", "ON")),
        *_method(variables.get("innodb_flush_method", "")),
        *(_binary_log(variables) if variables.get("log_bin") == "ON" else ()),
        *_replicas(variables, replicas),
        _packet(int(variables.get("max_allowed_packet", LARGEST_ROW))),
    ]


def _version(version: str) -> Finding:
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    what = f"version={version}"
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        return Finding(
            is_fatal=True,
            what=what,
            why=f"the oldest {kind} that is supported is {oldest}",
            mend="upgrade to a version that is maintained",
        )
    return Finding(is_ok=True, what=what, why="a version that is supported")


def _flush(flush: str) -> Finding:
    what = f"innodb_flush_log_at_trx_commit={flush}"
    if flush in ("1", "3"):  # MariaDB's 3 syncs once more
        return Finding(is_ok=True, what=what, why="what is acknowledged is on the server's disk", promise="durable")
    return Finding(
        promise="durable",
        is_fatal=True,
        what=what,
        why="a power cut loses writes that were acknowledged just before",
        mend="SET GLOBAL innodb_flush_log_at_trx_commit = 1;  (and in the server's my.cnf)",
    )


def _doublewrite(doublewrite: str) -> Finding:
    if doublewrite in ("OFF", "0"):
        return Finding(
            promise="durable",
            is_fatal=True,
            what="innodb_doublewrite=OFF",
            why="a power cut may leave half-written pages behind",
            mend="innodb_doublewrite = ON  (in the server's my.cnf, and start it anew)",
        )
    kept = "a power cut leaves no half-written pages"
    return Finding(is_ok=True, what=f"innodb_doublewrite={doublewrite}", why=kept, promise="durable")


def _method(method: str) -> list[Finding]:
    if method.lower() not in ("nosync", "littlesync"):
        return []
    return [
        Finding(
            promise="durable",
            is_fatal=True,
            what=f"innodb_flush_method={method}",
            why="a power cut may lose or damage what was acknowledged",
            mend="innodb_flush_method = O_DIRECT  (in the server's my.cnf, and start it anew)",
        )
    ]


def _binary_log(variables: Mapping[str, str]) -> list[Finding]:
    found: list[Finding] = []
    sync = variables.get("sync_binlog", "1")
    if sync == "1":
        kept = "the binary log holds what was acknowledged"
        found.append(Finding(is_ok=True, what="sync_binlog=1", why=kept, promise="durable"))
    else:
        found.append(
            Finding(
                promise="durable",
                is_fatal=True,
                what=f"sync_binlog={sync}",
                why="after a power cut the server takes back what its binary log does not hold",
                mend="SET GLOBAL sync_binlog = 1;  (and in the server's my.cnf)",
            )
        )
    if variables.get("binlog_format") == "STATEMENT":
        found.append(
            Finding(
                is_fatal=True,
                what="binlog_format=STATEMENT",
                why="the server refuses every write at READ COMMITTED",
                mend="SET GLOBAL binlog_format = 'ROW';  (and in the server's my.cnf)",
            )
        )
    return found


def _replicas(variables: Mapping[str, str], replicas: int) -> list[Finding]:
    if variables.get("wsrep_on") == "ON":
        return [Finding(is_ok=True, what="wsrep_on=ON", why="what is acknowledged was received by every node")]
    for name in ("rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"):
        if variables.get(name) == "ON":
            return [Finding(is_ok=True, what=f"{name}=ON", why="a failover keeps what was acknowledged")]
    if not replicas:
        return []
    return [
        Finding(
            what="rpl_semi_sync_master_enabled=OFF",
            why="a failover loses writes that no replica had received yet",
            mend="SET GLOBAL rpl_semi_sync_master_enabled = ON;  (and rpl_semi_sync_slave_enabled on the replicas)",
        )
    ]


def _packet(packet: int) -> Finding:
    what = f"max_allowed_packet={packet}"
    if packet < LARGEST_ROW:
        return Finding(
            what=what,
            why="the largest messages are refused",
            mend=f"SET GLOBAL max_allowed_packet = {LARGEST_ROW};  (and in the server's my.cnf)",
        )
    return Finding(is_ok=True, what=what, why="room for the largest messages")


def _connections(wanted: int, most: int) -> Finding:
    what = f"pool_size={wanted}, max_connections={most}"
    if wanted > most:
        return Finding(
            what=what,
            why="the server refuses connections before one process has its pool: calls hear StoreBusy",
            mend=f"SET GLOBAL max_connections = {2 * wanted};  (or a smaller ?pool_size=)",
        )
    return Finding(is_ok=True, what=what, why=f"room for {most // wanted} processes with such a pool")
