"""A session as of a point of its log: where the log may be cut, and which title and metadata the session had there."""

from __future__ import annotations

from typing import Any

import msgspec

from satchel.domain.bodies import TitleChanged, read_body
from satchel.domain.decisions.lifecycle import merge_patch
from satchel.domain.event import CHAT_FORMAT, Event

_encode = msgspec.json.Encoder().encode


class Pairs:
    """What may not be parted: a question for a tool and its answer, the start of a tool call and its end."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}  # by label: who asked last, and was not answered
        self._pairs: list[tuple[int, int]] = []

    def take(self, event: Event) -> None:
        """The next event of the log."""
        if event.refers_to is not None and event.kind in ("message", "tool_call_finished"):
            self._pairs.append((event.refers_to, event.seq))
        if event.kind != "message" or event.format != CHAT_FORMAT:
            return
        message = event.data
        if message.get("role") == "tool":
            asked_at = self._asked.pop(message.get("tool_call_id") or "", None)
            if asked_at is not None:
                self._pairs.append((asked_at, event.seq))
        elif message.get("role") == "assistant":
            for call in message.get("tool_calls") or ():
                label = call.get("id")
                if label is not None:
                    self._asked[label] = event.seq

    def cut(self, up_to: int) -> int:
        """The greatest seq up to ``up_to`` behind which the log may end."""
        end = up_to
        for first, second in sorted(self._pairs, reverse=True):  # what begins last is cut off first
            if first <= end < second:
                end = first - 1
        return end


class Past:
    """Title and metadata at ``point``, from what they are now and from the changes in the log. Where the log does not hold
    what stood there before a later change, nothing stands: what came later is not told."""

    def __init__(self, point: int, *, title: str, metadata: bytes) -> None:
        self._point = point
        self._now = title
        self._title: str | None = None
        self._metadata = metadata
        self._earlier: list[bytes] = []
        self._all_is_covered = False
        self._later: dict[str, Any] = {}  # a tree of the names in later patches; what is no object there is None

    def take(self, event: Event) -> None:
        """The next change of title or metadata, up to the newest. One behind the point may be unreadable."""
        later = event.seq > self._point
        if event.is_corrupt:
            self._is_hidden(event)
            return
        if event.kind == "title_changed":
            body = read_body(event.body, TitleChanged)
            if not later:
                self._title = body.title
            elif self._title is None:  # the first one
                self._title = body.former or ""
        elif event.kind == "metadata_changed":
            if later:
                _add_names(self._later, event.data)
            else:
                self._earlier.append(event.body)

    def _is_hidden(self, event: Event) -> None:
        """Nobody knows what it covered."""
        if event.kind == "title_changed" and self._title is None:
            self._title = ""
        elif event.kind == "metadata_changed":
            self._all_is_covered = True

    @property
    def title(self) -> str:
        return self._now if self._title is None else self._title

    @property
    def metadata(self) -> bytes:
        if not self._later and not self._all_is_covered:
            return self._metadata
        left = b"{}" if self._all_is_covered else _without(self._metadata or b"{}", self._later)
        for patch in self._earlier:  # what they say stands there already, unless it was just taken out
            left = merge_patch(left, patch)
        return left


def _add_names(tree: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        below = tree.setdefault(name, {} if isinstance(value, dict) else None)
        if below is None or not isinstance(value, dict):
            tree[name] = None
        else:
            _add_names(below, value)


def _without(text: bytes, names: dict[str, Any]) -> bytes:
    """A JSON object without these members; what becomes empty by it goes as well."""
    kept: dict[str, msgspec.Raw] = {}
    for name, value in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        if name not in names:
            kept[name] = value
        elif names[name] is not None and bytes(value).lstrip().startswith(b"{"):
            left = _without(bytes(value), names[name])
            if left != b"{}":
                kept[name] = msgspec.Raw(left)
    return _encode(kept)
