"""What something is called that nobody named: the first words of what was said."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

LOOKED_AT = 800  # characters of what was said
GOAL = 200  # characters that name a run which has no goal
TITLE = 60  # and a new session without a title


def first_words(said: object, length: int = GOAL) -> str:
    """One line of at most ``length`` characters, with an ellipsis where it breaks off. ``said``: text, a chat message, or its JSON as
    bytes; "" for what holds no text."""
    if isinstance(said, bytes):
        said = msgspec.json.decode(said)
    content = said.get("content") if isinstance(said, Mapping) else said
    parts = content if isinstance(content, (list, tuple)) else (content,)
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    text = " ".join(text[:LOOKED_AT] for text in texts if isinstance(text, str))[:LOOKED_AT]
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= length else line[: length - 1] + "…"
