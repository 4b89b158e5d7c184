"""A chat engine in worker processes that are killed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import satchel
from tests.engines.model_server import asks, model_server, says
from tests.worker.processes import Workers
from tests.worker.stage import Stage, until

pytestmark = pytest.mark.slow


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path)
    yield started
    started.kill_all()


async def test_a_killed_engine_goes_on_in_another_process(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    async with model_server() as model, satchel.open(workers.url) as store:
        monkeypatch.setenv("OPENAI_BASE_URL", model.url)
        stage = Stage(store)
        model.replies += [asks(("a", "first", "{}")), asks(("b", "second", "{}")), says("one, two")]
        victim = await workers.start("shopkeeper", lease=1)
        run = await stage.added("shopkeeper", input="count", max_attempts=2)
        await until(lambda: workers.of("second"))
        victim.process.send_signal(signal.SIGKILL)
        await victim.exit_code()
        await workers.start("shopkeeper", lease=1)
        ended = await stage.ended(run)
        assert (ended.status, ended.attempt) == ("COMPLETED", 2)
        assert [effect.attempt for effect in workers.of("first")] == [1]
        assert [effect.attempt for effect in workers.of("second")] == [1, 2]
        assert len(model.requests) == 3  # nothing was asked twice
        bodies = [message.data for message in (await stage.sessions.messages(run.session_id)).items]
        assert [body.get("content") for body in bodies] == ["count", None, "one", None, "two", "one, two"]
        assert await stage.calls(run.session_id) == ["succeeded", "unknown", "succeeded"]


async def test_an_engine_from_the_environment_is_served(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    async with model_server() as model, satchel.open(workers.url) as store:
        stage = Stage(store)
        model.replies.append(says("hello"))
        environment = {"SATCHEL_MODEL": "m-1", "OPENAI_API_KEY": "sk-very-secret", "OPENAI_BASE_URL": model.url}
        worker = await workers.start("chat=satchel.engines.chat:from_environment", environment=environment)
        run = await stage.added("chat", input="hi")
        assert (await stage.ended(run)).status == "COMPLETED"
        assert "sk-very-secret" not in worker.said
