"""The files and sockets that this process holds open, for tests of what leaves none behind."""

from __future__ import annotations

from pathlib import Path

import pytest

_KERNELS = Path("/proc/self/fd")


def open_files() -> set[str]:
    """Their numbers, as the kernel has them. Where it does not say, the test is skipped."""
    if not _KERNELS.exists():
        pytest.skip("counts what the kernel holds open for this process, and this one does not say")
    return {entry.name for entry in _KERNELS.iterdir()}
