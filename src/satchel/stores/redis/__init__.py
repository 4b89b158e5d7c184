"""Redis: many processes on many machines, one server that takes writes, or a cluster that shares the sessions out."""

try:
    import redis  # noqa: F401  # to say early what is missing
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("a store at redis:// needs redis-py: pip install 'satchel[redis]'") from error

from satchel.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
