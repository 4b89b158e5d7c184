"""Runs one shell command and leaves no process of it behind. Started as a script: `supervisor.py PARENT COMMAND`.

It stands between `run_shell` and the shell because the parent may be killed at any moment and then cannot clean up.
The end comes when the shell ends, when standard input closes (the parent closed it, or is dead), or when the kernel
reports the parent's death (Linux). Then the command's process group is killed and, on Linux, every descendant that
had left the group: as their subreaper this process inherits them, however they were started.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections import defaultdict
from contextlib import suppress

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 125
CLEANUP_SECONDS = 2.0


def main(parent: int, command: str) -> int:
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the kernel knew that we want to hear of it
        return NOT_STARTED
    shell = _start(command)
    _wait(shell, wake)
    return _end(shell)


def _start(command: str) -> int:
    supervisor = os.getpid()
    shell = os.fork()
    if shell:
        with suppress(OSError):  # both sides set it: whoever comes first
            os.setpgid(shell, shell)
        return shell
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(NOT_STARTED)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; a shell expects them
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv("/bin/sh", ["/bin/sh", "-c", command])
    except OSError as error:
        os.write(2, f"the shell did not start: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _wait(shell: int, wake: int) -> None:
    """Returns when the shell has ended (not yet reaped, so that its group keeps its number) or must end."""
    while os.waitid(os.P_PID, shell, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready and any(number != signal.SIGCHLD for number in os.read(wake, 512)):
            return
        if 0 in ready and not os.read(0, 512):
            return
        _reap_others(shell)


def _reap_others(shell: int) -> None:
    """Orphans that came to us while the shell still runs."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None or ended.si_pid == shell:
            return
        os.waitpid(ended.si_pid, 0)


def _end(shell: int) -> int:
    """Kills everybody, reaps everybody, and answers the shell's exit code (128 + number if a signal ended it)."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(shell, signal.SIGKILL)
    code = -signal.SIGKILL
    give_up = time.monotonic() + CLEANUP_SECONDS
    while time.monotonic() < give_up:
        for process in _descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == shell:
                    code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            break
        time.sleep(0.002)
    return code if code >= 0 else 128 - code


def _descendants() -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    try:
        with os.scandir("/proc") as entries:
            processes = [int(entry.name) for entry in entries if entry.name.isdigit()]
    except FileNotFoundError:  # no /proc: the group is all that we know
        return []
    for process in processes:
        with suppress(OSError):
            children[_parent(process)].append(process)
    found: list[int] = []
    unseen = [os.getpid()]
    while unseen:
        below = children[unseen.pop()]
        found += below
        unseen += below
    return found


def _parent(process: int) -> int:
    file = os.open(f"/proc/{process}/stat", os.O_RDONLY)
    try:
        # "pid (name) state ppid …", where the name may hold spaces and brackets
        return int(os.read(file, 4096).rpartition(b")")[2].split()[1])
    finally:
        os.close(file)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
