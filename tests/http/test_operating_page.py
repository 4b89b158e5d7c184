"""docs/operating.md has every setting, with its default, and every metric."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from satchel.cli.serving import toml_of
from satchel.http.metrics import Metrics
from satchel.http.settings import JwtSettings, load_settings, shown, variables

PAGE = (Path(__file__).parent.parent.parent / "docs" / "operating.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| `((?:server|policy|limits|jwt)\.\w+)` \| (.*?) \|", PAGE, re.MULTILINE))


def defaults() -> dict[str, Any]:
    jwt = {field.name: field.default for field in msgspec.structs.fields(JwtSettings) if not field.required}
    jwt["roles"] = JwtSettings(issuer="i", audience="a", jwks="j").roles
    groups = shown(load_settings(environment={})) | {"jwt": jwt}
    return {f"{group}.{name}": value for group, members in groups.items() for name, value in members.items()}


@pytest.mark.parametrize("name", variables())
def test_a_setting_is_in_the_page_with_its_default(name: str) -> None:
    known = defaults()
    value = known.get(name)
    written = "none" if value is None else f"`{toml_of(value)}`"
    assert ROWS[name] == ("required" if name not in known else written)


def test_the_page_has_no_setting_that_there_is_not() -> None:
    assert ROWS.keys() == variables().keys()


def test_the_sample_is_a_file_of_settings(tmp_path: Path) -> None:
    (sample,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    path = tmp_path / "satchel.toml"
    path.write_text(sample)
    settings = load_settings(path=path, environment={})
    assert (settings.server.concurrency, settings.limits.user_message) == (32, 262_144)


def test_every_metric_is_in_the_page_and_no_other() -> None:
    families = Metrics().registry.collect()
    known = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert set(re.findall(r"^\| `(satchel_\w+)` \| [`a-z, ]*\|", PAGE, re.MULTILINE)) == known
