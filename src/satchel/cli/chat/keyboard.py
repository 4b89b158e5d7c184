"""Reading what a person types, and hearing that they are gone."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from types import FrameType

PROMPT = "> "
MORE = "… "


class HungUp(KeyboardInterrupt):
    """The terminal was closed, or somebody wants this process to end: there is nobody to ask twice."""


def heed_hangups() -> None:
    """What runs is handed back in order, as after Ctrl-C. A second signal ends the process at once."""

    def heed(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise HungUp

    if threading.current_thread() is not threading.main_thread():
        return  # called by a program, which hears its signals itself
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) == signal.SIG_DFL:
            signal.signal(getattr(signal, name), heed)


def prepare() -> None:
    """Line editing and a history of this conversation, where the system has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # importing it is what makes input() edit


def read_line(prompt: str = PROMPT) -> str:
    """One line, without its end. A line that ends in a backslash goes on with the next. Raises EOFError, KeyboardInterrupt."""
    lines = [_read(prompt)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(_read(MORE))
    return "\n".join(lines)


def _read(prompt: str) -> str:
    sys.stdout.flush()
    try:
        text = input(prompt)
    except UnicodeDecodeError:
        return "\ufffd"
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
