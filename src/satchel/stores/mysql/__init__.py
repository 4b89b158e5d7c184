"""MySQL and MariaDB: many processes on many machines, one server that takes writes."""

try:
    import asyncmy  # noqa: F401  # to say early what is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("a store at mysql:// needs asyncmy: pip install 'satchel[mysql]'") from error

from satchel.stores.mysql.store import MysqlStore

__all__ = ["MysqlStore"]
