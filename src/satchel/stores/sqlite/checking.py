"""What the file, its folder and its connection do to our promises."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
import sys
from pathlib import Path

from satchel.errors import StoreUnavailable
from satchel.store import Finding
from satchel.stores.sqlite.connection import JOURNAL_LIMIT, connect, translated
from satchel.stores.sqlite.schema import missing_parts

FULL = 2  # PRAGMA synchronous
MIB = 1024 * 1024
LEAST_FREE = 2 * JOURNAL_LIMIT  # bytes: the log may grow by this while a reader keeps it from being emptied
OTHERS = 0o077

# Of /proc/mounts. Locks, and the memory that the processes of one write-ahead log share, end at the machine.
NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs"}
    | {"lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs", "virtiofs"}
)
FORGETFUL = frozenset({"tmpfs", "ramfs"})


def check(connection: sqlite3.Connection, path: Path) -> list[Finding]:
    """``connection`` is the one that writes: its settings are those that count."""
    with translated():
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        (secure,) = connection.execute("PRAGMA secure_delete").fetchone()
        (erasures,) = connection.execute("SELECT count(*) FROM erasures").fetchone()
        missing = missing_parts(connection)
    return [
        _version(),
        _tables(missing),
        _journal(bytes(mode).decode(), path),
        _synchronous(synchronous),
        _secure_delete(secure),
        *_erasures(erasures, path),
        *_place(path),
    ]


def check_unopened(path: Path) -> list[Finding]:
    """What needs no tables. Nothing is changed, nor made."""
    if not path.exists():
        return [_version()]
    own: list[Finding] = []
    try:
        connection = connect(path)
        try:
            (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
            (secure,) = connection.execute("PRAGMA secure_delete").fetchone()
            own = [_synchronous(synchronous), _secure_delete(secure)]
        finally:
            connection.close()
    except sqlite3.Error as error:  # a damaged database: its place can be looked at all the same
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            return [_version()]  # somebody else's file
    return [_version(), *own, *_place(path)]


def _place(path: Path) -> list[Finding]:
    try:
        return [_room(path), _file_system(path, kind_of_mount(path.parent)), *_permissions(path)]
    except OSError as error:
        raise StoreUnavailable(f"the file cannot be looked at: {error.strerror}") from error


def _version() -> Finding:
    return Finding(is_ok=True, what=f"sqlite_version={sqlite3.sqlite_version}", why="the library that writes the file")


def _tables(missing: list[str]) -> Finding:
    if not missing:
        return Finding(is_ok=True, what="tables=complete", why="all that the schema's steps make is there")
    shown = ", ".join(missing[:5]) + (f", and {len(missing) - 5} more" if len(missing) > 5 else "")
    return Finding(
        is_fatal=True,
        what=f"tables=without {shown}",
        why="the file was changed by hand, or made before the first release: calls that need these fail",
        mend="satchel sessions export  (with the program that made it; then import into a new file)",
    )


def _journal(mode: str, path: Path) -> Finding:
    what = f"journal_mode={mode}"
    if mode == "wal":
        return Finding(is_ok=True, what=what, why="readers and the writer keep nobody waiting")
    return Finding(
        is_fatal=True,
        what=what,
        why="readers keep the writer out, and the writer readers: calls hear StoreBusy",
        mend=f"sqlite3 {shlex.quote(str(path))} 'PRAGMA journal_mode = WAL'",
    )


def _synchronous(found: int) -> Finding:
    what = f"synchronous={ {0: 'OFF', 1: 'NORMAL', 2: 'FULL', 3: 'EXTRA'}.get(found, found) }"
    if found >= FULL:
        return Finding(is_ok=True, what=what, why="what is acknowledged is on the disk", promise="durable")
    return Finding(
        promise="durable",
        is_fatal=True,
        what=what,
        why="a power cut loses writes that were acknowledged",
        mend="PRAGMA synchronous = FULL  (in the program that opens the file)",
    )


def _secure_delete(found: int) -> Finding:
    if found:
        return Finding(is_ok=True, what="secure_delete=ON", why="what is deleted is blanked in the file")
    return Finding(
        what="secure_delete=OFF",
        why="deleted text stays in the file until its traces are removed",
        mend="PRAGMA secure_delete = ON  (in the program that opens the file)",
    )


def _erasures(left: int, path: Path) -> list[Finding]:
    """A scrub takes as long as the file is large, so that a deletion in a large one leaves it to the sweeper."""
    if not left:
        return []
    return [
        Finding(
            what=f"erasures={left}",
            why="text of so many deleted sessions may still stand in unused room of the file",
            mend=f"satchel sweep --store sqlite:///{shlex.quote(str(path))}",
        )
    ]


def _room(path: Path) -> Finding:
    free, size = shutil.disk_usage(path.parent).free, path.stat().st_size
    what = f"free disk={free // MIB:,} MiB, file={size // MIB:,} MiB"
    mend = f"df -h {shlex.quote(str(path.parent))}  (then make room, or move the file to a larger disk)"
    if free < LEAST_FREE:
        return Finding(is_fatal=True, what=what, why="writes will soon be refused: the disk is full", mend=mend)
    if free < size + LEAST_FREE:
        return Finding(
            what=what, why="deleted text stays in the file: to remove its traces the file is written anew", mend=mend
        )
    return Finding(is_ok=True, what=what, why="room for the log, and for the file to be written anew after deletions")


def _file_system(path: Path, kind: str | None) -> Finding:
    what = f"file system={kind or 'unknown'}"
    if kind is None:
        return Finding(
            what=what,
            why="on a network file system two machines that write destroy the file; this one could not be asked",
            mend="keep the file on a disk of this machine, or use postgresql://",
        )
    if kind in NETWORK:
        return Finding(
            is_fatal=True,
            what=what,
            why="locks end at the machine: two that write destroy the file",
            mend="keep the file on a disk of this machine, or use postgresql://",
        )
    if kind in FORGETFUL:
        return Finding(
            promise="durable",
            what=what,
            why="it is memory: the next start of this machine loses everything",
            mend=f"satchel copy --from sqlite:///{path} --to sqlite:////a/folder/on/a/disk/{path.name}",
        )
    return Finding(is_ok=True, what=what, why="a disk of this machine")


def kind_of_mount(folder: Path, mounts: str | None = None) -> str | None:
    """The type of the file system that holds ``folder``; None where nobody says. ``mounts``: the text of /proc/mounts."""
    if mounts is None:
        if not sys.platform.startswith("linux"):
            return None
        try:
            mounts = Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
        except OSError:
            return None
    found, longest = None, -1
    for line in mounts.splitlines():
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = Path(_unescaped(parts[1]))
        if folder.resolve().is_relative_to(point) and len(point.parts) >= longest:  # a later one covers an earlier
            found, longest = parts[2], len(point.parts)
    return found


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def _permissions(path: Path) -> list[Finding]:
    if sys.platform == "win32":
        return []
    open_to_others = [
        each
        for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm")))
        if each.exists() and each.stat().st_mode & OTHERS
    ]
    found: list[Finding] = []
    if open_to_others:
        names = " ".join(shlex.quote(str(each)) for each in open_to_others)
        mode = f"{open_to_others[0].stat().st_mode & 0o777:o}"
        found.append(
            Finding(
                what=f"permissions={mode}",
                why="other accounts of this machine may read every session",
                mend=f"chmod 600 {names}",
            )
        )
    else:
        found.append(
            Finding(is_ok=True, what=f"permissions={path.stat().st_mode & 0o777:o}", why="for its owner's eyes only")
        )
    folder = path.parent
    rights = folder.stat().st_mode
    if rights & 0o002 and not rights & 0o1000:
        found.append(
            Finding(
                what=f"folder's permissions={rights & 0o777:o}",
                why="any account of this machine may put another file in its place",
                mend=f"chmod o-w {shlex.quote(str(folder))}",
            )
        )
    return found
