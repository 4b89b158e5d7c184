"""`satchel` whose allocator gives back every second what is free. What such a process has is what it holds: how much an allocator
keeps for later comes and goes by itself, by more than a leak of many minutes.

python -m tests.proof.trimmed serve …
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

from satchel import cli

INTERVAL = 1.0  # seconds


def give_back() -> None:
    """Every second, on a thread of its own, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        threading.Thread(target=_trim_for_ever, args=(trim,), name="satchel-proof-trim", daemon=True).start()


def _trim_for_ever(trim: Callable[[int], int]) -> None:
    while True:
        trim(0)
        time.sleep(INTERVAL)


if __name__ == "__main__":
    give_back()
    sys.exit(cli.main())
