"""Where the command begins: as little as possible, so that a missing extra can still be named."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from satchel.cli.ending import leave_stuck_threads
from satchel.errors import ExtraMissing

EXTRA = ("cyclopts", "rich")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; what comes back is the exit code. ``arguments`` without the program's name; None: the process's own,
    which is ended here where an agent's code never would."""
    try:
        from satchel.cli.running import run
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] not in EXTRA:
            raise
        print(f"satchel: {ExtraMissing('cli', action='the command line')}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if arguments is not None:
        return run(arguments)
    code = run(sys.argv[1:])
    leave_stuck_threads(code)
    return code
