"""A client that shows what it follows, is cut, and follows again: what it may rely on, checked as it goes."""

from __future__ import annotations

from collections.abc import Iterable

from satchel import Event, TextDelta, TextPosition

Key = tuple[str, int, int]


class Reader:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.saying: dict[Key, str] = {}
        self.said: list[tuple[Key, str, Event]] = []  # what was shown of each message that ended, and its event
        self.position: TextPosition | None = None

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq if self.events else 0

    def take_all(self, items: Iterable[Event | TextDelta]) -> None:
        for item in items:
            self.take(item)

    def take(self, item: Event | TextDelta) -> None:
        if isinstance(item, Event):
            self._take_event(item)
        else:
            self._take_delta(item)

    def _take_event(self, event: Event) -> None:
        assert event.seq == self.last_seq + 1, "an event is lost, or comes twice"
        self.events.append(event)
        if event.streamed is None:
            return
        for key in [key for key in self.saying if (key[0], key[2]) == (event.run_id, event.streamed)]:
            shown = self.saying.pop(key)
            assert event.data["content"].startswith(shown), "something was shown that is not in the log"
            self.said.append((key, shown, event))

    def _take_delta(self, delta: TextDelta) -> None:
        key = (delta.run_id, delta.attempt, delta.message)
        assert all(key != ended for ended, _, _ in self.said), "text comes after the end of its message"
        have = self.saying.get(key, "")
        assert delta.offset <= len(have), "text is lost"
        again = have[delta.offset :]
        assert delta.text.startswith(again) or again.startswith(delta.text), "other text stands there now"
        self.saying[key] = have[: delta.offset] + delta.text if delta.end > len(have) else have
        self.position = delta.position

    def check_whole(self, log: Iterable[Event]) -> None:
        assert self.events == list(log)
        assert not self.saying
