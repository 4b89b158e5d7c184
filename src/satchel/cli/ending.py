"""How the process of a command ends."""

from __future__ import annotations

import contextlib
import os
import sys


def leave_stuck_threads(code: int) -> None:
    """An agent's code that never returns would keep Python from ending, and its run is somebody else's by now."""
    if "satchel.worker" not in sys.modules:  # loading it takes longer than most commands
        return
    from satchel.worker import is_code_left

    if is_code_left():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
