"""Files of SQL as statements by name."""

from __future__ import annotations


def parse(text: str) -> dict[str, str]:
    """Blocks of ``-- name: …``, with the blocks of ``-- part: …`` put in where ``{…}`` names them. Comment lines stay out, so
    that a statement is the same text wherever it is used."""
    parts: dict[str, list[str]] = {}
    statements: dict[str, list[str]] = {}
    block: list[str] = []
    for line in text.splitlines():
        if line.startswith("-- part: "):
            block = parts[line.removeprefix("-- part: ").strip()] = []
        elif line.startswith("-- name: "):
            block = statements[line.removeprefix("-- name: ").strip()] = []
        elif line.strip() and not line.lstrip().startswith("--"):
            block.append(line)
    return {name: _complete("\n".join(lines).rstrip(";"), parts) for name, lines in statements.items()}


def _complete(statement: str, parts: dict[str, list[str]]) -> str:
    for name, lines in parts.items():
        statement = statement.replace(f"{{{name}}}", "\n".join(lines))
    return statement
