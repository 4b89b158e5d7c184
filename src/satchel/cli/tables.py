"""Tables for people. Every text goes through `visible` and into a rich Text, which reads no markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from satchel import Event, Message, Run, Session, TextDelta, ToolCall, WorkingMemory
from satchel.cli import sentences
from satchel.cli.visible import lines_kept, one_line, shortened

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
MESSAGE_LENGTH = 1200
VALUE_LENGTH = 300


def cell(text: str, style: str = "") -> Text:
    """One line; what does not fit ends in an ellipsis."""
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def status_cell(status: str) -> Text:
    return cell(status, STYLES.get(status, ""))


def _grid(*, header: bool = True) -> Table:
    return Table(box=None, show_header=header, header_style="bold", padding=(0, GAP, 0, 0), pad_edge=False)


class SessionTable:
    """A list of sessions, page by page: the same columns on each, one header above all."""

    def __init__(self, console: Console, *, with_user: bool) -> None:
        self._console = console
        self._with_user = with_user
        self._has_header = False
        fixed = ID_WIDTH + 7 + 11 + 5 + 4 * GAP
        rest = max(12, console.width - fixed)
        self._user_width = min(16, max(6, rest // 3)) if with_user else 0
        self._title_width = max(4, rest - (self._user_width + GAP if with_user else 0))

    def print(self, sessions: Iterable[Session]) -> None:
        table = _grid(header=not self._has_header)
        table.add_column("session", width=ID_WIDTH, overflow="fold")
        table.add_column("status", width=7)
        table.add_column("changed UTC", width=11)
        table.add_column("msgs", width=5, justify="right", no_wrap=True)
        if self._with_user:
            table.add_column("user", width=self._user_width)
        table.add_column("title", width=self._title_width)
        for session in sessions:
            row = [
                Text(session.session_id),
                status_cell(session.status),
                cell(sentences.short_moment(session.updated_at)),
                cell(str(session.message_count)),
                *([cell(session.user_id)] if self._with_user else []),
                cell(session.title) if session.title else cell(session.external_id or "", "dim"),
            ]
            table.add_row(*row)
        if table.row_count:
            self._console.print(table)
            self._has_header = True


def print_session(console: Console, session: Session, messages: Sequence[Message]) -> None:
    """The whole file folder."""
    _print_facts(console, session)
    if session.working_memory is not None and not session.working_memory.is_empty:
        _heading(console, "Working memory", f"version {session.working_memory.version}")
        print_memory(console, session.working_memory)
    if session.runs:
        _heading(console, "Runs", _shown(len(session.runs), session.run_count))
        _print_runs(console, session.runs)
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


def _what_of(run: Run) -> Text:
    """Why it failed, what it waits for, or what it is to do."""
    if run.error is not None:
        return cell(f"{run.error.code}: {run.error.message}".rstrip(": "), "red")
    if run.question is not None:
        return cell(f"asks {run.question.name}: {run.question.question}", "cyan")
    return cell(run.goal)


def _print_runs(console: Console, runs: Iterable[Run]) -> None:
    table = _grid()
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("run", width=28, overflow="fold")
    table.add_column("status", width=9)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("goal, or error", ratio=1)
    for run in runs:
        table.add_row(
            cell(str(run.number)),
            Text(run.run_id),
            status_cell(run.status),
            cell(str(run.steps)),
            cell(str(run.usage.total_tokens)),
            cell(sentences.took(run.duration_ms)),
            _what_of(run),
        )
    console.print(table)


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
