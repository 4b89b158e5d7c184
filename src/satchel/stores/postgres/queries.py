"""The statements of queries.sql, by name."""

from __future__ import annotations

from importlib.resources import files

from satchel.stores.sql.queries import parse

SQL = parse(files(__package__).joinpath("queries.sql").read_text("utf-8"))
