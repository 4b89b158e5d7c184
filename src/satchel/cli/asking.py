"""Asking somebody who sits at a terminal."""

from __future__ import annotations

import sys

from satchel.cli import output
from satchel.cli.stdin import InterruptibleStdin


def can_ask() -> bool:
    return output.is_terminal(sys.stdin) and output.is_terminal(sys.stderr)


def says_yes(question: str) -> bool:
    sys.stderr.write(question)
    sys.stderr.flush()
    with InterruptibleStdin() as stdin:
        answer = stdin.readline()
    return answer.strip().lower() in (b"y", b"yes")
