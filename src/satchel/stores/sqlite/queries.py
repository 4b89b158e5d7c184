"""The statements of queries.sql, by name."""

from __future__ import annotations

from importlib.resources import files


def parse(text: str) -> dict[str, str]:
    """Blocks of ``-- name: …``; comment lines stay out, so that a statement is the same text wherever it is used."""
    found: dict[str, list[str]] = {}
    block: list[str] = []
    for line in text.splitlines():
        if line.startswith("-- name: "):
            block = found[line.removeprefix("-- name: ").strip()] = []
        elif line.strip() and not line.startswith("--"):
            block.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


SQL = parse(files(__package__).joinpath("queries.sql").read_text("utf-8"))
