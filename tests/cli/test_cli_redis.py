"""The operator's commands on Redis."""

from __future__ import annotations

import pytest

from tests.cli.shell import STORE, Cli, Work
from tests.servers.redis import emptied_database, server


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return emptied_database("cli", once_for=request.node.nodeid)


def test_a_server_is_examined_and_its_schema_told(cli: Cli, url: str) -> None:
    told = cli("migrate", "status", "--store", url, "--json")
    assert (told.code, told.json["found"], told.json["up_to_date"]) == (0, 0, False)
    assert cli("migrate", "sql", "--store", url).text.count("EVAL ") == 1
    assert cli("migrate", "up", "--store", url).code == 0
    answer = cli("doctor", "--store", url, "--json")
    assert answer.code == 0, answer.text
    found = {one["what"].split(" ")[0].partition("=")[0]: one["level"] for one in answer.json["findings"]}
    assert set(found.values()) == {"ok"}
    assert {"schema", "durability", "appendfsync", "maxmemory-policy", "clock"} <= set(found)
    means = {one["name"]: one["means"] for one in answer.json["capabilities"] if one["value"] is False}
    assert set(means) == {"prefix_after_failover", "erases_traces"}
    assert all(means.values())


def test_what_would_lose_writes_is_an_error_with_the_line_that_mends_it(cli: Cli, url: str) -> None:
    assert cli("migrate", "up", "--store", url).code == 0
    server().ask("CONFIG", "SET", "appendfsync", "everysec")
    try:
        refused = cli("doctor", "--store", url, "--json")
        answer = cli("doctor", "--store", url + "?durability=relaxed", "--json")
    finally:
        server().ask("CONFIG", "SET", "appendfsync", "always")
    assert refused.code == answer.code == 1
    for told in (refused, answer):
        (worst,) = [one for one in told.json["findings"] if one["level"] == "error"]
        assert worst["mend"].startswith("CONFIG SET appendfsync always")


def test_to_redis_and_back_is_the_same(cli: Cli, work: Work, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SATCHEL_TENANT")
    assert cli("copy", "--from", STORE, "--to", url).code == 0
    answer = cli("copy", "--from", url, "--to", "sqlite:///other.db", "--json")
    assert (answer.code, answer.json["problems"], answer.json["verified"]["equal"]) == (0, [], True)
