"""What the dialects' migrations have in common: numbered files of SQL, forward only.

The first paragraph of a file, a comment, says what it changes, and whether older code can run on it. A file is never edited after its release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from itertools import takewhile

from satchel.store import Schema, SchemaStep


class Migrations(dict[int, str]):
    """The scripts by their numbers. ``names``: what their files are called."""

    names: Mapping[int, str]


def load_migrations(package: str) -> Migrations:
    """Those in the folder ``migrations`` of a store's package: ``0001_initial.sql``."""
    folder = files(package).joinpath("migrations")
    entries = {int(entry.name[:4]): entry for entry in folder.iterdir() if entry.name.endswith(".sql")}
    found = Migrations((number, entries[number].read_text("utf-8")) for number in sorted(entries))
    found.names = {number: entry.name.removesuffix(".sql") for number, entry in entries.items()}
    return found


def schema_of_steps(
    scripts: Mapping[int, str], applied: Mapping[int, int], *, pasteable: Callable[[int, str], str]
) -> Schema:
    """``applied``: when each step was, in microseconds. ``pasteable``: a step's script as its database's shell takes it."""
    names = getattr(scripts, "names", {})
    return Schema(
        found=max(applied, default=0),
        known=max(scripts),
        steps=tuple(
            SchemaStep(
                number=number,
                name=names.get(number, f"{number:04}"),
                about=_about(script),
                sql=pasteable(number, script),
                applied_at=applied.get(number),
            )
            for number, script in sorted(scripts.items())
        ),
    )


def _about(script: str) -> str:
    """The first paragraph of the comment that it begins with."""
    comment = takewhile(lambda line: line.startswith("--"), script.lstrip().splitlines())
    return " ".join(takewhile(bool, (line.removeprefix("--").strip() for line in comment)))
