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

    def line(self, *parts: Part) -> None:
        print("".join(text for text, _ in parts), file=self._stream, flush=True)

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
        for who, what in lines_of(event):
            style = "" if who in ("Ada", "agent") or (not who and not what.startswith(("→", "←"))) else "dim"
            self.line((f"  {who:>8} ", "who" if style == "" else "dim"), (what, style))

    def check(self, check: Check) -> None:
        mark = ("  ✓ ", "good") if check.ok else ("  ✗ ", "bad")
        expected, found = shown(check.expected), shown(check.found)
        if len(check.name) + len(expected) + len(found) + 24 <= LINE and "\n" not in expected + found:
            self.line(mark, (check.name, ""), (f": expected {expected}, found {found}", "dim"))
            return
        self.line(mark, (check.name, ""))
        self.line(("      expected  ", "dim"), (expected, "dim"))
        self.line(("      found     ", "dim"), (found, "dim" if check.ok else "bad"))

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

    def line(self, *parts: Part) -> None:
        from rich.text import Text

        self._console.print(Text.assemble(*((text, STYLES[style]) for text, style in parts)))

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
