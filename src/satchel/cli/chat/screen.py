"""What a person sees of a run while it goes on."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
from rich.text import Text

from satchel import Event, Message, Run, Session, TextDelta, TextPosition, WorkingMemory
from satchel.cli import output, sentences
from satchel.cli.visible import lines_kept, one_line, shortened

RECAP = 4  # messages


def is_about(asked: str, tool: str, arguments: Any) -> bool:
    """Whether this question is the one that ``ctx.approve`` asks about this call."""
    before, after = f"May {tool} be called with ", "?"
    if not (asked.startswith(before) and asked.endswith(after)):
        return False
    try:
        return bool(msgspec.json.decode(asked[len(before) : -len(after)]) == arguments)
    except (msgspec.DecodeError, RecursionError):
        return False


class Screen:
    """On stdout, as it comes. Text that streams is written piece by piece; the message that it becomes only adds the rest."""

    def __init__(self) -> None:
        self._console = output.console()
        self._is_in_line = False
        self._asked: dict[str, str] = {}  # what was asked, by its name
        self._refused: list[str] = []  # those of it that a human said no to, and whose call is not shown yet
        self._calls: dict[int, str] = {}  # the tools that were called, by their seq
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
            elif isinstance(body, dict) and (event.outcome or "").startswith("failed"):
                self._fail(event, body.get("content"))
        elif event.kind in ("tool_call_started", "tool_call_recorded"):
            self._call(event, str(body.get("tool")), body.get("arguments"))
        elif event.kind == "tool_call_finished" and body.get("status") == "failed":
            self._fail(event, body.get("error"))
        elif event.kind == "question_asked":
            self._asked[body["name"]] = body["question"]
        elif event.kind == "question_answered":
            answer = body.get("answer")
            if isinstance(answer, dict) and answer.get("decision") == "deny" and body["name"] in self._asked:
                self._refused.append(self._asked[body["name"]])

    def _call(self, event: Event, tool: str, arguments: Any) -> None:
        """A call that a human refused is no call that was made."""
        refused = next((asked for asked in self._refused if is_about(asked, tool, arguments)), None)
        if refused is not None:
            self._refused.remove(refused)
        else:
            self._calls[event.seq] = tool
        self._cut(f"· {sentences.called(tool, arguments)}", "" if refused is None else ": refused")
        if event.kind == "tool_call_recorded" and event.data.get("status") == "failed":
            self._fail(event, event.data.get("error"))

    def _fail(self, event: Event, error: Any) -> None:
        tool = self._calls.get(event.seq if event.refers_to is None else event.refers_to)
        if tool is not None:
            self._cut(f"· {tool} failed: {sentences.as_text(error)}")

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

    def _cut(self, text: str, end: str = "") -> None:
        """One line of the terminal, whatever ``text`` holds; ``end`` is always seen."""
        self._end_line()
        shown = Text(shortened(one_line(" ".join(text.split())), 2000), style="dim")
        shown.truncate(max(1, self._console.width - len(end)), overflow="ellipsis")
        self._console.print(shown.append(end), no_wrap=True, overflow="crop")

    # -- beside it

    def command(self, text: str) -> None:
        """To be pasted: on a line of its own, never broken."""
        self._end_line()
        self._console.print(Text(one_line(text)), soft_wrap=True)

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
        """Where the conversation stands, and why there is no answer where there is none."""
        self.note(f"{sentences.count(session.message_count, 'message')} so far; /history shows them. The newest:")
        newest = tuple(session.messages)[-RECAP:]
        self.messages(newest)
        run = next((run for run in reversed(session.runs) if run.parent_run_id is None), None)
        if newest and run is not None and run.is_terminal and newest[-1].run_id == run.run_id:
            self.end(run)
            if newest[-1].role == "user":
                self.note("· this message has no answer")

    def memory(self, memory: WorkingMemory) -> None:
        from satchel.cli.tables import print_memory  # the same

        if memory.is_empty:
            self.note("working memory is empty")
        else:
            print_memory(self._console, memory)
