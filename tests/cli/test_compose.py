"""compose.yaml is what satchel takes. Docker itself is not run by the tests: what is run here is what it would start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types; litestar brings it

from satchel.cli.commands import make_app
from satchel.http.settings import load_settings
from satchel.opening import store_at
from satchel.servers.redis import DURABLE
from tests.servers.postgres import new_database

ROOT = Path(__file__).parents[2]
FILE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"] == "satchel"}
PASSWORD = "0123abcd"  # nobody's

# Those of the Compose Specification that are in use here.
SERVICE_KEYS = {
    *("image", "build", "command", "environment", "volumes", "ports", "healthcheck", "depends_on", "profiles"),
    *("init", "restart", "stop_grace_period", "security_opt", "cap_drop"),
}
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}


def filled_in(value: Any, environment: dict[str, str]) -> str:
    """As Compose does it: ``${NAME:-default}``, ``${NAME:?refusal}``."""

    def one(found: re.Match[str]) -> str:
        given = environment.get(found["name"], "")
        if not given and found["how"] == "?":
            raise LookupError(found["name"])
        return given or found["other"]

    return re.sub(r"\$\{(?P<name>\w+):(?P<how>[-?])(?P<other>[^}]*)\}", one, str(value))


def environment_of(service: dict[str, Any]) -> dict[str, str]:
    written = service.get("environment", {})
    return {name: filled_in(value, {"DATABASE_PASSWORD": PASSWORD}) for name, value in written.items()}


def known_variables() -> set[str]:
    """Those of the flags of `satchel serve`, as its help does not name them, and of its settings."""
    serve = make_app()["serve"]
    names = {name for flag in serve.assemble_argument_collection() for name in flag.parameter.env_var or ()}
    assert "SATCHEL_STORE" in names
    return names


def test_the_file_has_only_what_the_compose_specification_knows() -> None:
    assert {key for key in FILE if not key.startswith("x-")} == {"name", "services", "volumes"}
    for name, service in SERVICES.items():
        assert set(service) <= SERVICE_KEYS, name
        assert set(service["healthcheck"]) <= HEALTH_KEYS, name
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL"), name
        for other, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert set(SERVICES[other].get("profiles", ())) <= set(service.get("profiles", ())), f"{name} lacks {other}"
        for volume in service["volumes"]:
            place = filled_in(volume, {}).split(":")[0]
            assert place in FILE["volumes"], f"{name}: {place}"


def test_every_image_names_its_version_and_no_service_holds_a_secret() -> None:
    for name, service in SERVICES.items():
        if name not in OURS:
            assert re.fullmatch(r"[a-z]+:\d+(\.\d+)?", service["image"]), name
    for service in SERVICES.values():
        for variable, value in service.get("environment", {}).items():
            if re.search("(?<!RANDOM_ROOT_)PASSWORD$|AUTH$|STORE$", variable):
                assert "${DATABASE_PASSWORD:?" in value, variable
    with pytest.raises(LookupError, match="DATABASE_PASSWORD"):
        filled_in(OURS["satchel"]["environment"]["SATCHEL_STORE"], {})
    example = (ROOT / ".env.example").read_text("utf-8")
    assert re.findall(r"^\w+=.*$", example, re.MULTILINE) == ["DATABASE_PASSWORD="], "an example is no secret either"
    asked = set(re.findall(r"\$\{(\w+)", (ROOT / "compose.yaml").read_text("utf-8")))
    assert set(re.findall(r"^(?:# )?(\w+)=", example, re.MULTILINE)) == asked


@pytest.mark.parametrize("name", OURS)
def test_the_command_line_and_the_variables_of_a_service_are_ones_that_satchel_takes(name: str) -> None:
    service, environment = OURS[name], environment_of(OURS[name])
    command, bound, _ = make_app().parse_args(service["command"], exit_on_error=False, print_error=False)
    assert callable(command)
    assert bound is not None
    assert set(environment) <= known_variables()
    settings = load_settings(path=None, environment=environment)
    assert settings.server.store == environment["SATCHEL_STORE"]
    store_at(settings.server.store)
    assert f"@{name.partition('-')[2] or 'postgres'}/" in settings.server.store


def test_the_image_is_made_of_what_is_here() -> None:
    written = (ROOT / "Dockerfile").read_text("utf-8")
    for line in re.findall(r"^COPY (.+) \S+$", written, re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), source
            assert f"!{source}" in (ROOT / ".dockerignore").read_text("utf-8").split(), source
    for variable in re.findall(r"^ENV (\w+)=", written, re.MULTILINE):
        assert variable in known_variables() | {"PYTHONPATH"}
    home = re.findall(r"^WORKDIR (\S+)$", written, re.MULTILINE)[-1]
    assert written.index("USER satchel") < written.index(f"WORKDIR {home}")
    for service in OURS.values():
        assert f"home:{home}" in service["volumes"], "the first start writes a key there"
        assert service["volumes"][0].split(":")[-2:] == [re.findall(r"PYTHONPATH=(\S+)", written)[0], "ro"]
    extras = re.search(r"'\.\[(.+)\]'", written)
    assert extras is not None
    told = (ROOT / "pyproject.toml").read_text("utf-8")
    assert all(re.search(rf"^{extra} = \[", told, re.MULTILINE) for extra in extras[1].split(","))


def test_the_command_lines_for_a_container_are_ones_that_satchel_takes() -> None:
    told = (ROOT / "docs" / "operating.md").read_text("utf-8")
    lines = re.findall(r"^\$ docker compose exec (\S+) satchel (.+)$", told, re.MULTILINE)
    assert lines
    store = f"--store {environment_of(OURS['satchel'])['SATCHEL_STORE']}"  # the container's own variable
    for service, line in lines:
        assert service in OURS
        _, bound, _ = make_app().parse_args(f"{line} {store}".split(), exit_on_error=False, print_error=False)
        assert bound is not None
    for profile in re.findall(r"--profile (\w+) up --build ([\w-]+)", told):
        assert OURS[profile[1]]["profiles"] == [profile[0]]


def test_redis_is_started_with_the_settings_that_the_store_asks_for() -> None:
    command = SERVICES["redis"]["command"]
    given = {flag.removeprefix("--"): value for flag, value in zip(command[1::2], command[2::2], strict=True)}
    assert {name: given.get(name) for name in DURABLE} == DURABLE


def test_the_service_serves_and_its_health_check_tells(tmp_path: Path) -> None:
    """What the container starts, at a PostgreSQL of this machine; and no password is in what it says."""
    service, environment = OURS["satchel"], environment_of(OURS["satchel"])
    url = new_database()
    store = environment["SATCHEL_STORE"].replace("@postgres/satchel", "@" + url.partition("@")[2])
    home, agents = tmp_path / "home", tmp_path / "agents"
    home.mkdir()
    agents.mkdir()
    (agents / "composed.py").write_text("async def shop(ctx): pass\n")
    environment |= {"SATCHEL_STORE": store, "SATCHEL_PORT": "0", "SATCHEL_AGENT": "composed:shop"}
    agents.chmod(0o500)  # as it is mounted
    health = service["healthcheck"]["test"]
    assert health[:2] == ["CMD", "python"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "satchel", *service["command"]],
            env={**os.environ, **environment, "PYTHONPATH": str(agents)},
            cwd=home,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        try:
            ready = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+", ready)
            assert found is not None, (tmp_path / "log").read_text()
            assert httpx.get(f"{found[0]}/readyz").status_code == 200
            check = [sys.executable, *(word.replace("http://127.0.0.1:8321", found[0]) for word in health[2:])]
            assert subprocess.run(check, check=False, timeout=20).returncode == 0
        finally:
            process.terminate()
            said = process.communicate(timeout=30)[0]
    deadline = time.monotonic() + 5
    while subprocess.run(check, check=False, timeout=20, stderr=subprocess.DEVNULL).returncode == 0:
        assert time.monotonic() < deadline
    told = ready + said + (tmp_path / "log").read_text()
    assert "satchel:***@127.0.0.1" in told
    assert PASSWORD not in told
    assert "(agents: shop)" in told
    assert [file.suffix for file in home.iterdir()] == [".key"]
