"""A server's log says who and what, and never what was said: not by the text of an agent's exception either."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.http.server import client_of, developers_key, serving

SECRET = "the account is 4711"


@pytest.mark.slow
@pytest.mark.parametrize("texts", [False, True])
def test_the_text_of_an_agents_exception_is_in_no_log_unless_it_is_asked_for(
    tmp_path: Path, texts: bool
) -> None:  # pytest gives it
    agents = ("--agent", "tests.http.agents:failing")
    environment = {"SATCHEL_LOG_TEXTS": "true"} if texts else {}
    with (
        serving(tmp_path, agents=agents, environment=environment) as server,
        client_of(server, developers_key(tmp_path)) as client,
    ):
        for how in ("raise", "cause", "group", "failed", "task"):
            ran = client.post("/v1/chat", json={"message": f"{how} {SECRET}"}).json()["run"]
            assert ran["status"] == "FAILED" or how == "task"
            assert SECRET in ran["error"]["message"] if how in ("raise", "failed") else True
        assert server.stop() == 0
        log = server.log.read_text()
        found = {line["traceback"].splitlines()[-1] for line in server.logged() if "traceback" in line}
    assert (SECRET in log) == texts
    assert "tests/http/agents.py" in log
    if not texts:
        assert {"ValueError", "KeyError"} <= found
        assert "odd: RunFailed" in log
    assert '"session_id"' in log
