"""Files inside one folder, and no others."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from satchel.demo.tools import ToolFailed, ToolResult, require_text

READ_LIMIT = 256 * 1024
WRITE_LIMIT = 1024 * 1024
LIST_LIMIT = 1000
PATH_LIMIT = 4096
UNLISTED_FOLDERS = frozenset({".venv", ".home", ".git", "__pycache__"})
UNFINISHED = ".unfinished-"

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ConfinedFolder:
    """Reads and writes below `path`, by paths relative to it.

    Each part of a path is opened from the folder before it, without following symbolic links, so a link that
    appears between a check and its use leads nowhere either. A link is refused even if it points inside.
    Hard links to foreign files can be read (they look like any other file) but never written through: a write
    makes a new file and moves it into place.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def list_files(self) -> ToolResult:
        """`{"files": [path, ...], "truncated": bool}`: regular files in order of path, at most 1000.

        Links and other special files are left out, and so is what no reader of the project asked for: `.venv`,
        `.home`, `.git`, `__pycache__`.
        """
        found: list[str] = []
        for folder, names, files, descriptor in os.fwalk(self.path, follow_symlinks=False):
            names[:] = sorted(name for name in names if name not in UNLISTED_FOLDERS)
            below = Path(folder).relative_to(self.path)
            for name in files:
                with suppress(FileNotFoundError):
                    mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
                    if stat.S_ISREG(mode) and not name.startswith(UNFINISHED):
                        found.append(_printable((below / name).as_posix()))
        found.sort()
        return {"files": found[:LIST_LIMIT], "truncated": len(found) > LIST_LIMIT}

    def read(self, path: str) -> ToolResult:
        """`{"path", "content", "bytes", "truncated"}`: UTF-8 text as it is in the file, its first 256 KiB.

        `bytes` is the size of the whole file. A file that is absent, no regular file, or not UTF-8 fails.
        """
        parts = _parts(path)
        with self._parent(path, parts, create=False) as parent, _told(path, parent, parts[-1]):
            # O_NONBLOCK: a named pipe must be refused, not waited for.
            descriptor = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise ToolFailed(f"{path!r} {_refusal(status.st_mode)}")
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(READ_LIMIT + 1)
        truncated = len(content) > READ_LIMIT
        try:
            text = _whole_characters(content[:READ_LIMIT]).decode() if truncated else content.decode()
        except UnicodeDecodeError as error:
            raise ToolFailed(f"{path!r} is not UTF-8 text (byte {error.start})") from error
        return {
            "path": "/".join(parts),
            "content": text,
            "bytes": max(status.st_size, len(content)),
            "truncated": truncated,
        }

    def write(self, path: str, content: str) -> ToolResult:
        """`{"path", "bytes", "created"}`. Replaces the whole file at once, or nothing of it; makes missing folders."""
        encoded = require_text("content", content, WRITE_LIMIT)
        parts = _parts(path)
        with self._parent(path, parts, create=True) as parent, _told(path, parent, parts[-1]):
            mode = _mode_of(parts[-1], parent)
            if mode is not None and not stat.S_ISREG(mode):
                raise ToolFailed(f"{path!r} {_refusal(mode)}")
            unfinished = UNFINISHED + secrets.token_hex(8)
            descriptor = os.open(
                unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=parent
            )
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(encoded)
                    if mode is not None:
                        os.fchmod(file.fileno(), stat.S_IMODE(mode) & 0o777)
                os.replace(unfinished, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(unfinished, dir_fd=parent)
                raise
        return {"path": "/".join(parts), "bytes": len(encoded), "created": mode is None}

    @contextmanager
    def _parent(self, path: str, parts: list[str], *, create: bool) -> Iterator[int]:
        """A descriptor of the folder that holds the last part."""
        try:
            current = os.open(self.path, _DIRECTORY)
        except OSError as error:
            raise ToolFailed(f"the scratch folder cannot be opened: {error.strerror}") from error
        try:
            for part in parts[:-1]:
                with _told(path, current, part):
                    if create:
                        with suppress(FileExistsError):
                            os.mkdir(part, dir_fd=current)
                    below = os.open(part, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)


def _parts(path: str) -> list[str]:
    require_text("path", path, PATH_LIMIT)
    if "\0" in path:
        raise ToolFailed(f"path {path!r} holds a NUL character")
    if path.startswith("/"):
        raise ToolFailed(f"path {path!r} is absolute; give it relative to the scratch folder")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolFailed(f"path {path!r} leads upwards ('..'), which is not allowed")
    if not parts:
        raise ToolFailed(f"path {path!r} names no file")
    return parts


@contextmanager
def _told(path: str, parent: int, part: str) -> Iterator[None]:
    """Turns an OSError on `part` into a ToolFailed that names the path as it was given, never where the folder is."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            mode = _mode_of(part, parent)
            if mode is not None and not stat.S_ISREG(mode):
                reason = _refusal(mode)
        raise ToolFailed(f"{path!r}: {reason}") from error


def _mode_of(name: str, parent: int) -> int | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _refusal(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "is a symbolic link, and the file tools follow none"
    return "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"


def _whole_characters(content: bytes) -> bytes:
    """Without the bytes of a last UTF-8 character that was cut."""
    for length in range(1, min(4, len(content)) + 1):
        lead = content[-length]
        if lead < 0x80:
            return content
        if lead >= 0xC0:
            needed = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return content if length >= needed else content[:-length]
    return content


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "replace")
