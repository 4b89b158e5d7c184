"""PostgreSQL: many processes on many machines, one server that takes writes."""

try:
    import asyncpg  # noqa: F401  # to say early what is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("a store at postgresql:// needs asyncpg: pip install 'satchel[postgres]'") from error

from satchel.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
