"""What became of one conversation that was imported."""

from __future__ import annotations

from typing import Literal

import msgspec


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. ``result``: ``imported``; ``exists`` when it was there already; ``differs`` when another session stands under
    its name, or this one with less in it: that was left, nothing of the line was stored, and ``reason`` says in what it differs.
    ``session_id``, ``messages`` and ``events`` are of the session that is there. ``former_user_id``: who owned it by its line, where
    that is somebody else than its owner here, ``user_id``."""

    line: int
    session_id: str
    external_id: str
    result: Literal["imported", "exists", "differs"]
    messages: int
    events: int
    user_id: str
    former_user_id: str | None = None
    reason: str = ""
