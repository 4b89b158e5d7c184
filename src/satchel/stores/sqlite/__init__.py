"""Sessions in one SQLite file, shared by the processes of one machine."""

from satchel.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
