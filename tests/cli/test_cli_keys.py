"""``satchel keys`` and ``satchel config``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.shell import STORE, Cli, command

WHERE = ("--store", STORE)


@pytest.fixture(autouse=True)
def no_tenant(shell: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are of all tenants here: none is in the variables."""
    monkeypatch.delenv("SATCHEL_TENANT")


def test_a_key_is_printed_alone_listed_and_revoked(cli: Cli) -> None:
    made = cli("keys", "create", *WHERE, "--tenant", "acme", "--role", "agent", "--acting-for", "ada")
    assert made.code == 0
    assert re.fullmatch(r"satchel_[a-z2-7]{16}_[a-z2-7]{52}\n", made.text)
    assert made.err == f"satchel: made a new store at {Path('agent.db').absolute()}\n"
    key_id, secret = made.text.strip().split("_")[1:]
    cli("keys", "create", *WHERE, "--tenant", "umbrella", "--role", "admin", "--expires-in", "90d")

    listed = cli("keys", "list", *WHERE, "--json")
    assert [(key["tenant_id"], key["role"], key["acting_for"]) for key in listed.json] == [
        ("acme", "agent", "ada"),
        ("umbrella", "admin", None),
    ]
    assert listed.json[1]["expires_at"] is not None
    assert secret not in listed.text
    assert key_id in cli("keys", "list", *WHERE, "--tenant", "acme").text

    assert cli("keys", "revoke", key_id, *WHERE, "--tenant", "umbrella").code == 3
    assert cli("keys", "revoke", key_id, *WHERE).code == 0
    assert cli("keys", "revoke", key_id, *WHERE).code == 3
    assert [key["tenant_id"] for key in cli("keys", "list", *WHERE, "--json").json] == ["umbrella"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--tenant", "acme", "--role", "user"),
        ("--tenant", "", "--role", "admin"),
        ("--tenant", "acme", "--role", "operator"),
        ("--tenant", "acme", "--role", "user", "--user", ""),
        ("--tenant", "acme", "--role", "user", "--user", "ada", "--acting-for", "bob"),
        ("--tenant", "acme", "--role", "admin", "--expires-in", "soon"),
        ("--role", "admin"),
    ],
)
def test_a_key_for_nobody_is_not_made(cli: Cli, flags: tuple[str, ...]) -> None:
    refused = cli("keys", "create", *WHERE, *flags)
    assert (refused.code, refused.out) == (2, b"")


def test_keys_of_a_store_that_is_not_there_are_not_made_by_looking(cli: Cli) -> None:
    assert cli("keys", "list", *WHERE).code == 5
    assert cli("keys", "list", "--store", "memory:").code == 2


def test_a_server_on_keys_that_it_cannot_show_says_where_they_were_shown_and_how_to_make_another(cli: Cli) -> None:
    cli("keys", "create", *WHERE, "--tenant", "acme", "--role", "admin", "--user", "root")
    pasted, log = started("serve", *WHERE, "--no-agents", "--port", "0")
    assert "Bearer $KEY" in pasted
    (said,) = [line for line in log.splitlines() if "$KEY" in line]
    assert "keys list" not in said
    assert "a key that you were given when it was made" in said
    assert f"satchel keys create --store {STORE} --tenant acme --role user --user ada" in said


@pytest.mark.parametrize(
    ("agents", "message"),
    [((), "帮我修复启动失败。"), (("--agent", "one_agent:talk"), "hello"), (("--no-agents",), "hello")],
)
def test_the_line_to_try_a_server_with_says_what_its_agents_understand(
    cli: Cli, agents: tuple[str, ...], message: str
) -> None:
    Path("one_agent.py").write_text("async def talk(ctx): ...\n")
    pasted, _ = started("serve", *WHERE, *agents, "--port", "0")
    assert f'"message": "{message}"}}' in pasted


def started(*arguments: str) -> tuple[str, str]:
    """What a server prints at its start: the line to paste, and its log until it ended."""
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    process.terminate()
    _, log = process.communicate(timeout=30)
    return line, log


def test_config_prints_what_holds(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SATCHEL_LIMITS_DEPTH", "9")
    shown = cli("config")
    assert "[server]" in shown.text
    assert "depth = 9" in shown.text
    flagged = cli("config", "--json", "--store", "mysql://root:hush@db/x", "--port", "9", "--idle=2h", "--quiet").json
    server = flagged["server"]
    assert (server["store"], server["port"], server["access_log"]) == ("mysql://root:***@db/x", 9, False)
    assert (flagged["policy"]["idle"], flagged["limits"]["depth"]) == ("2h", 9)
    monkeypatch.setenv("SATCHEL_IDLE", "soon")
    assert "(said by the variable SATCHEL_IDLE)" in cli("config").err
    assert "(said by --idle)" in cli("config", "--idle", "later").err
    monkeypatch.delenv("SATCHEL_IDLE")
    monkeypatch.setenv("SATCHEL_PORT", "x")
    wrong = cli("config")
    assert wrong.code == 2
    assert "SATCHEL_PORT" in wrong.err
