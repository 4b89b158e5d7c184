"""The domain alone, without a store: which statuses of a run lead to which, by whatever decision, and by time."""

from __future__ import annotations

from typing import Any

import pytest

from satchel.domain.clock import SECOND
from satchel.domain.decisions.decision import Decision
from satchel.domain.decisions.questions import AnswerRun, AskQuestion
from satchel.domain.decisions.runs import CancelRun, EndRun, HandBackRun, StartRun
from satchel.domain.ids import SessionRef
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.domain.principal import Principal
from satchel.domain.question import PendingQuestion
from satchel.domain.record import Lease, SessionRecord, Turn
from satchel.domain.run import TERMINAL, Attempt, RunRow, RunStatus
from satchel.domain.state import Clock, Effect, SessionState
from satchel.domain.upkeep import settle
from satchel.errors import IllegalTransition, RunFenced

RUN = "run_a"
AGENT = Principal.agent("shop", tenant_id="acme", acting_for="ada")
SOON = 60 * SECOND
STATUSES: tuple[RunStatus, ...] = ("READY", "RUNNING", "WAITING", "COMPLETED", "FAILED", "CANCELLED")

# The design's sentence, word for word.
LEADS_TO: dict[RunStatus, set[RunStatus]] = {
    "READY": {"RUNNING", "CANCELLED"},
    "RUNNING": {"WAITING", "COMPLETED", "FAILED", "CANCELLED", "READY"},
    "WAITING": {"READY", "FAILED", "CANCELLED"},
    "COMPLETED": set(),
    "FAILED": set(),
    "CANCELLED": set(),
}

_COMMON: dict[str, Any] = {"ref": SessionRef("acme", "sess_a"), "principal": AGENT, "run_id": RUN}
_HELD: dict[str, Any] = {**_COMMON, "attempt": Attempt(RUN, 1)}

DECISIONS: dict[str, Decision[Any]] = {
    "start": StartRun(**_COMMON, lease=SOON),
    "ask": AskQuestion(
        **_HELD, name="more", question="?", schema=None, expires_in=SOON, here=False, limits=DEFAULT_LIMITS
    ),
    "answer": AnswerRun(**_COMMON, answer=b"1", name=None, question_seq=3, refusal=None),
    "hand back": HandBackRun(**_HELD),
    "complete": EndRun(**_HELD, status="COMPLETED", stop_reason="end_turn", limits=DEFAULT_LIMITS),
    "fail": EndRun(**_HELD, status="FAILED", stop_reason="error", limits=DEFAULT_LIMITS),
    "end cancelled": EndRun(**_HELD, status="CANCELLED", stop_reason="cancelled", limits=DEFAULT_LIMITS),
    "end as something else": EndRun(**_HELD, status="READY", stop_reason="", limits=DEFAULT_LIMITS),
    "cancel": CancelRun(**_COMMON),
}


def state_of(status: RunStatus, *, max_attempts: int) -> SessionState:
    """A session with one run; if that is not over, it has the turn."""
    attempt = 0 if status == "READY" else 1
    is_waiting = status == "WAITING"
    question = PendingQuestion(name="sure", question="?", expires_at=SOON, seq=3) if is_waiting else None
    row = RunRow(
        run_id=RUN,
        number=1,
        status=status,
        created_at=1,
        version=1,
        attempt=attempt,
        max_attempts=max_attempts,
        question=question,
    )
    turn = Turn(
        run_id=RUN,
        status=status,
        attempt=attempt,
        lease=Lease(each=SOON, until=SOON, clock="boot") if status == "RUNNING" else None,
        expires_at=SOON if is_waiting else None,
    )
    record = SessionRecord(
        tenant_id="acme",
        session_id="sess_a",
        user_id="ada",
        revision=7,
        created_at=1,
        updated_at=1,
        active_at=1,
        clock_from=1,
        version=3,
        last_seq=3,
        runs=1,
        run_number=1,
        turn=None if status in TERMINAL else turn,
    )
    return SessionState(record, runs={RUN: row})


def after(effect: Effect) -> RunStatus:
    (row,) = (run for run in effect.runs if run.run_id == RUN)
    turn = effect.record.turn
    assert (turn is None) == (row.status in TERMINAL), "the turn and the run disagree"
    assert turn is None or (turn.run_id, turn.status, turn.attempt) == (RUN, row.status, row.attempt)
    return row.status


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_leads_where_the_design_says_and_nowhere_else(status: RunStatus) -> None:
    led: set[RunStatus] = set()
    for max_attempts in (1, 2):
        for name, decision in DECISIONS.items():
            state = state_of(status, max_attempts=max_attempts)
            try:
                decided = decision.decide(state, Clock(2, 2, "boot"))
            except (IllegalTransition, RunFenced):
                continue
            if isinstance(decided, Effect):
                led.add(after(decided))
            else:
                assert (name, status) == ("cancel", "CANCELLED"), "a no-op that is none"
        for clock in (Clock(2, SOON, "boot"), Clock(2, 2, "another boot"), Clock(SOON, 2, "boot")):
            due = settle(state_of(status, max_attempts=max_attempts), clock)
            if due is not None:
                led.add(after(due))
    asked_to_stop: set[RunStatus] = {"RUNNING"} if status == "RUNNING" else set()
    assert led == LEADS_TO[status] | asked_to_stop
