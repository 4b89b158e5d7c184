"""``satchel.open(url)``: a store by its address."""

from __future__ import annotations

from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.domain.policy import DEFAULT_POLICY, Policy
from satchel.domain.tokens import TokenCounter
from satchel.errors import InvalidInput
from satchel.opened import OpenStore
from satchel.store import Store
from satchel.stores.memory import MemoryStore

SCHEMES = (
    "memory:",
    "sqlite:///",
    "postgresql://",
    "mysql://",
    "redis://",
    "rediss://",
    "redis+cluster://",
    "rediss+cluster://",
)


def open(
    url: str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    policy: Policy | None = None,
    count_tokens: TokenCounter | None = None,
) -> OpenStore:
    """The store at ``url``, to be opened by ``async with`` (or ``await store.open()``).

    ``memory:`` is this process's own and gone with it. ``sqlite:///agent.db`` is a file relative to the working folder,
    ``sqlite:////var/lib/agent.db`` an absolute one; it is created if it is missing. ``postgresql://user@host/database`` is
    a database on a server (extra ``postgres``); of several hosts, ``host1,host2:5433``, the one that takes writes is used, and
    ``?pool_size=8&pool_wait=5`` bound its connections and the seconds that a call waits for one.
    ``mysql://user@host/database`` is a database on MySQL or MariaDB (extra ``mysql``), with the same two options.
    ``redis://host:6379/0`` (``rediss://`` with TLS, ``redis+cluster://host1,host2``; extra ``redis``) is a server, or a cluster,
    whose settings make it durable; with ``?durability=relaxed`` also another one. ``limits`` and ``policy`` hold
    for all managers of this store, and so does ``count_tokens``: from a text to the tokens that a model counts (left out, they
    are estimated). Raises InvalidInput for an address that nothing here can open.
    """
    return OpenStore(
        store_at(url), limits=limits, policy=(policy or Policy()).over(DEFAULT_POLICY), count_tokens=count_tokens
    )


def store_at(url: str) -> Store:
    if url == "memory:":
        return MemoryStore()
    if url.startswith("sqlite:///"):
        from satchel.stores.sqlite import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"))
    scheme = url.split(":", 1)[0][:20]
    if scheme in ("postgresql", "postgres"):
        from satchel.stores.postgres import PostgresStore

        return PostgresStore(url)
    if scheme in ("mysql", "mariadb"):
        from satchel.stores.mysql import MysqlStore

        return MysqlStore(url)
    if scheme in ("redis", "rediss", "redis+cluster", "rediss+cluster"):
        from satchel.stores.redis import RedisStore

        return RedisStore(url)
    if scheme == "sqlite":
        raise InvalidInput("needs three slashes before the file's name: sqlite:///agent.db", field="url")
    raise InvalidInput(f"cannot open {scheme!r}; it must begin with one of {', '.join(SCHEMES)}", field="url")
