"""Whom a person talks to: an agent of their own, a model, or the demo's agent."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from satchel import Run
from satchel.cli.failures import AgentNotServed
from satchel.worker import Served, load_agent

ATTEMPTS = 3  # of a model's run: a chat engine goes on where it was


@dataclass(frozen=True, kw_only=True)
class Partner:
    """``name`` is the agent of its runs. ``about`` is said at the beginning. ``is_scripted``: nobody chose it, and no model
    answers."""

    name: str
    served: Served
    about: str
    max_attempts: int = 1
    is_scripted: bool = False

    def check_serves(self, run: Run) -> None:
        """Raises AgentNotServed: nobody here would go on with it."""
        if run.agent not in ("", self.name):
            raise AgentNotServed(run_id=run.run_id, agent=run.agent, session_id=run.session_id)


@contextmanager
def partner(*, agent: str | None, model: str | None, instructions: str) -> Iterator[Partner]:
    """``agent`` is MODULE:OBJECT and wins; without it ``model`` answers; without both the demo's data agent does.

    Raises InvalidInput, ExtraMissing, and what the agent's module raises.
    """
    if agent is not None:
        sys.path.insert(0, str(Path.cwd()))
        name, served = load_agent(agent)
        yield Partner(name=name, served=served, about=f"agent {name}")
    elif model is not None:
        from satchel.engines import ChatEngine

        engine = ChatEngine(model, instructions=instructions)
        yield Partner(name=engine.name, served=engine, about=f"model {model}", max_attempts=ATTEMPTS)
    else:
        from satchel.demo.agents import data
        from satchel.demo.data import build_ads_database

        with tempfile.TemporaryDirectory(prefix="satchel-chat-", ignore_cleanup_errors=True) as folder:
            scripted = data(build_ads_database(Path(folder) / "ads.db"))
            about = (
                "the demo's scripted agent, without a model; it answers in the language of the question."
                " --model NAME or --agent MODULE:OBJECT names another. Ask it:"
                " 昨天收入为什么下降? / Why did income drop yesterday?"
            )
            yield Partner(name=scripted.name, served=scripted, about=about, is_scripted=True)
