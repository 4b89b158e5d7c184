"""Points at which a server of the tests dies: loaded by it as an agent's module, so that no other server knows of them.

SATCHEL_TEST_CRASH=POINT:N kills the process, as a power cut would, at the Nth write that comes to the point: before_commit (the rows
are written, the transaction is open), after_commit (nobody was told), before_answer (the answer is made, nothing of it is sent).
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

from satchel import RunContext
from satchel.http.answers import Answer
from satchel.http.asgi import Receive, Scope, Send
from satchel.stores.sqlite.writer import Writer

POINTS = ("before_commit", "after_commit", "before_answer")
VARIABLE = "SATCHEL_TEST_CRASH"

_point, _, _turn = os.environ.get(VARIABLE, "").partition(":")
_count = itertools.count(1)


def _reached(point: str) -> None:
    if point == _point and next(_count) == int(_turn):
        os.kill(os.getpid(), signal.SIGKILL)


def _around_commit(commit: Callable[[Writer], None]) -> Callable[[Writer], None]:
    def crashing(self: Writer) -> None:
        _reached("before_commit")
        commit(self)
        _reached("after_commit")

    return crashing


def _before_answer(answer: Callable[..., Any]) -> Callable[..., Any]:
    async def crashing(self: Answer, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            _reached("before_answer")
        await answer(self, scope, receive, send)

    return crashing


if _point:
    Writer.commit_open = _around_commit(Writer.commit_open)  # type: ignore[assignment, method-assign]  # the very instant is the point
    Answer.__call__ = _before_answer(Answer.__call__)  # type: ignore[method-assign]  # the same


async def nobody(ctx: RunContext) -> None:
    """An agent that is given no runs."""
