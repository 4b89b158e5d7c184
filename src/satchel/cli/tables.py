"""Tables for people. Every text goes through `visible` and into a rich Text, which reads no markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from satchel import Event, Message, Question, Run, Session, TextDelta, ToolCall, WorkingMemory
from satchel.cli import sentences
from satchel.cli.chat.answers import hint, is_approval
from satchel.cli.visible import lines_kept, one_line, shortened
from satchel.domain.first_words import first_words

STYLES = {
    "ACTIVE": "green",
    "CLOSED": "yellow",
    "EXPIRED": "magenta",
    "DELETED": "red",
    "COMPLETED": "green",
    "RUNNING": "cyan",
    "READY": "cyan",
    "WAITING": "cyan",
    "FAILED": "red",
    "CANCELLED": "yellow",
    "succeeded": "green",
    "failed": "red",
    "unknown": "magenta",
    "cancelled": "yellow",
}

ID_WIDTH = 29  # sess_ and 24 characters, which never break
GAP = 2
ROOMY = 100  # columns: below, times are short
NARROWEST_RUNS = 64
MESSAGE_LENGTH = 1200
VALUE_LENGTH = 300


def cell(text: str, style: str = "") -> Text:
    """One line; what does not fit ends in an ellipsis."""
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def status_cell(status: str) -> Text:
    return cell(status, STYLES.get(status, ""))


def _grid(*, header: bool = True, gap: int = GAP) -> Table:
    return Table(box=None, show_header=header, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)


class SessionTable:
    """A list of sessions, page by page: the same columns on each, one header above all.

    An id is never broken: where the terminal is too narrow the times get shorter, then other columns go.
    """

    def __init__(self, console: Console, *, with_user: bool) -> None:
        self._console = console
        self._has_header = False
        self._is_narrow = console.width < ROOMY
        self._gap = 1 if self._is_narrow else GAP
        changed, messages = (5, 4) if self._is_narrow else (11, 5)
        widths = {"session": ID_WIDTH, "status": 7, "changed": changed, "msgs": messages}
        if with_user:
            widths["user"] = 6
        widths["title"] = 10
        for name in ("changed", "msgs", "status", "user", "title"):
            if self._taken(widths) > console.width:
                widths.pop(name, None)
        spare = max(0, console.width - self._taken(widths))
        if "user" in widths:
            more = min(10, spare // 3)
            widths["user"] += more
            spare -= more
        if "title" in widths:
            widths["title"] += spare
        self._widths = widths

    def _taken(self, widths: dict[str, int]) -> int:
        return sum(widths.values()) + self._gap * (len(widths) - 1)

    def print(self, sessions: Iterable[Session]) -> None:
        table = _grid(header=not self._has_header, gap=self._gap)
        table.width = self._taken(self._widths)  # as wide as it must be, whatever the terminal is
        for name, width in self._widths.items():
            header = ("when" if self._is_narrow else "changed UTC") if name == "changed" else name
            table.add_column(header, width=width, no_wrap=True, justify="right" if name == "msgs" else "left")
        for session in sessions:
            table.add_row(*(self._cell(name, session) for name in self._widths))
        if table.row_count:
            self._console.print(table, crop=False, no_wrap=True)
            self._has_header = True

    def _cell(self, name: str, session: Session) -> Text:
        match name:
            case "session":
                return Text(session.session_id)
            case "status":
                return status_cell(session.status)
            case "changed" if self._is_narrow:
                return cell(sentences.shortest_moment(session.updated_at))
            case "changed":
                return cell(sentences.short_moment(session.updated_at))
            case "msgs":
                return cell(str(session.message_count))
            case "user":
                return cell(session.user_id)
            case _:
                return cell(session.title) if session.title else cell(session.external_id or "", "dim")


def print_session(console: Console, session: Session, messages: Sequence[Message], where: str) -> None:
    """The whole file folder. ``where``: the flags that lead to its store."""
    _print_facts(console, session)
    if session.working_memory is not None and not session.working_memory.is_empty:
        _heading(console, "Working memory", f"version {session.working_memory.version}")
        print_memory(console, session.working_memory)
    if session.runs:
        _heading(console, "Runs", _shown(len(session.runs), session.run_count))
        print_runs(console, session.runs)
        for run in session.runs:
            if run.question is not None:
                _print_question(console, run, run.question, where)
    if session.tool_history:
        _heading(console, "Tool history", _shown(len(session.tool_history), session.tool_call_count))
        _print_calls(console, session.tool_history)
    if messages:
        _heading(console, "Messages", _shown(len(messages), session.message_count))
        for number, message in enumerate(messages):
            if number:
                console.print()
            print_message(console, message)


def _shown(shown: int, total: int) -> str:
    return f"{total:,}" if shown >= total else f"the newest {shown} of {total:,}"


def _heading(console: Console, title: str, detail: str) -> None:
    console.print()
    console.print(Text.assemble((title, "bold underline"), (f"  {detail}", "dim")))


def _print_facts(console: Console, session: Session) -> None:
    table = _grid(header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("session", Text(session.session_id))
    table.add_row("status", status_cell(session.status))
    for name, value in _facts(session):
        if value:
            table.add_row(name, Text(shortened(one_line(value), VALUE_LENGTH)))
    console.print(table)


def _facts(session: Session) -> list[tuple[str, str]]:
    origin = session.forked_from
    totals = [
        sentences.count(number, what)
        for number, what in (
            (session.message_count, "message"),
            (session.tool_call_count, "tool call"),
            (session.run_count, "run"),
            (session.usage.total_tokens, "token"),
        )
        if number or what == "message"
    ]
    history = [
        f"{one.to} {sentences.moment(one.at)} by {one.actor}" + (f" ({one.reason})" if one.reason else "")
        for one in session.lifecycle[-3:]
    ]
    return [
        ("title", session.title),
        ("owner", f"{session.user_id} of {session.tenant_id}"),
        ("external id", session.external_id or ""),
        ("version", f"{session.version}, last seq {session.last_seq}"),
        ("holds", ", ".join(totals)),
        ("turn", session.active_run_id or ""),
        ("queue", ", ".join(session.queued_run_ids)),
        ("created", f"{sentences.moment(session.created_at)} UTC"),
        ("changed", f"{sentences.moment(session.updated_at)} UTC"),
        ("expires", "" if session.expires_at is None else f"{sentences.moment(session.expires_at)} UTC"),
        ("forked from", "" if origin is None else f"{origin.session_id} at seq {origin.seq}"),
        ("metadata", sentences.as_text(session.metadata) if session.metadata else ""),
        *(("lifecycle" if index == 0 else " ", line) for index, line in enumerate(history)),
    ]


def print_memory(console: Console, memory: WorkingMemory) -> None:
    table = _grid(header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in memory.to_dict().items():
        items = value if isinstance(value, list) else [value]
        lines = [shortened(one_line(sentences.as_text(item)), VALUE_LENGTH) for item in items if item]
        if lines:
            marked = [f"- {line}" for line in lines] if isinstance(value, list) else lines
            table.add_row(name.replace("_", " "), Text("\n".join(marked)))
    console.print(table)


def print_runs(console: Console, runs: Sequence[Run]) -> None:
    """A line for each; below it why it failed, or what it asks. What a run is for is its goal, or the first words of its
    input; where there is no room for another column its agent stands before that."""
    is_narrow = console.width < ROOMY
    table = _grid()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("run", width=28, no_wrap=True)
    table.add_column("status", width=9, no_wrap=True)
    if not is_narrow:
        table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    if not is_narrow:
        table.add_column("agent", max_width=16, no_wrap=True)
    table.add_column("agent: goal" if is_narrow else "goal", ratio=1, min_width=4, no_wrap=True)
    for run in runs:
        goal = run.goal or first_words(run.input)
        table.add_row(
            cell(str(run.number)),
            Text(run.run_id),
            status_cell(run.status),
            *([] if is_narrow else [cell(str(run.steps))]),
            cell(str(run.usage.total_tokens)),
            cell(sentences.took(run.duration_ms)),
            *([] if is_narrow else [cell(run.agent)]),
            cell(f"{run.agent}: {goal}" if is_narrow and run.agent else goal),
        )
    table.width = max(console.width, NARROWEST_RUNS)
    console.print(table, crop=False)
    for run in runs:
        if run.error is not None:
            said = shortened(one_line(f"{run.error.code}: {run.error.message}".rstrip(": ")), VALUE_LENGTH)
            console.print(Text(f"#{run.number} failed: {said}", style="red"))
        if run.question is not None:
            said = shortened(one_line(run.question.question), VALUE_LENGTH)
            console.print(Text(f"#{run.number} asks {one_line(run.question.name)}: {said}", style="cyan"))


def print_run(console: Console, run: Run, where: str) -> None:
    """One run: its facts, and all of what it asks."""
    table = _grid(header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("run", Text(run.run_id))
    table.add_row("status", status_cell(run.status))
    error = "" if run.error is None else f"{run.error.code}: {run.error.message}".rstrip(": ")
    facts = [
        ("number", str(run.number)),
        ("session", run.session_id),
        ("agent", run.agent or "any"),
        ("goal", run.goal),
        ("input", "" if run.input is None else sentences.said(run.input)),
        ("error", error),
        ("stop reason", run.stop_reason or ""),
        ("attempt", f"{run.attempt} of {run.max_attempts}" if run.max_attempts > 1 else str(run.attempt)),
        ("steps", str(run.steps)),
        ("tokens", sentences.tokens(run.to_dict()["usage"])),
        ("took", sentences.took(run.duration_ms)),
        ("parent", run.parent_run_id or ""),
        ("metadata", sentences.as_text(run.metadata) if run.metadata else ""),
    ]
    for name, value in facts:
        if value:
            table.add_row(name, Text(shortened(one_line(value), MESSAGE_LENGTH)))
    console.print(table)
    if run.question is not None:
        _print_question(console, run, run.question, where)


def _print_question(console: Console, run: Run, question: Question, where: str) -> None:
    """Whole: somebody is to decide on it."""
    _heading(console, "Question", f"{one_line(question.name)}, until {sentences.moment(question.expires_at)} UTC")
    console.print(Text(lines_kept(question.question), overflow="fold"))
    if question.schema is not None:
        console.print(Text(f"answer: {hint(question.schema)}", style="dim"))
    if question.schema is not None and not is_approval(question.schema):
        console.print(Text(one_line(f"schema: {sentences.as_text(question.schema)}"), style="dim", overflow="fold"))
    console.print(Text(one_line(f"satchel runs answer {run.session_id} ANSWER{where}"), style="dim"), soft_wrap=True)


def _print_calls(console: Console, calls: Iterable[ToolCall]) -> None:
    table = _grid()
    table.add_column("seq", justify="right", no_wrap=True)
    table.add_column("status", width=9)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("call", ratio=3)
    table.add_column("result, or error", ratio=2)
    for call in calls:
        again = "" if call.repeat_of is None else f"(as {call.repeat_of}) "
        table.add_row(
            cell(str(call.seq)),
            status_cell(call.status),
            cell(sentences.took(call.duration_ms)),
            cell(shortened(again + sentences.called(call.tool, call.arguments), VALUE_LENGTH)),
            cell(shortened(sentences.outcome(call), VALUE_LENGTH)),
        )
    console.print(table)


def print_message(console: Console, message: Message) -> None:
    facts = [f"{message.seq}", sentences.moment(message.created_at)]
    if message.run_id:
        facts.append(message.run_id)
    if message.status != "complete":
        facts.append(message.status)
    who = message.role or message.format
    console.print(Text.assemble((one_line(who), "bold cyan"), ("  " + "  ".join(facts), "dim")))
    text = lines_kept(sentences.message_text(message))
    shown = text[:MESSAGE_LENGTH]
    console.print(Text(shown, overflow="fold"))
    if len(text) > len(shown):
        left = f"… {len(text) - len(shown):,} more characters; --json has them all"
        console.print(Text(left, style="dim"))


def print_keys(console: Console, keys: Sequence[Mapping[str, Any]]) -> None:
    """Whose they are, never what they are."""
    columns = {"tenant": "tenant_id", "role": "role", "subject": "subject", "acting for": "acting_for"}
    columns |= {"since": "created_at", "until": "expires_at"}
    shown = {name: fact for name, fact in columns.items() if any(key[fact] for key in keys)}
    table = _grid()
    table.add_column("key", min_width=max(len(key["key_id"]) for key in keys), no_wrap=True)
    for name, fact in shown.items():
        table.add_column(name, min_width=10 if fact.endswith("_at") else 5, no_wrap=True)
    for key in keys:
        facts = ((key[fact] or "")[: 10 if fact.endswith("_at") else None] for fact in shown.values())
        table.add_row(Text(key["key_id"]), *(cell(fact) for fact in facts))
    console.print(table, crop=False)


class EventLines:
    """The log, a line each: cut at the edge of a terminal, whole anywhere else. Text that is being said stands between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._saying: tuple[str, int, int] | None = None  # whose text the line is in the middle of

    def print(self, item: Event | TextDelta) -> None:
        if isinstance(item, TextDelta):
            said = item.run_id, item.attempt, item.message
            self._end_text(unless=said)
            self._saying = said
            self._console.print(Text(lines_kept(item.text)), end="", soft_wrap=True)
            return
        self._end_text()
        self._print_line(item)

    def _end_text(self, *, unless: tuple[str, int, int] | None = None) -> None:
        if self._saying not in (None, unless):
            self._console.print()
        self._saying = None

    def _print_line(self, event: Event) -> None:
        line = Text.assemble(
            (f"{event.seq:>5}  ", "bold"),
            (f"{event.created_at:%m-%d %H:%M:%S}  ", "dim"),
            (f"{event.kind:<22}  ", "cyan"),
            (f"{one_line(event.actor)}  ", "dim"),
            one_line(sentences.happened(event)),
        )
        if self._console.is_terminal:
            self._console.print(line, no_wrap=True, overflow="ellipsis")
        else:
            self._console.print(line, soft_wrap=True)
