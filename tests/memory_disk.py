"""Where the tests keep their files: in memory, where there is room, because a commit waits for a disk longer than for all else.

Nothing here loses its power, so that no test can tell; what is about a disk (``tests/proof``) makes its own. Who sets TMPDIR
has the files there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 3 << 30  # bytes; a whole run keeps less than a third of it
PREFIX = "satchel-tests-"


def use_memory() -> Path | None:
    """Makes a folder in memory the place of temporary files, for the processes that are started from here too. None: there is
    no such place, or not enough of it, and all stays as it is."""
    if "TMPDIR" in os.environ or not _is_good():
        return None
    _remove_those_of_the_dead()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
    folder.chmod(0o1777)  # as /tmp: a database server that root starts runs under an account of its own
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # it is looked up again
    return folder


def _is_good() -> bool:
    if not os.access(MEMORY, os.W_OK):
        return False
    about = os.statvfs(MEMORY)
    return (
        about.f_bavail * about.f_frsize >= ENOUGH and not about.f_flag & os.ST_NOEXEC
    )  # the demo runs what it installed


def leave(folder: Path) -> None:
    del os.environ["TMPDIR"]
    tempfile.tempdir = None
    shutil.rmtree(folder, ignore_errors=True)


def _remove_those_of_the_dead() -> None:
    """What a run that was killed, or that failed, has left."""
    for folder in MEMORY.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(folder, ignore_errors=True)
