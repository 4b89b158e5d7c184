"""What became of one conversation that was imported."""

from __future__ import annotations

from typing import Literal

import msgspec


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. ``result``: ``imported``, or ``exists`` when it was there already."""

    line: int
    session_id: str
    external_id: str
    result: Literal["imported", "exists"]
    messages: int
    events: int
