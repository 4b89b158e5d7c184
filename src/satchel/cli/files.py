"""Files of JSON lines: gzipped if the name ends in ``.gz``, ``-`` for stdin and stdout, never held as a whole."""

from __future__ import annotations

import gzip
import os
import signal
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Literal, NoReturn, cast

from satchel.cli.failures import FileUnusable

STDIO = "-"
MIB = 1024 * 1024
LONGEST_LINE = 512 * MIB  # what is longer is no file of conversations


def shown_name(name: str) -> str:
    return "stdin" if name == STDIO else name


def check_readable(names: Sequence[str]) -> int | None:
    """The bytes of all files together, None if nobody knows (a pipe). Raises FileUnusable: better now than after an hour."""
    total = 0
    known = True
    for name in names:
        if name == STDIO:
            known = False
            continue
        try:
            status = Path(name).stat()
            if stat.S_ISDIR(status.st_mode):
                raise FileUnusable(name, "is a folder")
            if stat.S_ISREG(status.st_mode):
                with Path(name).open("rb"):
                    pass
        except (OSError, ValueError) as error:
            raise FileUnusable(name, _reason(error)) from error
        known = known and stat.S_ISREG(status.st_mode)
        total += status.st_size
    return total if known else None


class Lines:
    """The lines of one file. ``number`` counts those that were given out, ``position`` the bytes read of the file itself."""

    def __init__(self, name: str, raw: IO[bytes]) -> None:
        self._name = name
        self._raw = raw
        self._text: IO[bytes] = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if name.endswith(".gz") else raw
        self._read = 0
        self._can_tell = raw.seekable()
        self.number = 0

    @property
    def position(self) -> int:
        return self._raw.tell() if self._can_tell else self._read

    def __iter__(self) -> Iterator[bytes]:
        while line := self._next():
            self._read += len(line)
            self.number += 1
            yield line

    def _next(self) -> bytes:
        where = f"{shown_name(self._name)}, line {self.number + 1}"
        try:
            if self._name == STDIO:
                with _interrupted_at_once():
                    line = self._text.readline(LONGEST_LINE + 1)
            else:
                line = self._text.readline(LONGEST_LINE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise FileUnusable(where, f"cannot be read ({_reason(error)})") from error
        if len(line) > LONGEST_LINE:
            raise FileUnusable(where, f"is longer than {LONGEST_LINE // MIB} MiB")
        return line


@contextmanager
def reading(name: str) -> Iterator[Lines]:
    """Raises FileUnusable, also while the lines are read."""
    if name == STDIO:
        yield Lines(name, sys.stdin.buffer)
        return
    with _opened(Path(name), "rb", name) as raw:
        yield Lines(name, raw)


@contextmanager
def writing(name: str) -> Iterator[IO[bytes]]:
    """A file that is there whole or, if the block raises, not at all: what stood there before stays until the end.

    For its owner's eyes only, as a store is, unless what stood there had other rights. What is no regular file (a pipe,
    /dev/null) is written as it goes.
    """
    target = Path(name).resolve()
    is_regular = not target.exists() or target.is_file()
    draft = target.with_name(f".{target.name}.{os.getpid()}.part") if is_regular else target
    try:
        with _opened(draft, "xb" if is_regular else "wb", name) as raw:
            if name.endswith(".gz"):
                # No time and no name inside: the same sessions make the same file.
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0, compresslevel=6) as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield raw
        if is_regular:
            if target.exists():
                draft.chmod(stat.S_IMODE(target.stat().st_mode))
            draft.replace(target)
    except OSError as error:
        if error.filename is None and not isinstance(error, BrokenPipeError):
            raise FileUnusable(name, _reason(error)) from error
        raise
    finally:
        if is_regular:
            draft.unlink(missing_ok=True)


def _opened(path: Path, mode: Literal["rb", "wb", "xb"], name: str) -> IO[bytes]:
    try:
        return open(path, mode, opener=_for_the_owner)  # Path.open takes no opener
    except (OSError, ValueError) as error:
        raise FileUnusable(name, _reason(error)) from error


def _for_the_owner(path: str, how: int) -> int:
    return os.open(path, how, 0o600)


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return reason[:1].lower() + reason[1:]


@contextmanager
def _interrupted_at_once() -> Iterator[None]:
    """While asyncio runs, a first Ctrl-C only cancels a task; a read that waits for somebody to type would never hear it."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
