"""`satchel doctor` of a database that is still empty, or that cannot be reached: what somebody meets first."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from satchel.servers import RedisServer
from tests.cli.shell import Answer, Cli, make_session
from tests.servers import mysql, postgres, redis
from tests.servers.postgres import ask


@pytest.fixture(scope="module")
def forgetful() -> Iterator[RedisServer]:
    redis.server()  # installs, or skips
    with RedisServer(settings={"appendonly": "no"}) as made:
        yield made


def durable(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in answer.json["capabilities"] if one["name"] == "durable")
    return found


@pytest.mark.parametrize("kind", ["postgres", "mysql", "redis"])
def test_settings_that_lose_writes_are_told_before_there_is_a_schema(
    cli: Cli, forgetful: RedisServer, kind: str
) -> None:
    weakness, url = {
        "postgres": ("fsync=off", postgres.new_database),
        "mysql": ("innodb_flush_log_at_trx_commit=0", lambda: mysql.new_database().partition("?")[0]),
        "redis": ("appendonly no", forgetful.url),
    }[kind]
    store = url()
    answer = cli("doctor", "--store", store, "--json")
    assert answer.code == 1
    found = {one["what"]: one for one in answer.json["findings"]}
    assert found[weakness]["level"] == "error"
    assert found[weakness]["mend"]
    assert (found["schema=0"]["level"], found["schema=0"]["mend"]) == (
        "warning",
        f"satchel migrate up --store {quote(store)}",
    )
    assert durable(answer)["value"] is False
    assert weakness in durable(answer)["means"]
    text = cli("doctor", "--store", store).text
    assert "no       durable: not with " in text
    assert "yes      durable" not in text
    assert cli("migrate", "status", "--store", store, "--json").json["found"] == 0  # nothing was changed


def test_durable_is_said_of_an_empty_database_whose_settings_keep_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.stores.sqlite.checking.kind_of_mount", lambda _: "ext4")  # the folder may be in memory
    Path("agent.db").touch(mode=0o600)
    for store in ("sqlite:///agent.db", redis.emptied_database("doctor_first", once_for=object())):
        answer = cli("doctor", "--store", store, "--json")
        assert answer.code == 0
        assert any(one["what"] == "schema=0" for one in answer.json["findings"])
        assert durable(answer)["value"] is True
        assert "yes      durable\n" in cli("doctor", "--store", store).text
    assert Path("agent.db").stat().st_size == 0


def test_memory_that_passes_for_a_disk_is_not_durable(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    make_session()
    monkeypatch.setattr("satchel.stores.sqlite.checking.kind_of_mount", lambda _: "tmpfs")
    assert durable(cli("doctor", "--json")) == {
        "name": "durable",
        "value": False,
        "means": "not with file system=tmpfs",
    }


def test_a_database_of_another_encoding_is_an_error_before_it_has_tables(cli: Cli) -> None:
    server = postgres.server()
    asyncio.run(ask(server.url(), "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0"))
    answer = cli("doctor", "--store", server.url("latin"), "--json")
    assert "server_encoding=LATIN1" in [one["what"] for one in answer.json["findings"] if one["level"] == "error"]


def test_room_for_connections_is_told_as_the_server_tells_it(cli: Cli) -> None:
    url = postgres.new_database()
    most = asyncio.run(ask(url, "SHOW max_connections"))
    assert f"max_connections={most} (of which 3 are reserved): room for " in cli("doctor", "--store", url).text


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("break_it", "why", "mend"),
    [
        (lambda path: path.write_bytes(b"no database, ever" * 100), "is no SQLite database", "another file"),
        (corrupt, "is damaged", ".recover"),
    ],
    ids=["no database", "damaged"],
)
def test_a_file_that_is_no_sound_database_is_told_with_what_mends_it(
    cli: Cli, break_it: Callable[[Path], object], why: str, mend: str
) -> None:
    make_session()
    for left in Path.cwd().glob("agent.db-*"):
        left.unlink()
    break_it(Path("agent.db"))
    Path("agent.db").chmod(0o644)
    answer = cli("doctor", "--json")
    assert answer.code == 1
    first = answer.json["findings"][0]
    assert first["what"] == "connection=store_corrupt"
    assert f"agent.db {why}" in first["why"]
    assert mend in first["mend"]
    assert durable(answer)["value"] is not True
    assert ("chmod 600" in answer.text) is (why == "is damaged")  # a file of somebody else's stays as they want it


def test_the_line_that_makes_the_tables_names_the_store_without_its_password(cli: Cli) -> None:
    account, at, place = postgres.new_database().partition("@")
    answer = cli("doctor", "--store", f"{account}:hush{at}{place}")
    assert "hush" not in answer.text
    assert f"mend: satchel migrate up --store '{account}:***{at}{place}'\n" in answer.text


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis"])
def test_the_line_that_mends_an_address_fits_what_is_wrong_with_it(cli: Cli, scheme: str) -> None:
    server = {"postgresql": postgres, "mysql": mysql, "redis": redis}[scheme].server()
    place = f"{scheme}://satchel@127.0.0.1:{server.port}" if scheme != "redis" else f"redis://127.0.0.1:{server.port}"
    none = "999" if scheme == "redis" else "nodb"
    cases = {
        f"{place}/{none}": (f"there is no database '{none}'", "name another in the store's address"),
        f"{scheme}://nobody:hunter2@127.0.0.1:{server.port}/0": ("the password (or user) was refused", "%40"),
        f"{scheme}://nobody:hunter2@127.0.0.1:1/0?connect_timeout=1": ("nobody listens at 127.0.0.1:1", "start the"),
        f"{scheme}://nobody:hunter2@nohost.invalid/0?connect_timeout=1": ("host not found: nohost.invalid", "getent"),
    }
    for url, (why, mend) in cases.items():
        answer = cli("doctor", "--store", url, "--json")
        assert answer.code == 1
        (only,) = answer.json["findings"]
        assert only["what"] == "connection=store_unavailable"
        assert only["why"] == f"nothing can be stored or read: {why}"
        assert mend in only["mend"]
        assert durable(answer)["value"] is None
        assert "hunter2" not in answer.text + answer.err
        assert cli("sessions", "list", "--store", url).code == 5
    assert "unknown  durable: the settings" in cli("doctor", "--store", url).text


def test_a_slip_in_an_option_of_the_address_is_the_command_lines_fault(cli: Cli) -> None:
    for url in ("postgresql://h/d", "mysql://h/d", "redis://h/0"):
        answer = cli("sessions", "list", "--store", f"{url}?pool_szie=3")
        assert answer.code == 2
        assert "'pool_szie'" in answer.err
        assert "pool_size" in answer.err


@pytest.mark.parametrize("kind", ["postgres", "mysql", "redis", "sqlite"])
def test_what_a_step_is_about_is_said_to_the_end(cli: Cli, kind: str) -> None:
    stores: dict[str, Callable[[], str]] = {
        "postgres": postgres.new_database,
        "mysql": mysql.new_database,
        "redis": lambda: redis.emptied_database("doctor_first", once_for=object()),
        "sqlite": lambda: "sqlite:///agent.db",
    }
    store = stores[kind]()
    assert cli("migrate", "up", "--store", store).code == 0
    for step in cli("migrate", "status", "--store", store, "--json").json["steps"]:
        assert step["about"].endswith(".")
        assert "--" not in step["about"]


def test_the_commands_for_redis_can_be_given_to_its_shell(cli: Cli) -> None:
    url = redis.emptied_database("doctor_first", once_for=object())
    printed = cli("migrate", "sql", "--store", url)
    assert "step 1: 0001_initial" in printed.err
    port, _, number = url.rpartition(":")[2].partition("/")
    shell = ["redis-cli", "-p", port, "-n", number]
    done = subprocess.run(shell, input=printed.out, capture_output=True, check=True, timeout=30)
    assert done.stdout.split() == [b"OK"]
    assert done.stderr == b""
    assert cli("migrate", "status", "--store", url).text.startswith("schema 1, up to date")
    again = cli("migrate", "sql", "--store", url)
    assert (again.out, "nothing to do" in again.err) == (b"", True)
