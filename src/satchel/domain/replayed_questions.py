"""Questions and answers, replayed from their events."""

from __future__ import annotations

import msgspec

from satchel.domain.bodies import QuestionAnswered, QuestionAsked, read_body
from satchel.domain.clock import parse_rfc3339
from satchel.domain.event import Event
from satchel.domain.json_text import raw_json
from satchel.domain.question import AnsweredQuestion, PendingQuestion
from satchel.domain.replayed_runs import ReplayedRuns
from satchel.errors import LimitExceeded


class ReplayedQuestions(ReplayedRuns):
    def question_asked(self, event: Event) -> None:
        body = read_body(event.body, QuestionAsked)
        self.run_at_work(event)
        row = self._run(event)
        if row.parent_run_id is not None or row.cancel_requested or row.answer_to(body.name) is not None:
            raise ValueError(f"asks {body.name!r} of a run that may not ask it")
        if self.get("children"):
            raise ValueError("asks while child runs are open")
        if any(call.run_id == row.run_id for call in self.get("open_calls")):
            raise ValueError("asks while a tool call of the run is open")
        if len(row.answered) >= self.limits.questions:
            raise LimitExceeded(
                field="questions",
                size=len(row.answered) + 1,
                limit=self.limits.questions,
                setting="limits.questions",
                unit="questions of one run",
            )
        expires_at = parse_rfc3339(body.expires_at)
        pending = PendingQuestion(
            name=body.name,
            question=body.question,
            schema=raw_json(bytes(body.schema)),
            expires_at=expires_at,
            seq=event.seq,
        )
        self.put_run(event, msgspec.structs.replace(row, status="WAITING", question=pending))
        self.fields["turn"] = msgspec.structs.replace(self.get("turn"), status="WAITING", expires_at=expires_at)

    def question_answered(self, event: Event) -> None:
        body = read_body(event.body, QuestionAnswered)
        row = self._run(event)
        pending = row.question
        if row.status != "WAITING" or pending is None or pending.name != body.name:
            raise ValueError(f"answers {body.name!r}, which was not asked")
        answered = (*row.answered, AnsweredQuestion(body.name, pending.seq, event.seq))
        self.put_run(event, msgspec.structs.replace(row, status="READY", question=None, answered=answered))
        self.fields["turn"] = msgspec.structs.replace(self.get("turn"), status="READY", expires_at=None)
