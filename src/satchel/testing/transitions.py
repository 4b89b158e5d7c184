"""Every verb of a run in every situation that a run can be in: what is legal leads where it should, all else is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
import pytest

from satchel.domain.run import Attempt
from satchel.errors import CancelRequested, IllegalTransition, RunActive, RunFenced, RunNested, SatchelError
from satchel.testing.stage import ADA, ADAS_AGENT, Stage, refused, said
from satchel.testing.suite import StoreSuite

LEASE = 30.0

REFUSALS = (IllegalTransition, RunFenced, RunActive, RunNested, CancelRequested)


class Subject(msgspec.Struct, frozen=True):
    """The run that verbs are tried on, and the attempt that has it, or had it last."""

    session_id: str
    run_id: str
    attempt: int = 0

    @property
    def held(self) -> Attempt:
        return Attempt(self.run_id, self.attempt)


Verb = Callable[[Stage, Subject], Awaitable[object]]

VERBS: dict[str, Verb] = {
    "start": lambda stage, of: stage.runs().start_run(of.session_id, of.run_id),
    "ask": lambda stage, of: stage.runs().ask_question(of.session_id, of.held, "another", "Sure?"),
    "answer": lambda stage, of: stage.runs(ADA).answer_run(of.session_id, of.run_id, "yes"),
    "hand back": lambda stage, of: stage.runs().hand_back_run(of.session_id, of.held),
    "complete": lambda stage, of: stage.runs().complete_run(of.session_id, of.held),
    "fail": lambda stage, of: stage.runs().fail_run(of.session_id, of.held, code="broken"),
    "end cancelled": lambda stage, of: stage.runs().end_cancelled_run(of.session_id, of.held),
    "cancel": lambda stage, of: stage.runs(ADA).cancel_run(of.session_id, of.run_id),
    "renew": lambda stage, of: stage.runs().renew_run(of.session_id, of.held),
    "add step": lambda stage, of: stage.runs().add_step(of.session_id, of.held, "gpt"),
    "add child": lambda stage, of: stage.runs().add_child_run(of.session_id, of.held),
    "say": lambda stage, of: stage.sessions(ADAS_AGENT).append_message(
        of.session_id, said("x", "assistant"), attempt=of.held
    ),
    "call": lambda stage, of: stage.sessions(ADAS_AGENT).start_tool_call(of.session_id, "look", attempt=of.held),
    "remember": lambda stage, of: stage.sessions(ADAS_AGENT).update_working_memory(
        of.session_id, {"append": {"plan": "x"}}, attempt=of.held
    ),
}

WORK = dict.fromkeys(("add step", "say", "call", "remember"), "RUNNING")
ENDS = {"complete": "COMPLETED", "fail": "FAILED", "end cancelled": "CANCELLED"}

# The status after each verb that is legal in a situation; each verb that is not named there is refused.
LEGAL: dict[str, Mapping[str, str]] = {
    "READY": {"start": "RUNNING", "cancel": "CANCELLED"},
    "READY in the queue": {"cancel": "CANCELLED"},
    "READY again": {"start": "RUNNING", "cancel": "CANCELLED"},
    "READY with an answer": {"start": "RUNNING", "cancel": "CANCELLED"},
    "RUNNING": {
        **WORK,
        **ENDS,
        "ask": "WAITING",
        "hand back": "READY",
        "cancel": "RUNNING",  # asked to stop
        "renew": "RUNNING",
        "add child": "RUNNING",
    },
    "RUNNING and asked to stop": {
        **WORK,
        **ENDS,
        "hand back": "CANCELLED",
        "cancel": "RUNNING",
        "renew": "RUNNING",
        "add child": "RUNNING",
    },
    "RUNNING as a child": {**WORK, **ENDS, "cancel": "RUNNING"},
    "WAITING": {"answer": "READY", "cancel": "CANCELLED"},
    "COMPLETED": {},
    "COMPLETED as a child": {},
    "FAILED": {},
    "FAILED with its worker": {},
    "FAILED with its question": {},
    "CANCELLED": {"cancel": "CANCELLED"},  # nothing changes
}


async def _subject(stage: Stage, situation: str) -> Subject:
    sid = await stage.session()
    runs = stage.runs()
    if situation == "READY in the queue":
        await stage.started_run(sid, lease=3_600)
        return Subject(sid, (await runs.add_run(sid, on_busy="queue")).run_id)
    if situation == "READY":
        return Subject(sid, (await runs.add_run(sid)).run_id)
    last = situation == "FAILED with its worker"
    run, attempt = await stage.started_run(sid, lease=LEASE, max_attempts=1 if last else 2)
    if situation.endswith("child"):
        child = await runs.add_child_run(sid, attempt)
        run, attempt = child, Attempt(child.run_id, 1)
    if situation in ("READY with an answer", "WAITING", "FAILED with its question"):
        await runs.ask_question(sid, attempt, "sure", "Sure?", expires_in=LEASE)
    leads: dict[str, Callable[[], Awaitable[Any]]] = {
        "READY again": lambda: runs.hand_back_run(sid, attempt),
        "READY with an answer": lambda: stage.runs(ADA).answer_run(sid, run.run_id, "no"),
        "RUNNING and asked to stop": lambda: stage.runs(ADA).cancel_run(sid, run.run_id),
        "COMPLETED": lambda: runs.complete_run(sid, attempt),
        "COMPLETED as a child": lambda: runs.complete_run(sid, attempt),
        "FAILED": lambda: runs.fail_run(sid, attempt, code="broken"),
        "CANCELLED": lambda: runs.end_cancelled_run(sid, attempt),
    }
    if situation in leads:
        await leads[situation]()
    return Subject(sid, run.run_id, attempt.attempt)


class TransitionSuite(StoreSuite):
    @pytest.mark.parametrize("situation", LEGAL)
    async def test_every_illegal_transition_of_a_run_is_refused_and_every_legal_one_is_made(
        self, stage: Stage, situation: str
    ) -> None:
        subjects = await asyncio.gather(*(_subject(stage, situation) for _ in VERBS))
        if situation.startswith("FAILED with"):
            stage.clock.pass_time(LEASE)
        for subject in subjects:  # a reader meets what is overdue
            found = await stage.runs(ADA).get_run(subject.session_id, subject.run_id)
            assert found.status == situation.partition(" ")[0]
        tried = [
            self._check(stage, subject, verb, LEGAL[situation].get(name))
            for subject, (name, verb) in zip(subjects, VERBS.items(), strict=True)
        ]
        outcomes = await asyncio.gather(*tried, return_exceptions=True)
        wrong = {name: error for name, error in zip(VERBS, outcomes, strict=True) if error is not None}
        assert not wrong, f"a run that is {situation}: {wrong}"

    async def _check(self, stage: Stage, subject: Subject, verb: Verb, after: str | None) -> None:
        if after is None:
            async with refused(stage, subject.session_id, SatchelError) as met:
                await verb(stage, subject)
            assert isinstance(met[0], REFUSALS), repr(met[0])
        else:
            await verb(stage, subject)
            assert (await stage.runs(ADA).get_run(subject.session_id, subject.run_id)).status == after
