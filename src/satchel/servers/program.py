"""What all private servers need: a folder, a port, an account that is not root, and an end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

START_PATIENCE = 30.0  # seconds
STOP_PATIENCE = 20.0


class ServerMissing(Exception):
    """The server's programs are not on this machine; the sentence says what to install."""


def free_port() -> int:
    """Of the loopback interface. Somebody may take it before the server does; then the server says so."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def account(*names: str) -> pwd.struct_passwd | None:
    """Root must not run a database: the first of ``names`` that exists, in root's place; None for who is not root."""
    if os.geteuid() != 0:
        return None
    for name in (*names, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerMissing(f"root may not run a database, and there is no account {' or '.join(names)} or nobody")


def new_folder(prefix: str, owner: pwd.struct_passwd | None) -> Path:
    """For its owner's eyes only."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    return folder


def start(
    command: Sequence[str | os.PathLike[str]], *, folder: Path, owner: pwd.struct_passwd | None, log: Path
) -> subprocess.Popen[bytes]:
    """In a process group of its own: a Ctrl-C at the keyboard is ours to pass on."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=None if owner is None else owner.pw_uid,
            group=None if owner is None else owner.pw_gid,
            extra_groups=None if owner is None else [],
        )


def children(pid: int) -> list[int]:
    """Of a process of this machine; none where the system does not tell."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """The server and its children at once, as when the machine loses its power: nobody gets to say goodbye."""
    process.send_signal(signal.SIGSTOP)  # it starts no child any more
    for pid in children(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


# Ends the server if whoever started it dies: then the pipe that it reads is closed.
_WATCH = (
    'cat > /dev/null; kill "-$3" "$1" 2> /dev/null; while kill -0 "$1" 2> /dev/null; do sleep 0.1; done; rm -rf "$2"'
)


def watch_over(process: subprocess.Popen[bytes], folder: Path, *, signal_name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "watch", str(process.pid), str(folder), signal_name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_watch(watcher: subprocess.Popen[bytes]) -> None:
    watcher.kill()
    watcher.wait()
    if watcher.stdin is not None:
        watcher.stdin.close()


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
