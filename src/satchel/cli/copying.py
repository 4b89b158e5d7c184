"""``satchel copy``."""

from __future__ import annotations

from satchel.cli import flags
from satchel.cli.failures import FlagRefused, StoreNotShared
from satchel.cli.store import check_there, run_async


def copy_store(
    *,
    source: flags.CopyFrom,
    target: flags.CopyTo,
    tenant: flags.CopiedTenant = None,
    settings: flags.WithSettings = False,
    json: flags.Json = False,
) -> None:
    """Copy every tenant's sessions from one store to another, whole and under their own ids: the log with messages byte for
    byte, runs, tool calls, memory, metadata, and the tombstones, so that an erased id is not used again. At the end both
    stores are read and compared.

    May be broken off at any time: the same command goes on where it stopped, leaves what is there already, and takes along
    what was said since. What stands at the destination as something else is left and named (exit code 4).

    Stop servers and workers first; or copy while they work, stop them, and copy again. What is open arrives as failed; a
    later copy brings it up to date, if nobody wrote there since. Idempotency records and leases do not travel.
    """
    _check(source, target, tenant, settings=settings)
    from satchel.cli.moving import copy_all, tell  # who does not move need not load what moves

    tell(run_async(copy_all(source, target, tenant, settings=settings)), json=json)


def _check(source: str, target: str, tenant: str | None, *, settings: bool) -> None:
    if source.startswith("memory:") or target.startswith("memory:"):
        raise StoreNotShared
    if source == target:
        raise FlagRefused("--from and --to are the same store")
    if tenant == "":
        raise FlagRefused("--tenant is empty, and an empty text is not an identity")
    if tenant is not None and settings:
        raise FlagRefused("--settings are of the whole store, and do not go together with --tenant")
    check_there(source)
