"""`satchel config`, and what `serve` and `worker` make of wrong settings, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.http.settings import load_settings, shown
from tests.cli.shell import Cli


def test_config_prints_what_holds_and_can_be_read_again(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SATCHEL_TENANT")
    printed = cli("config")
    assert printed.code == 0
    assert 'idle = "30d"' in printed.text
    Path("satchel.toml").write_bytes(printed.out)
    assert shown(load_settings(environment={})) == shown(
        load_settings(environment={"SATCHEL_STORE": "sqlite:///agent.db"})
    )
    assert cli("config").out == printed.out
    assert printed.err == ""  # SATCHEL_STORE is known


def test_a_variable_that_there_is_not_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SATCHEL_IDEL", "SATCHEL_JSON", "SATCHEL_LIMITS_DEPTH", "SATCHEL_UPDATED_AFTER", "SATCHEL_USER"):
        monkeypatch.setenv(name, "3" if name != "SATCHEL_JSON" else "")
    said = "the variable SATCHEL_IDEL is not known and is ignored; did you mean SATCHEL_IDLE?"
    assert cli("config").err == f"satchel: {said}\n"
    as_json = cli("config", "--json")
    assert f'"message":"{said}"' in as_json.err
    assert as_json.json["policy"]["idle"] == "30d"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "--port", "99999"), "server.port: must be a whole number up to 65535 (said by --port)"),
        (("serve", "--concurrency", "0"), "server.concurrency: must be a whole number from 1 (said by --concurrency)"),
        (("serve", "--lease", "0.1"), "server.lease: must be a number from 0.5 (said by --lease)"),
        (
            ("serve", "--drain-seconds", "-1"),
            "server.drain_seconds: must be a number from 0.0 (said by --drain-seconds)",
        ),
        (("serve", "--idle", "soon"), "(said by --idle)"),
        (("serve", "--host", "nosuch.invalid"), "server.host: cannot listen on 'nosuch.invalid': "),
        (
            ("worker", "--agent", "tests.http.agents:echo", "--lease", "0.1"),
            "lease: must be seconds, from 0.5 to 86400: ",
        ),
        (("worker", "--agent", "tests.http.agents:echo", "--grace", "-1"), "grace: must be seconds, from 0 to 86400"),
    ],
)
def test_a_wrong_flag_is_named_with_code_2_before_a_store_is_made(
    cli: Cli, arguments: tuple[str, ...], sentence: str
) -> None:
    refused = cli(*arguments)
    assert (refused.code, sentence in refused.err) == (2, True), refused.err
    assert not Path("agent.db").exists()


def test_what_is_wrong_with_a_file_names_the_file(cli: Cli) -> None:
    Path("other.toml").write_text("[server]\nprot = 1\n")
    refused = cli("config", "--config", "other.toml")
    assert refused.code == 2
    assert refused.err == "satchel: server.prot: is unknown; did you mean server.port? (said in other.toml)\n"
