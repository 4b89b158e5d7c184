"""`satchel doctor` of a PostgreSQL store with several hosts, and of one that takes no writes."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from satchel.servers import PostgresServer
from tests.cli.shell import Cli
from tests.servers.postgres import new_database


async def ask(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


def findings(cli: Cli, *, store: str, code: int) -> dict[str, Any]:
    """The level and the reason, by what each is about."""
    answer = cli("doctor", "--json", "--store", store)
    assert answer.code == code, answer.err or answer.text
    assert "hunter2" not in answer.text + answer.err
    return {one["what"]: (one["level"], one["why"]) for one in answer.json["findings"]}


def test_doctor_tells_of_each_host_what_it_is(cli: Cli) -> None:
    primary = new_database()
    here, _, name = primary.rpartition("@")[2].partition("/")
    with PostgresServer() as standby:
        there = f"127.0.0.1:{standby.port}"
        assert cli("migrate", "up", "--store", standby.create_database(name)).code == 0
        standby.stand_by()
        found = findings(cli, store=standby.url(name), code=1)
        assert found["pg_is_in_recovery=on"] == ("error", "it is a standby: every write is refused")
        account = "postgresql://satchel:hunter2@"
        found = findings(cli, store=f"{account}127.0.0.1:1,{there}/{name}?connect_timeout=1", code=1)
        assert found["connection=store_unavailable"][0] == "error"
        assert "no server takes writes now" in found["connection=store_unavailable"][1]
        assert found["host 127.0.0.1:1=away"][0] == "warning"
        assert found[f"host {there}=standby"][0] == "ok"
        assert cli("migrate", "up", "--store", primary).code == 0
        found = findings(cli, store=f"{account}{there},{here}/{name}", code=1)  # the server for tests has fsync off
        assert found[f"host {there}=standby"][0] == found[f"host {here}=primary"][0] == "ok"
        assert found["fsync=off"][0] == "error"


def test_doctor_refuses_a_database_that_refuses_writes(cli: Cli) -> None:
    url = new_database()
    assert cli("migrate", "up", "--store", url).code == 0
    asyncio.run(ask(url, f'ALTER DATABASE "{url.rpartition("/")[2]}" SET default_transaction_read_only = on'))
    assert findings(cli, store=url, code=1)["default_transaction_read_only=on"] == ("error", "every write is refused")
