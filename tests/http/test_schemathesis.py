"""A server is asked for all that its OpenAPI document promises, and for what it does not, by two identities."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.http.server import ROOT, Server, client_of, make_key, serving

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
IDENTITIES = {
    "ada": ("--role", "user", "--user", "ada"),
    "bobs agent": ("--role", "agent", "--acting-for", "bob"),
}
SEED = "20260131"


def ask(folder: Path, *flags: str) -> None:
    """All checks (see schemathesis.toml), with a fixed seed, by two identities of which neither may see what is the
    other's. Raises AssertionError with what was found."""
    settings = "requests_per_second = 0\nchat_seconds = 0.2\nruns_per_user = 0\nstreams_per_user = 1000\n"
    (folder / "satchel.toml").write_text(f"[server]\n{settings}")
    with serving(folder, "--config", str(folder / "satchel.toml"), "--quiet") as server:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(_configured(folder)), "run"]
        command += [str(_served(server, folder)), "--url", server.url, "--seed", SEED]
        command += ["--continue-on-failure", "--no-shrink", "--request-timeout", "30", "--no-color", *flags]
        asked = subprocess.run(
            command,
            cwd=folder,
            env=os.environ
            | {
                "SCHEMATHESIS_HOOKS": "tests.http.schemathesis_hooks",
                "PYTHONPATH": str(ROOT),
                "SATCHEL_TEST_IDS": json.dumps(_filled(server, folder)),
            },
            capture_output=True,
            text=True,
            timeout=1_000,
            check=False,
        )
        assert asked.returncode == 0, asked.stdout[-20_000:] + asked.stderr[-2_000:]
        found = re.search(r"(\d+) generated", asked.stdout)
        assert found is not None, asked.stdout[-2_000:]
        assert int(found[1]) > 500, "it asked for too little to prove anything"
        log = server.log.read_text()
        assert "Traceback" not in log, log[:5_000]
        assert "internal_error" not in log


def _served(server: Server, folder: Path) -> Path:
    """The document as this server gives it, which is the one in the docs."""
    with client_of(server, make_key(folder, "--tenant", "acme", "--role", "admin")) as client:
        document = client.get("/openapi.json").content
    assert document == (ROOT / "docs" / "openapi.json").read_bytes()
    path = folder / "openapi.json"
    path.write_bytes(document)
    return path


def _filled(server: Server, folder: Path) -> dict[str, str]:
    """A session of Ada's with something of everything in it: what its addresses name."""
    with client_of(server, make_key(folder, "--tenant", "acme", "--role", "agent", "--acting-for", "ada")) as client:
        session_id = client.post("/v1/sessions", json={"title": "asked"}).json()["session_id"]
        session = f"/v1/sessions/{session_id}"
        said = client.post(f"{session}/messages", json={"content": "hello"}).json()
        call = client.post(f"{session}/tool-history", json={"tool": "ls"}).json()
        run = client.post(f"{session}/runs", json={"goal": "g", "start": True, "lease": 86_400}).json()
    return {
        "session_id": session_id,
        "run_id": run["run_id"],
        "message_id": said["message_id"],
        "seq": str(call["seq"]),
    }


def _configured(folder: Path) -> Path:
    """The configuration, with keys of both identities."""
    users = []
    for name, flags in IDENTITIES.items():
        key = make_key(folder, "--tenant", "acme", *flags)
        users.append({"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {key}"}]})
    (folder / "users.json").write_text(json.dumps({"auth": users}))
    config = folder / "schemathesis.toml"
    peers = f"[auth.wfc]\npath = {json.dumps(str(folder / 'users.json'))}\npeers = {json.dumps([*IDENTITIES])}\n"
    config.write_text((HERE / "schemathesis.toml").read_text("utf-8") + peers, "utf-8")
    return config


def test_every_answer_is_one_that_the_document_knows(tmp_path: Path) -> None:
    ask(tmp_path, "--phases", "coverage", "--max-examples", "1")


@pytest.mark.full
@pytest.mark.timeout(1_200)
def test_all_checks_at_length(tmp_path: Path) -> None:
    ask(tmp_path, "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "50")
