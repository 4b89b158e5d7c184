"""How a command ends: with an exit code, and at most one line about why."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TextIO

import rich  # noqa: F401  # so that a missing extra is met here, and not in the middle of a command
from cyclopts import CycloptsError

from satchel.cli import output
from satchel.cli.commands import make_app
from satchel.cli.exit_codes import ExitCode, exit_code_of
from satchel.cli.failures import code_of
from satchel.cli.typed import typed
from satchel.cli.usage import sentence_of
from satchel.errors import SatchelError


def run(arguments: Sequence[str]) -> int:
    """One command, to its end."""
    try:
        with typed(arguments):
            return _run(arguments)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # the help's own console exits when it meets a closed pipe
        _silence_stdout()
        return ExitCode.READER_LEFT
    except CycloptsError as wrong:
        chain = " ".join(("satchel", *(wrong.command_chain or ())))
        return _refuse("usage", sentence_of(wrong), ExitCode.USAGE, arguments, hint=f" ({chain} --help)")
    except SatchelError as error:
        return _refuse(code_of(error), str(error), exit_code_of(error), arguments)
    except Exception as error:  # noqa: BLE001  # the last door: what nobody foresaw is one line too
        hint = "" if _debugs() else " (SATCHEL_DEBUG=1 shows where)"
        return _refuse(
            "unexpected", f"unexpected {type(error).__name__}: {error}", ExitCode.UNEXPECTED, arguments, hint=hint
        )


def _run(arguments: Sequence[str]) -> int:
    _mend_streams()
    answer = make_app()(list(arguments))
    output.flush()
    return answer if isinstance(answer, int) else ExitCode.OK


def _mend_streams() -> None:
    """A stream that was closed before the start is None, and the next file to be opened, a database, would get its number."""
    sys.stdin = sys.stdin or _nowhere("r")
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that knows no Chinese still gets the rest


def _nowhere(mode: Literal["r", "w"] = "w") -> TextIO:
    return Path(os.devnull).open(mode)


def _refuse(code: str, message: str, exit_code: ExitCode, arguments: Sequence[str], *, hint: str = "") -> ExitCode:
    if _debugs():
        traceback.print_exc()
    if _wants_json(arguments):
        output.write_error({"error": {"code": code, "message": message}})
    else:
        output.say(f"satchel: {message}{hint}")
    return exit_code


def _debugs() -> bool:
    return os.environ.get("SATCHEL_DEBUG", "") not in ("", "0")


def _wants_json(arguments: Sequence[str]) -> bool:
    """Also of a command line that is wrong, and has no flags to ask."""
    return "--json" in arguments or os.environ.get("SATCHEL_JSON", "").lower() in ("1", "true", "yes", "y", "t", "on")


def _silence_stdout() -> None:
    """Nobody reads any more; what is still buffered must not complain at the exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
