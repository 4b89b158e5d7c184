"""What a person sees of a run while it goes on."""

from __future__ import annotations

import sys
from typing import Any

from rich.text import Text

from satchel import Event, Message, Run, Session, TextDelta, TextPosition, WorkingMemory
from satchel.cli import output, sentences
from satchel.cli.visible import lines_kept, one_line, shortened

SHOWN = 200  # characters of a call or its outcome
RECAP = 4  # messages


class Screen:
    """On stdout, as it comes. Text that streams is written piece by piece; the message that it becomes only adds the rest."""

    def __init__(self) -> None:
        self._console = output.console()
        self._is_in_line = False
        self._said: TextPosition | None = None  # of the message that is being said, how much stands there

    # -- a run

    def show(self, item: Event | TextDelta) -> None:
        if isinstance(item, TextDelta):
            self._add(item)
        else:
            self._show_event(item)

    def _add(self, delta: TextDelta) -> None:
        """Text that stands there already, because somebody began to follow anew, is not written again."""
        known = 0 if self._said is None or self._said[:3] != delta.position[:3] else self._said.offset
        self._write(delta.text[max(0, known - delta.offset) :])
        self._said = delta.position

    def _show_event(self, event: Event) -> None:
        body = event.data
        if event.kind == "message":
            if isinstance(body, dict) and body.get("role") == "assistant":
                self._answer(event, body.get("content"))
        elif event.kind in ("tool_call_started", "tool_call_recorded"):
            self.note(f"· {sentences.called(str(body.get('tool')), body.get('arguments'))}")

    def end(self, run: Run) -> None:
        """How it ended, if that is not what everybody hopes for."""
        self._end_line()
        if run.error is not None:
            self.warn(f"the run failed: {run.error.code}{run.error.message and f': {run.error.message}'}")
        elif run.status == "CANCELLED":
            self.note("· cancelled")
        elif run.stop_reason not in (None, "end_turn"):
            self.note(f"· stopped: {run.stop_reason}")

    def _answer(self, event: Event, content: Any) -> None:
        text = sentences.said({"content": content})
        said, self._said = self._said, None
        if said is not None and (said.run_id, said.message) == (event.run_id, event.streamed):
            text = text[said.offset :]
        if text:
            self._write(text)
        self._end_line()
        if event.status == "interrupted":
            self.note("· interrupted")

    def _write(self, text: str) -> None:
        sys.stdout.write(lines_kept(text))
        sys.stdout.flush()
        self._is_in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._is_in_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._is_in_line = False

    def ask(self, question: str, hint: str) -> None:
        self._end_line()
        self._console.print(Text(lines_kept(question), style="bold"))
        if hint:
            self.note(hint)

    # -- beside it

    def note(self, text: str) -> None:
        self._line(text, "dim")

    def warn(self, text: str) -> None:
        self._line(text, "red")

    def say(self, text: str) -> None:
        self._line(text, "")

    def _line(self, text: str, style: str) -> None:
        self._end_line()
        self._console.print(Text(shortened(one_line(text), 2000), style=style))

    def lines(self, text: str) -> None:
        """Several lines of somebody's."""
        self._end_line()
        self._console.print(Text(lines_kept(text)))

    def messages(self, messages: tuple[Message, ...]) -> None:
        from satchel.cli.tables import print_message  # tables are not loaded until they are wanted

        for message in messages:
            print_message(self._console, message)

    def recap(self, session: Session) -> None:
        """Where the conversation stands."""
        self.note(f"{sentences.count(session.message_count, 'message')} so far; /history shows them. The newest:")
        self.messages(tuple(session.messages)[-RECAP:])

    def memory(self, memory: WorkingMemory) -> None:
        from satchel.cli.tables import print_memory  # the same

        if memory.is_empty:
            self.note("working memory is empty")
        else:
            print_memory(self._console, memory)
