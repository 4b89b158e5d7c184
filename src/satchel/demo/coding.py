"""The tools of the demo's coding agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from satchel.demo.folder import ConfinedFolder
from satchel.demo.shell import ShellCommand
from satchel.demo.tools import ToolResult


class CodingTools:
    """Real tools over one scratch folder, for Linux and other POSIX systems.

    Each answers a plain JSON-able dict or raises ToolFailed. The file tools reach nothing outside the folder:
    absolute paths, `..` and symbolic links are refused. `run_shell` is bounded, but it is not confined: see there.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise NotADirectoryError(f"{str(folder)!r} is not a folder")
        self._files = ConfinedFolder(self.folder)
        self._running: set[asyncio.Task[ToolResult]] = set()

    async def list_files(self) -> ToolResult:
        """`{"files": [path, ...], "truncated": bool}`; see ConfinedFolder.list_files."""
        return await asyncio.to_thread(self._files.list_files)

    async def read_file(self, path: str) -> ToolResult:
        """`{"path", "content", "bytes", "truncated"}`; UTF-8 text, its first 256 KiB."""
        return await asyncio.to_thread(self._files.read, path)

    async def write_file(self, path: str, content: str) -> ToolResult:
        """`{"path", "bytes", "created"}`; whole or not at all, at most 1 MiB. Missing folders are made."""
        return await asyncio.to_thread(self._files.write, path, content)

    async def run_shell(self, command: str, timeout: float = 20.0) -> ToolResult:
        """Runs `/bin/sh -c command` in the folder, with the project's own interpreter first on PATH.

        Answers `{"exit_code", "timed_out", "stdout", "stderr", "truncated", "duration_ms"}`. A command that fails is
        a result like any other: `exit_code` is 128 + n after signal n, and null when the time was up (`timed_out`;
        what it had written is kept). Of each stream the first and last 32 KiB are kept, around a mark that counts
        what is left out. Standard input is empty. ToolFailed is for a command that could not be run at all.

        **This is not a security sandbox.** The command has the rights of this user: it can read and change other
        files and use the network. The environment is clean (no keys, no proxies), which keeps secrets from leaking
        by accident, not from a command that looks for them on disk.

        Nothing of the command outlives the call. At its end, at the timeout, when the call is cancelled, and when
        this process dies, SIGKILL included, its process group is killed, and on Linux also each descendant that left
        the group (`setsid`, `nohup`, double fork). A command that kills or stops the supervisor (its parent)
        ends too, with its session. Not covered: work handed to another service (cron, systemd, docker); processes of
        another user (setuid); the supervisor killed hard together with this process (only the shell is then sure to
        die) or after a descendant left its session; outside Linux, descendants that left the group. On Linux the end
        of the thread that runs the event loop counts as this process's death.
        """
        running = ShellCommand(command, self.folder, timeout=timeout)
        # A task of its own: a cancellation at any await, the start included, still ends the command in good order.
        task = asyncio.create_task(running.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            running.end()
            await asyncio.wait([task])
            raise
