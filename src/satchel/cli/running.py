"""The commands as cyclopts knows them, and how each ends: with an exit code, and at most one line about why."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TextIO

import rich  # noqa: F401  # so that a missing extra is met here, and not in the middle of a command
from cyclopts import App, CycloptsError

from satchel.cli import exporting, flags, importing, lifecycle, output, tailing, viewing
from satchel.cli.exit_codes import ExitCode, exit_code_of, explained
from satchel.cli.failures import code_of
from satchel.errors import SatchelError

ABOUT = """Sessions of AI agents: conversation, working memory, tool history and runs, in a store that survives.

Every flag has an environment variable: --store is SATCHEL_STORE, --updated-after is SATCHEL_UPDATED_AFTER; a flag that may
be repeated takes one value a line. On a store the command is the operator: it may see and do everything of the tenant."""

EPILOGUE = f"""Begin with:

  satchel demo
  export SATCHEL_STORE=sqlite:///agent.db SATCHEL_TENANT=acme
  satchel sessions import talks.jsonl.gz --user ada
  satchel sessions list
  satchel tail SESSION_ID --all

Exit codes:

{explained()}"""


def play_demo(*, folder: flags.Folder = None, json: flags.Json = False, keep: flags.Keep = False) -> int:
    """Play the demo: an agent repairs a project, is killed, and goes on where it was.

    Offline, with a scripted agent and real tools. Each check that it prints is computed; the exit code is 1 if one fails.
    """
    from satchel.demo.play import run_demo

    return run_demo(folder=folder, json=json, keep=keep)


def _version() -> str:
    from importlib.metadata import version

    return version("satchel")


def _app() -> App:
    app = App(
        name="satchel",
        help=_flowing(ABOUT),
        help_format="plaintext",
        help_epilogue=EPILOGUE,
        version=_version,
        version_format="plaintext",
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    sessions = App(
        name="sessions", help="List, show, close, restore, delete, import and export sessions.", help_epilogue=""
    )
    app.command(sessions)
    _add(app, "demo", play_demo)
    _add(
        app,
        "tail",
        tailing.tail_session,
        "satchel tail sess_… --all",
        "satchel tail sess_… --json | jq -r .kind",
    )
    _add(
        sessions,
        "list",
        viewing.list_sessions,
        "satchel sessions list --status closed --updated-after 2026-01-31",
        "satchel sessions list --user ada --metadata topic=sales --title flask",
    )
    _add(sessions, "show", viewing.show_session)
    _add(sessions, "close", lifecycle.close_session)
    _add(sessions, "restore", lifecycle.restore_session)
    _add(sessions, "delete", lifecycle.delete_session)
    _add(
        sessions,
        "import",
        importing.import_sessions,
        "satchel sessions import a.jsonl b.jsonl.gz --user ada",
        "zcat b.jsonl.gz | satchel sessions import - --user ada",
        usage="satchel sessions import --store URL --tenant T --user U [OPTIONS] FILE...",
    )
    _add(
        sessions,
        "export",
        exporting.export_sessions,
        "satchel sessions export -o backup.jsonl.gz",
        "satchel sessions export sess_… | jq .messages",
        usage="satchel sessions export --store URL --tenant T [OPTIONS] [SESSION_ID...]",
    )
    return app


def _add(app: App, name: str, command: Callable[..., object], *examples: str, usage: str | None = None) -> None:
    shown = "\n".join(["For example:", "", *(f"  {line}" for line in examples)]) if examples else ""
    app.command(
        command,
        name=name,
        help=_flowing(inspect.getdoc(command) or ""),
        help_epilogue=shown,
        usage=None if usage is None else f"Usage: {usage}",
    )


def _flowing(text: str) -> str:
    """Each paragraph as one line, to be broken where the terminal ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def run(arguments: Sequence[str]) -> int:
    """One command, to its end."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit):  # the help's own console exits when it meets a closed pipe
        _silence_stdout()
        return ExitCode.READER_LEFT
    except CycloptsError as wrong:
        chain = " ".join(("satchel", *(wrong.command_chain or ())))
        return _refuse("usage", str(wrong), ExitCode.USAGE, arguments, hint=f" ({chain} --help)")
    except SatchelError as error:
        return _refuse(code_of(error), str(error), exit_code_of(error), arguments)
    except Exception as error:  # noqa: BLE001  # the last door: what nobody foresaw is one line too
        hint = "" if _debugs() else " (SATCHEL_DEBUG=1 shows where)"
        return _refuse(
            "unexpected", f"unexpected {type(error).__name__}: {error}", ExitCode.UNEXPECTED, arguments, hint=hint
        )


def _run(arguments: Sequence[str]) -> int:
    _mend_streams()
    answer = _app()(list(arguments))
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
