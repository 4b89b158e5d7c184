"""What goes wrong at a model's endpoint, and the settings of the chat engine."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from typing import Any

import pytest

from satchel import ExtraMissing, InvalidInput
from satchel.engines import ChatEngine
from satchel.engines.chat import from_environment
from tests.engines.chat_stage import KEY, ChatStage, error_of
from tests.engines.model_server import (
    CUT,
    STALL,
    Reply,
    chunk,
    refuses,
    says,
    stream,
)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (refuses(500, "on fire"), "model_unavailable"),
        (refuses(503, "busy"), "model_unavailable"),
        (refuses(429, "slow down"), "model_rate_limited"),
        (refuses(401, f"wrong key {KEY}"), "model_rejected"),
        (refuses(404, "no such model"), "model_rejected"),
        (refuses(400, "filtered", code="content_filter"), "model_filtered"),
        (Reply([CUT]), "model_unavailable"),
        (Reply([b"<html>hello</html>"]), "model_unavailable"),
        (stream(b"data: {broken\n\n"), "model_malformed"),
        (stream(b'data: "\xff"\n\n'), "model_malformed"),
        (stream({"error": {"message": "out of memory", "code": "oom"}}), "model_unavailable"),
        (stream(done=True), "model_unavailable"),
    ],
)
async def test_a_fault_fails_the_run_with_a_stable_code(stage: ChatStage, reply: Reply, code: str) -> None:
    run = await stage.talk("go", reply)
    assert error_of(run) == ("FAILED", code)
    assert run.error is not None
    assert run.error.message
    assert [body["role"] for body in await stage.bodies()] == ["user"]
    (step,) = await stage.steps()
    assert step["error"].startswith(f"{code}: ")


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ([CUT], "model_unavailable"),
        ([], "model_unavailable"),  # it just ends
        ([chunk(None, "content_filter")], "model_filtered"),
        ([{"error": {"message": "out of memory"}}], "model_unavailable"),
        ([b"data: {\n\n"], "model_malformed"),
    ],
)
async def test_what_was_said_before_a_fault_stays_as_interrupted(stage: ChatStage, end: list[Any], code: str) -> None:
    run = await stage.talk("go", stream(chunk({"content": "半"}), chunk({"content": "句话"}), *end))
    assert error_of(run) == ("FAILED", code)
    kept = (await stage.messages())[-1]
    assert (kept.content, kept.status) == ("半句话", "interrupted")
    assert len(stage.model.requests) == 1  # said once, not tried again


async def test_a_silent_endpoint_is_given_up(stage: ChatStage) -> None:
    run = await stage.talk("go", stream(chunk({"content": "wait"}), STALL), engine=stage.engine(timeout=0.3))
    assert error_of(run) == ("FAILED", "model_unavailable")


async def test_an_address_where_nobody_listens_fails_the_run(stage: ChatStage) -> None:
    run = await stage.talk("go", engine=stage.engine(base_url="http://127.0.0.1:9/v1"))
    assert error_of(run) == ("FAILED", "model_unavailable")


async def test_what_may_pass_is_tried_again_before_the_first_word(stage: ChatStage) -> None:
    busy = refuses(429, "slow down", **{"retry-after-ms": "10"})
    run = await stage.talk(
        "go", busy, refuses(503, "busy", **{"retry-after-ms": "10"}), says("ok"), engine=stage.engine(retries=2)
    )
    assert run.status == "COMPLETED"
    assert len(stage.model.requests) == 3
    assert len(await stage.steps()) == 1


async def test_the_key_appears_nowhere(stage: ChatStage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    engine = stage.engine()
    run = await stage.talk("go", refuses(401, f"Incorrect API key provided: {KEY}"), engine=engine)
    assert run.error is not None
    assert "Incorrect API key provided: (the key)" in run.error.message
    events = await stage.sessions.events(stage.session_id)
    everything = repr([event.to_dict() for event in events]) + caplog.text + repr(engine)
    assert "Incorrect" in caplog.text
    assert KEY not in everything
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"model": ""}, "model"),
        ({"instructions": None}, "instructions"),
        ({"max_tokens": 100}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_turns": 0}, "max_turns"),
        ({"timeout": 0}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"name": "a\nb"}, "name"),
        ({"tools": [5]}, "tools"),
        ({"tools": [print]}, "tools"),
        ({"tools": [lambda: 1]}, "tools"),
        ({"tools": [time.sleep, time.sleep]}, "tools"),
        ({"api_key": None, "base_url": None}, "api_key"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    options: dict[str, Any], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInput) as refused:
        ChatEngine(**{"model": "m", "api_key": "k", **options})
    assert refused.value.field == field


async def test_the_environment_names_model_address_and_key(stage: ChatStage, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="SATCHEL_MODEL"):
        from_environment()
    monkeypatch.setenv("SATCHEL_MODEL", "m-2")
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY"):
        from_environment()
    monkeypatch.setenv("OPENAI_BASE_URL", stage.model.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    run = await stage.talk("go", says("ok"), engine=from_environment())
    assert run.status == "COMPLETED"
    assert stage.model.requests[0]["model"] == "m-2"
    assert stage.model.keys == ["bearer sk-environment"]


async def test_the_environments_key_goes_to_no_other_address(stage: ChatStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    await stage.talk("go", says("ok"), engine=stage.engine(api_key=None))
    assert stage.model.keys == ["bearer none"]


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ExtraMissing, match="pip install openai "):
        ChatEngine("m", api_key="k")


def test_satchel_is_imported_without_the_extra() -> None:
    code = "import sys; sys.modules['openai'] = None; import satchel.engines"
    subprocess.run([sys.executable, "-c", code], check=True)
