"""Names for requests."""

from __future__ import annotations

import itertools
import os

_PROCESS = os.urandom(6).hex()
_NUMBERS = itertools.count(1)


def new_request_id() -> str:
    """Unique without a system call for each: twelve random letters of the process, and a number."""
    return f"req_{_PROCESS}{next(_NUMBERS):06x}"
