"""Settings: the file, then the variables, then the flags; what is wrong is named."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from satchel.domain.policy import DEFAULT_POLICY
from satchel.errors import InvalidInput
from satchel.http.settings import as_duration, duration, load_settings, shown


def test_the_later_wins(tmp_path: Path) -> None:
    path = tmp_path / "satchel.toml"
    path.write_text('[server]\nport = 1\nhost = "file"\nconcurrency = 3\n[limits]\ndepth = 9\n[policy]\nidle = "1h"\n')
    environment = {"SATCHEL_HOST": "variable", "SATCHEL_PORT": "2", "SATCHEL_LIMITS_NODES": "77", "SATCHEL_IDLE": "2h"}
    settings = load_settings({"server.port": 4, "server.store": None}, path=path, environment=environment)
    assert (settings.server.port, settings.server.host, settings.server.concurrency) == (4, "variable", 3)
    assert (settings.limits.depth, settings.limits.nodes) == (9, 77)
    assert settings.session_policy().idle == timedelta(hours=2)
    assert load_settings(environment={}).server.port == 8321


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("2s", 2), ("500ms", 0.5), ("1.5h", 5400), ("30d", 2_592_000), ("90", 90), (5, 5), (0.5, 0.5)],
)
def test_a_duration_is_a_number_and_a_letter(written: str | float, seconds: float) -> None:
    assert duration(written, field="idle") == timedelta(seconds=seconds)


def test_never_is_no_duration() -> None:
    assert duration("never", field="idle") is None


@pytest.mark.parametrize("written", ["2s", "500ms", "90m", "12h", "30d", "1.000001s", "never"])
def test_a_duration_is_shown_as_it_is_written(written: str) -> None:
    holds = duration(written, field="idle")
    assert as_duration(None if holds is None else holds // timedelta(microseconds=1)) == written


def test_what_is_shown_is_what_holds() -> None:
    settings = load_settings(environment={"SATCHEL_RETENTION": "90m", "SATCHEL_CONTEXT_WINDOW": "128000"})
    assert shown(settings)["policy"] == {
        "idle": "30d",
        "max_lifetime": "never",
        "retention": "90m",
        "restore_closed": "owner",
        "restore_expired": "owner",
        "context_window": 128_000,
        "context_share": 0.8,
    }


@pytest.mark.parametrize("written", ["", "2 weeks", "-1s", "s", "1s2m", True, "9" * 30 + "d"])
def test_what_is_no_duration_is_refused(written: object) -> None:
    with pytest.raises(InvalidInput) as refused:
        duration(written, field="policy.idle")
    assert refused.value.field == "policy.idle"


@pytest.mark.parametrize(
    ("text", "environment", "named"),
    [
        (
            "[server]\nprot = 1\n",
            {},
            r"^server\.prot: is unknown; did you mean server\.port\? \(said in .*satchel\.toml\)$",
        ),
        ("[server]\nport = 'x'\n", {}, r"^server\.port: must be a whole number, not text \(said in .*satchel\.toml\)$"),
        ("[server]\nport = 1\n", {"SATCHEL_PORT": "99999"}, "^SATCHEL_PORT: must be a whole number up to 65535$"),
        ("server = 1\n", {}, r"^server: must be a table, not a whole number"),
        ("server = 1\n", {"SATCHEL_PORT": "1"}, r"^server: must be a table"),
        ("[sever]\n", {}, r"^sever: is unknown; did you mean server\?"),
        ("[limits]\ndepht = 3\n", {}, r"^limits\.depht: is unknown; did you mean limits\.depth\?"),
        ("[limits]\ndepth = 0\n", {}, r"^limits\.depth: must be 1 or more \(said in .*satchel\.toml\)$"),
        ("[server]\nlease = 0.1\n", {}, r"^server\.lease: must be a number from 0\.5"),
        ("[jwt]\nissuer = 'x'\n", {}, r"^jwt\.audience: is missing \(said in .*satchel\.toml\)$"),
        ("[policy]\nidel = '1h'\n", {}, r"^policy\.idel: is unknown; did you mean idle\? \(said in .*satchel\.toml\)$"),
        ("[policy]\nidle = 'soon'\n", {}, r"^policy\.idle: .*\(said in .*satchel\.toml\)$"),
        ("", {"SATCHEL_CONTEXT_WINDOW": "many"}, "SATCHEL_CONTEXT_WINDOW"),
        ("not toml", {}, "satchel.toml"),
        ("", {"SATCHEL_PORT": "x"}, "SATCHEL_PORT"),
        ("", {"SATCHEL_IDLE": "0s"}, "policy.idle"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, environment: dict[str, str], named: str) -> None:
    path = tmp_path / "satchel.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=named):
        load_settings(path=path, environment=environment)


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no file"):
        load_settings(path=tmp_path / "absent.toml", environment={})


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    settings = load_settings({"policy.idle": "2s"}, environment={})
    again = load_settings(
        {f"{group}.{name}": value for group, members in shown(settings).items() for name, value in members.items()},
        environment={},
    )
    assert shown(again) == shown(settings)
    assert again.session_policy().over(DEFAULT_POLICY) == settings.session_policy().over(DEFAULT_POLICY)
