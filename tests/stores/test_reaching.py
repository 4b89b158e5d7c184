"""What is heard of a store that cannot be reached: the same words on every store, what mends it, and never a password."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable

import asyncpg
import pytest

import satchel
from satchel import InvalidInput, StoreUnavailable
from satchel.servers import RedisServer
from satchel.stores.postgres.address import parse_address
from tests.servers import mysql, postgres, redis

STORES = ("postgres", "mysql", "redis")
SERVERS: dict[str, Callable[[], str]] = {
    "postgres": lambda: postgres.server().url(),
    "mysql": lambda: mysql.server().url(),
    "redis": lambda: redis.server().url(),
}
PASSWORD = "hunter2"  # of nobody


async def refusal(url: str) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as refused:
        await satchel.open(f"{url}{'&' if '?' in url else '?'}connect_timeout=2").open()
    for shown in (str(refused.value), repr(refused.value), refused.value.mend):
        assert PASSWORD not in shown
    assert refused.value.mend
    assert refused.value.mend in str(refused.value)
    return refused.value


@pytest.mark.parametrize("store", STORES)
async def test_a_database_that_is_not_there_is_named(store: str) -> None:
    name = "999" if store == "redis" else "nodb"
    told = await refusal(SERVERS[store]().rpartition("/")[0] + f"/{name}")
    assert told.reason == f"there is no database '{name}'"
    assert ("databases 1000" if store == "redis" else "CREATE DATABASE") in told.mend


@pytest.mark.parametrize("store", STORES)
async def test_an_account_that_is_refused_is_told_so(store: str) -> None:
    scheme, _, rest = SERVERS[store]().partition("://")
    told = await refusal(f"{scheme}://nobody:{PASSWORD}@{rest.rpartition('@')[2]}")
    assert told.reason == "the password (or user) was refused"
    assert "%40" in told.mend


@pytest.mark.parametrize("database", [0, 1])
async def test_a_password_that_is_missing_is_told_so(database: int) -> None:
    redis.server()  # installs, or skips
    with RedisServer() as locked:
        assert locked.ask("CONFIG", "SET", "requirepass", PASSWORD).startswith(b"+OK")
        told = await refusal(locked.url(database))
        assert told.reason == "the password (or user) was refused; the address gives no password"
        async with satchel.open(f"redis://:{PASSWORD}@127.0.0.1:{locked.port}/{database}"):
            pass


async def test_a_user_who_may_not_make_the_tables_is_told_so_and_the_operator_before() -> None:
    url = postgres.server().create_database("tables_of_others")
    connection = await asyncpg.connect(url)
    await connection.execute(
        "DROP ROLE IF EXISTS bob; CREATE ROLE bob LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"
    )
    await connection.close()
    bobs = url.replace("satchel@", "bob@")
    told = await refusal(bobs)
    assert told.reason == "the user lacks rights that the store needs"
    assert "GRANT" in told.mend
    store = satchel.open(bobs).store
    assert "privilege CREATE on the schema=no" in [one.what for one in await store.check() if one.level == "warning"]
    url = mysql.server().create_database("tables_of_others")
    shell = mysql.server().shell("tables_of_others")
    shell.communicate(b"CREATE OR REPLACE USER bob@127.0.0.1; GRANT SELECT ON tables_of_others.* TO bob@127.0.0.1;")
    told = await refusal(f"{url.replace('satchel@', 'bob@')}?durability=relaxed")
    assert told.reason == "the user lacks rights that the store needs"
    assert "GRANT" in told.mend


async def test_a_database_that_the_user_may_not_use_is_named() -> None:
    url = mysql.server().create_database("closed")
    shell = mysql.server().shell("closed")
    shell.communicate(f"CREATE OR REPLACE USER ada@127.0.0.1 IDENTIFIED BY '{PASSWORD}';".encode(), timeout=30)
    told = await refusal(url.replace("satchel@", f"ada:{PASSWORD}@"))
    assert told.reason == "the user may not use the database 'closed'"
    assert "GRANT" in told.mend
    url = postgres.server().create_database("closed")
    connection = await asyncpg.connect(url)
    await connection.execute(
        "DROP ROLE IF EXISTS ada; CREATE ROLE ada LOGIN; REVOKE CONNECT ON DATABASE closed FROM PUBLIC"
    )
    await connection.close()
    told = await refusal(url.replace("satchel@", f"ada:{PASSWORD}@"))
    assert told.reason == "the user may not use the database 'closed'"
    assert "GRANT" in told.mend


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis", "redis+cluster"])
async def test_where_nobody_listens_and_what_is_no_host_is_named(scheme: str) -> None:
    database = "0" if scheme == "redis" else "" if scheme == "redis+cluster" else "d"
    for host in ("127.0.0.1", "localhost"):  # the latter may have two addresses
        told = await refusal(f"{scheme}://ada:{PASSWORD}@{host}:1/{database}")
        assert told.reason == f"nobody listens at {host}:1"
        assert "start the server" in told.mend
    for host in ("nohost.invalid", "no..host"):
        told = await refusal(f"{scheme}://ada:{PASSWORD}@{host}/{database}")
        assert told.reason == f"host not found: {host}"
        assert f"getent hosts {host}" in told.mend


async def test_a_socket_at_which_nobody_listens_is_named() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a socket's path is short  # a folder of our own
        await no_socket(f"{folder}/none", "nobody listens at {path}")
        await no_socket(f"{folder}/{'n' * 120}", "the path of the socket is longer than this system takes: {path}")


async def no_socket(path: str, told: str) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        await satchel.open(f"mysql://ada@localhost/d?unix_socket={path}").open()
    assert refused.value.reason == told.format(path=path)


@pytest.mark.parametrize(
    ("store", "option"), [("postgres", "sslmode=require"), ("mysql", "tls=on")], ids=["postgres", "mysql"]
)
async def test_a_server_that_speaks_no_tls_is_named(store: str, option: str) -> None:
    url = SERVERS[store]()
    with pytest.raises(StoreUnavailable) as refused:
        await satchel.open(f"{url}?{option}").open()
    place = url.rpartition("@")[2].partition("/")[0]
    assert refused.value.reason == f"{place} does not speak TLS, or not as we do"


@pytest.mark.parametrize("url", ["postgresql://h:{}/d", "postgresql://g,h:{}/d", "mysql://h:{}/d", "redis://h:{}/0"])
def test_a_port_that_is_none_is_refused_with_the_address(url: str) -> None:
    for port in ("abc", "0", "65536", "-1", "99999999999"):
        with pytest.raises(InvalidInput, match="the port must be a whole number from 1 to 65535"):
            satchel.open(url.format(port))
    bare_slash = url.replace("h:{}", "ada:hunter2/3@h:1")
    with pytest.raises(InvalidInput) as refused:
        satchel.open(bare_slash)
    assert "hunter" not in str(refused.value)


async def test_a_file_that_the_address_names_and_that_is_not_there_is_told(tmp_path: object) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        await satchel.open(f"postgresql://h/d?sslmode=verify-full&sslrootcert={tmp_path}/none").open()
    assert refused.value.reason == "a file that the address names is not there"


@pytest.mark.parametrize("url", ["postgresql://h/d", "mysql://h/d", "redis://h/0"])
def test_a_slip_in_an_option_is_refused_with_those_that_there_are(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"unknown option 'pool_szie'; there are .*pool_size, pool_wait") as refused:
        satchel.open(f"{url}?pool_szie=3")
    assert refused.value.field == "url"


async def test_settings_of_a_postgres_server_may_stand_in_the_address_and_only_such() -> None:
    url = postgres.server().url()
    connection = await asyncpg.connect(url)
    names = [row[0] for row in await connection.fetch("SELECT name FROM pg_settings")]
    await connection.close()
    assert len(names) > 300
    for name in ("my.tenant", "options", *names):
        parse_address(f"{url}?{name}=1")
    for unknown in ("lord_of_the_pools=3", "max_connections=3", "work_mem=much"):
        name = unknown.partition("=")[0]
        store = satchel.open(f"{url}?{unknown}")
        for ask in (store.store.schema, store.open):
            with pytest.raises(InvalidInput, match=f"not take .*: '{name}'; there are .*pool_size"):
                await asyncio.wait_for(ask(), 10)
    async with satchel.open(f"{postgres.new_database()}?work_mem=8MB&application_name=mine&my.tenant=x"):
        pass
