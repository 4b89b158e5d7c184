"""PostgreSQL: many processes on many machines, one server that takes writes."""

from satchel.errors import ExtraMissing

try:
    import asyncpg  # noqa: F401  # to say early what is missing
except ModuleNotFoundError as missing:
    raise ExtraMissing("postgres", action="a store at postgresql://") from missing

from satchel.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
