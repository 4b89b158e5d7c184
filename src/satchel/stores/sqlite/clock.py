"""The machine's clocks. There is no server: wall time is each process's own, and leases count on the time since boot."""

from __future__ import annotations

import time
from pathlib import Path

from satchel.domain.state import Clock


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip() or None
    except OSError:
        return None


_BOOT_ID = _boot_id() if hasattr(time, "CLOCK_BOOTTIME") else None


def machine_clock() -> Clock:
    """Where a boot has no name, leases count on wall time: the only clock that all processes of the machine share."""
    now = time.time_ns() // 1000
    if _BOOT_ID is None:
        return Clock(now, now, "wall")
    return Clock(now, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000, _BOOT_ID)
