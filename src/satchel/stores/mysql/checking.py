"""What a server's settings do to our promises."""

from __future__ import annotations

import re

from satchel.store import Finding
from satchel.stores.mysql.connection import Fetch

OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}  # the oldest that are still maintained
LARGEST_ROW = (
    16 << 20
)  # bytes that one row may take in a statement: a message of 4 MiB, each byte of it escaped, and more

_NAMES = (
    "version",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_flush_method",
    "log_bin",
    "sync_binlog",
    "binlog_format",
    "max_allowed_packet",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_enabled",
    "wsrep_on",
)
_ASKED = (
    f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({', '.join(repr(name) for name in _NAMES)})".encode(),
    b"SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected', 'Rpl_semi_sync_master_clients')",
)


async def check(fetch: Fetch) -> list[Finding]:
    variables, status = ({row[0].decode().lower(): row[1].decode() for row in found} for found in await fetch(*_ASKED))
    found = findings(variables)
    is_waited_for = "ON" in (
        variables.get("rpl_semi_sync_master_enabled"),
        variables.get("rpl_semi_sync_source_enabled"),
        variables.get("wsrep_on"),
    )
    if status.get("slaves_connected", "0") != "0" and not is_waited_for:
        found.append(
            _warning("rpl_semi_sync_master_enabled=OFF", "a failover loses writes that no replica had received yet")
        )
    return found


def findings(variables: dict[str, str]) -> list[Finding]:
    """What the server by itself does with what it acknowledged."""
    found: list[Finding] = []
    version = variables.get("version", "")
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        found.append(_fatal(f"version={version}", f"the oldest {kind} that is supported is {oldest}"))
    flush = variables.get("innodb_flush_log_at_trx_commit", "1")
    if flush not in ("1", "3"):
        found.append(
            _fatal(
                f"innodb_flush_log_at_trx_commit={flush}", "a power cut loses writes that were acknowledged just before"
            )
        )
    if variables.get("innodb_doublewrite", "ON") in ("OFF", "0"):
        found.append(_fatal("innodb_doublewrite=OFF", "a power cut may leave half-written pages behind"))
    method = variables.get("innodb_flush_method", "").lower()
    if "nosync" in method or method == "littlesync":
        found.append(_fatal(f"innodb_flush_method={method}", "a power cut may lose or damage what was acknowledged"))
    if variables.get("log_bin") == "ON":
        if variables.get("sync_binlog") != "1":
            found.append(
                _fatal(
                    f"sync_binlog={variables.get('sync_binlog')}",
                    "after a power cut the server takes back what its binary log does not hold",
                )
            )
        if variables.get("binlog_format") == "STATEMENT":
            found.append(_fatal("binlog_format=STATEMENT", "it refuses every write at READ COMMITTED"))
    packet = int(variables.get("max_allowed_packet", LARGEST_ROW))
    if packet < LARGEST_ROW:
        found.append(_warning(f"max_allowed_packet={packet}", "the largest messages are refused"))
    return found


def _fatal(what: str, why: str) -> Finding:
    return Finding(is_fatal=True, what=what, why=why)


def _warning(what: str, why: str) -> Finding:
    return Finding(is_fatal=False, what=what, why=why)
