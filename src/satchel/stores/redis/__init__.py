"""Redis: many processes on many machines, one server that takes writes, or a cluster that shares the sessions out."""

from satchel.errors import ExtraMissing

try:
    import redis  # noqa: F401  # to say early what is missing
except ModuleNotFoundError as missing:
    raise ExtraMissing("redis", action="a store at redis://") from missing

from satchel.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
