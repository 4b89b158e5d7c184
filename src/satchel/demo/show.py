"""What the demo prints while it plays: coloured by rich on a terminal, plain elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from satchel import Event, Run
from satchel.demo.checks import Check, shown
from satchel.demo.story import lines_of, run_rows

if TYPE_CHECKING:
    from rich.console import Console

Part = tuple[str, str]  # a text and its style: "", head, dim, who, good, bad
LINE = 100
STYLES = {"head": "bold cyan", "dim": "dim", "who": "bold", "good": "bold green", "bad": "bold red", "": ""}


class Show:
    """Plain lines on a stream, each at once."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.meanings: dict[str, str] = {}  # of what Ada says, in English

    def line(self, *parts: Part, indent: int = 0) -> None:
        """``indent``: the width of the first part, below which a long line goes on where lines are wrapped."""
        text = "".join(text for text, _ in parts)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """While something takes its time."""
        yield

    def scene(self, number: int, title: str) -> None:
        self.line()
        self.line((f"== Scene {number}. {title} ==", "head"))

    def note(self, text: str) -> None:
        self.line(("   " + text, "dim"))

    def event(self, event: Event) -> None:
        if event.kind == "message" and event.data["role"] == "user":
            self.line()
        for who, what in lines_of(event):
            style = "" if who in ("Ada", "agent") or (not who and not what.startswith(("→", "←"))) else "dim"
            self.line(
                (f"  {who:>8} ", "who" if style == "" else "dim"),
                (what, style),
                (self._meaning(what), "dim"),
                indent=11,
            )

    def _meaning(self, said: str) -> str:
        return f"  ({self.meanings[said]})" if said in self.meanings else ""

    def check(self, check: Check) -> None:
        mark = ("  ✓ ", "good") if check.ok else ("  ✗ ", "bad")
        expected, found = shown(check.expected), shown(check.found)
        if len(check.name) + len(expected) + len(found) + 24 <= LINE and "\n" not in expected + found:
            self.line(mark, (check.name, ""), (f": expected {expected}, found {found}", "dim"))
            return
        self.line(mark, (check.name, ""))
        self.line(("      expected  ", "dim"), (expected, "dim"), indent=16)
        self.line(("      found     ", "dim"), (found, "dim" if check.ok else "bad"), indent=16)

    def runs(self, runs: Sequence[Run]) -> None:
        for row in run_rows(tuple(runs)):
            self.line(("     " + "  ".join(row), "dim"))

    def summary(self, checks: Sequence[Check], *, seconds: float) -> None:
        failed = [check for check in checks if not check.ok]
        self.line()
        for check in failed:
            self.line(("✗ ", "bad"), (f"scene {check.scene}: {check.name}", "bad"))
        passed = len(checks) - len(failed)
        style = "bad" if failed else "good"
        self.line((f"{passed} of {len(checks)} checks passed", style), (f" in {seconds:.0f} s", ""))


class RichShow(Show):
    """On a terminal, with colours, and a spinner while something takes its time."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.file)
        self._console = console

    def line(self, *parts: Part, indent: int = 0) -> None:
        from rich.table import Table
        from rich.text import Text

        texts = [Text(text, STYLES[style]) for text, style in parts]
        if not indent:
            self._console.print(Text.assemble(*texts))
            return
        grid = Table.grid()
        grid.add_column(width=indent, no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(texts[0], Text.assemble(*texts[1:]))
        self._console.print(grid)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        with self._console.status(text):
            yield


def show_for(stream: IO[str]) -> Show:
    """By rich, if the stream is a terminal and rich is installed."""
    if stream.isatty():
        try:
            from rich.console import Console
        except ImportError:
            return Show(stream)
        return RichShow(Console(file=stream, highlight=False, markup=False, emoji=False))
    return Show(stream)
