"""The console that all tables are printed on."""

from __future__ import annotations

from typing import IO, NoReturn

from rich.console import Console


class PlainConsole(Console):
    """Reads no markup and no :emoji:, guesses no highlights: a stored title like ``[red]`` stays what it is."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(file=stream, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> NoReturn:
        """The command ends as it does when JSON meets a closed pipe; rich would exit by itself."""
        raise BrokenPipeError
