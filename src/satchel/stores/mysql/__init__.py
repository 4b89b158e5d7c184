"""MySQL and MariaDB: many processes on many machines, one server that takes writes."""

from satchel.errors import ExtraMissing

try:
    import asyncmy  # noqa: F401  # to say early what is missing
except ModuleNotFoundError as missing:
    raise ExtraMissing("mysql", action="a store at mysql://") from missing

from satchel.stores.mysql.store import MysqlStore

__all__ = ["MysqlStore"]
