"""Files of JSON lines: gzipped if the name ends in ``.gz``, ``-`` for stdin and stdout, never held as a whole."""

from __future__ import annotations

import gzip
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, cast

from satchel.cli.failures import FileUnusable
from satchel.cli.stdin import InterruptibleStdin

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

    def __init__(self, name: str, readline: Callable[[int], bytes], *, tell: Callable[[], int] | None = None) -> None:
        self._name = name
        self._readline = readline
        self._tell = tell
        self._read = 0
        self.number = 0

    @property
    def position(self) -> int:
        return self._read if self._tell is None else self._tell()

    def __iter__(self) -> Iterator[bytes]:
        while line := self._next():
            self._read += len(line)
            self.number += 1
            yield line

    def _next(self) -> bytes:
        where = f"{shown_name(self._name)}, line {self.number + 1}"
        try:
            line = self._readline(LONGEST_LINE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise FileUnusable(where, f"cannot be read ({_reason(error)})") from error
        if len(line) > LONGEST_LINE:
            raise FileUnusable(where, f"is longer than {LONGEST_LINE // MIB} MiB")
        return line


@contextmanager
def reading(name: str) -> Iterator[Lines]:
    """Raises FileUnusable, also while the lines are read."""
    if name == STDIO:
        with InterruptibleStdin() as stdin:
            yield Lines(name, stdin.readline)
        return
    with _opened(Path(name), "rb", name) as raw:
        text = gzip.GzipFile(fileobj=raw) if name.endswith(".gz") else raw
        yield Lines(name, text.readline, tell=raw.tell if raw.seekable() else None)


@contextmanager
def writing(name: str) -> Iterator[IO[bytes]]:
    """A file that is there whole or, if the block raises, not at all: what stood there before stays until the end.

    For its owner's eyes only, as a store is, unless what stood there had other rights. What is no regular file (a pipe,
    /dev/null) is written as it goes.
    """
    target = Path(name).resolve()
    is_regular = not target.exists() or target.is_file()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part") if is_regular else target
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
