"""The statements of queries.sql, by name."""

from __future__ import annotations

from importlib.resources import files

from satchel.stores.mysql.literals import Statement
from satchel.stores.sql.queries import parse

SQL = {
    name: Statement(text) for name, text in parse(files(__package__).joinpath("queries.sql").read_text("utf-8")).items()
}
