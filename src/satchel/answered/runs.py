"""A run as a first answer showed it. What it counted and said since is in no idempotency record: the log tells it again."""

from __future__ import annotations

import msgspec

from satchel.access import Access
from satchel.answered.memory import PAGE, events_until, layer_until, whole
from satchel.commit import Committed
from satchel.domain.bodies import QuestionAsked, RunStep, read_body
from satchel.domain.clock import parse_rfc3339
from satchel.domain.decisions.runs import as_first_answered
from satchel.domain.idempotency import Answer
from satchel.domain.ids import SessionRef
from satchel.domain.json_text import NO_JSON, raw_json
from satchel.domain.question import PendingQuestion
from satchel.domain.run import TERMINAL, Run, RunRow, Usage

_encode = msgspec.json.Encoder().encode


async def run_as_answered(access: Access, ref: SessionRef, done: Committed[Run]) -> Run:
    """The run as it was after the commit, also when that was found again later: then the value is the run of today, under the
    status of then. Raises StoreCorrupt, SessionDeleted."""
    now, answer = done.value, done.answer
    if not done.found:
        return now
    page = whole(await access.store.runs(ref, run_id=now.run_id, limit=1), ref)
    if not page.runs or page.runs[0].version <= answer.version:  # nothing changed since
        return now
    row = await _then(access, ref, page.runs[0], answer)
    return Run.from_row(row, session_id=ref.session_id, version=answer.version, replayed=done.replayed)


async def _then(access: Access, ref: SessionRef, row: RunRow, answer: Answer) -> RunRow:
    version, run_id = answer.version, row.run_id
    start_time = row.start_time if row.parent_run_id is not None else None
    async for event in events_until(access, ref, "run_started", version, run_id=run_id):
        start_time = event.at if start_time is None else start_time
    steps, usage = await _ended_calls(access, ref, run_id, version), Usage()
    async for event in events_until(access, ref, "run_step", version, run_id=run_id):
        steps, usage = steps + 1, usage.plus(read_body(event.body, RunStep).usage)
    cancelling = [one async for one in events_until(access, ref, "run_cancel_requested", version, run_id=run_id)]
    layer = b"{}"
    if row.memory == "run" and answer.status != "COMPLETED":
        patch, _ = await layer_until(access, ref, row, version)
        layer = _encode(patch.to_dict())
    return msgspec.structs.replace(
        as_first_answered(row, answer),
        start_time=start_time,
        steps=steps,
        usage=usage,
        cancel_requested=bool(cancelling),
        input_seq=await _input_seq(access, ref, row, version),
        question=await _question(access, ref, row, answer),
        layer=raw_json(b"" if layer == b"{}" else layer),
        not_merged=row.not_merged if answer.status in TERMINAL else NO_JSON,
    )


async def _ended_calls(access: Access, ref: SessionRef, run_id: str, version: int) -> int:
    count = after = 0
    while True:
        page = whole(
            await access.store.tool_calls(ref, run_id=run_id, after=after, newest_first=False, limit=PAGE), ref
        )
        count += sum(call.status != "started" and call.version <= version for call in page.tool_calls)
        if len(page.tool_calls) < PAGE:
            return count
        after = page.tool_calls[-1].seq


async def _input_seq(access: Access, ref: SessionRef, row: RunRow, version: int) -> int | None:
    if row.input_seq is None:
        return None
    page = whole(await access.store.events(ref, after=row.input_seq - 1, before=row.input_seq + 1, limit=1), ref)
    return row.input_seq if page.events and page.events[0].version <= version else None


async def _question(access: Access, ref: SessionRef, row: RunRow, answer: Answer) -> PendingQuestion | None:
    """The question of the answer, if the run waited for it."""
    if answer.status != "WAITING":
        return None
    async for event in events_until(access, ref, "question_asked", answer.version, run_id=row.run_id):
        if event.seq in answer.seqs[1:]:
            body = read_body(event.body, QuestionAsked)
            return PendingQuestion(
                name=body.name,
                question=body.question,
                schema=raw_json(bytes(body.schema)),
                expires_at=parse_rfc3339(body.expires_at),
                seq=event.seq,
            )
    return None
