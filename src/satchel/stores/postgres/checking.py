"""What a server's settings do to our promises."""

from __future__ import annotations

from satchel.store import Finding
from satchel.stores.postgres.connection import Fetch

OLDEST = 130000  # the oldest server that is tested and still maintained

_SETTINGS = """\
SELECT
    current_setting('server_version_num')::integer,
    current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on',
    current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names') <> '',
    (SELECT count(*) FROM pg_stat_replication)"""


async def check(fetch: Fetch) -> list[Finding]:
    ((version, has_fsync, has_full_pages, commit, has_synchronous, standbys),) = await fetch(_SETTINGS)
    found: list[Finding] = []
    if version < OLDEST:
        found.append(_fatal(f"server_version_num={version}", f"the oldest server that is supported is {OLDEST}"))
    if not has_fsync:
        found.append(_fatal("fsync=off", "a power cut may lose or damage everything that was acknowledged"))
    if not has_full_pages:
        found.append(_fatal("full_page_writes=off", "a power cut may leave half-written pages behind"))
    if commit == "off":
        found.append(_warning("synchronous_commit=off", "a power cut loses writes that were acknowledged just before"))
    if standbys and not has_synchronous:
        found.append(
            _warning("synchronous_standby_names=''", "a failover loses writes that no standby had received yet")
        )
    elif has_synchronous and commit == "local":
        found.append(_warning("synchronous_commit=local", "a failover loses writes that no standby had received yet"))
    return found


def _fatal(what: str, why: str) -> Finding:
    return Finding(is_fatal=True, what=what, why=why)


def _warning(what: str, why: str) -> Finding:
    return Finding(is_fatal=False, what=what, why=why)
