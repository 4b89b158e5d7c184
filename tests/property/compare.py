"""A stored session beside the plain model's, and beside the replay of its own log. Reads through the Store contract, which
settles nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from satchel.domain.event import Event
from satchel.domain.ids import SessionRef
from satchel.domain.json_text import NO_JSON, decode
from satchel.domain.memory import memory_from
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import SessionRecord
from satchel.domain.replay import Replay
from satchel.domain.run import Run, RunRow
from satchel.domain.tool_call import CallRow, ToolCall
from satchel.store import Store
from tests.property.layers import patched
from tests.property.model import Entry, Json, ModelCall, ModelRun, ModelSession

ALL = 1_000
Difference = tuple[str, Any, Any]  # what, in the model, in the store
COUNTED = (
    "messages",
    "tool_calls",
    "runs",
    "children",
    "child_runs",
    "retracted",
    "context_tokens",
    "usage",
    "run_number",
    "asked",
    "open_calls",
)


async def differences(store: Store, session: ModelSession) -> list[Difference]:
    """Everything in which the store does not hold what the model says."""
    ref = SessionRef(session.tenant_id, session.session_id)
    snapshot = await store.snapshot(ref)
    record = snapshot.record
    if record is None:
        return [("record", session.session_id, None)]
    found = [(what, said, held) for what, said, held in _record(session, record) if said != held]
    if session.status == "DELETED":
        return found
    log = (await store.events(ref, limit=ALL)).events
    runs = (await store.runs(ref, newest_first=False, limit=ALL)).runs
    calls = (await store.tool_calls(ref, newest_first=False, limit=ALL)).tool_calls
    found += _listed("event", [_entry(entry) for entry in session.log], [_event(event) for event in log])
    found += _listed("body", [_said(entry) for entry in session.messages()], _bodies(session, log))
    found += _listed("run", [_run(run) for run in session.runs.values()], [_run_row(row) for row in runs])
    found += _listed("call", [_call(call) for call in session.calls.values()], [_call_row(row) for row in calls])
    held = {name: value for name, value in memory_from(snapshot.working_memory).to_dict().items() if value}
    found += [("working_memory", session.memory, held)] if session.memory != held else []
    metadata = decode(snapshot.metadata) if snapshot.metadata else {}
    found += [("metadata", session.metadata, metadata)] if session.metadata != metadata else []
    taken_back = {event.refers_to for event in log if event.kind == "message_retracted"}
    found += [("retracted", session.taken_back, taken_back)] if session.taken_back != taken_back else []
    if found:
        return found
    return list(_replayed(session, record, log, runs, calls, snapshot.working_memory, snapshot.metadata))


def _listed(what: str, said: list[Any], held: list[Any]) -> list[Difference]:
    if said == held:
        return []
    for index, (one, other) in enumerate(zip(said, held, strict=False)):
        if one != other:
            return [(f"{what} {index + 1}", one, other)]
    return [(f"{what}: how many", len(said), len(held))]


def _record(session: ModelSession, record: SessionRecord) -> Iterator[Difference]:
    yield "status", session.status, record.status
    yield "version", session.version, record.version
    yield "last_seq", session.last_seq, record.last_seq
    yield "user_id", session.user_id, record.user_id
    yield "updated_at", session.updated, record.updated_at
    yield "created_at", session.created, record.created_at
    yield "closed_at", session.closed, record.closed_at
    yield "title", session.title, record.title
    yield "lifecycle", session.lifecycle[-32:], [(one.to, one.actor, one.reason) for one in record.lifecycle]
    yield "transitions", len(session.lifecycle), record.transitions
    yield "changed", session.changed, {k: v for k, v in msgspec.structs.asdict(record.changed).items() if v}
    if session.status == "DELETED":
        return
    yield "expires_at", session.expires, record.expires_at
    yield "erases_at", session.erases, record.erases_at
    yield "external_id", session.external_id, record.external_id
    yield "turn", session.turn, None if record.turn is None else record.turn.run_id
    if session.turn is not None and record.turn is not None:
        run = session.runs[session.turn]
        turn = (run.status, run.attempt, run.cancel_requested)
        yield "turn's run", turn, (record.turn.status, record.turn.attempt, record.turn.cancel_requested)
    yield "asked until", session.asked_until, record.question_expires_at
    children = [(run_id, session.runs[run_id].cancel_requested) for run_id in session.children]
    yield "children", children, [(child.run_id, child.cancel_requested) for child in record.children]
    yield "queue", session.queue, [waiting.run_id for waiting in record.queue]
    yield "asked", session.asked, list(record.asked)
    yield "open_calls", [call.seq for call in session.open_calls()], [call.seq for call in record.open_calls]
    yield from _leases(session, record)
    yield "messages", len(session.messages()), record.messages
    yield "tool_calls", len(session.calls), record.tool_calls
    yield "runs", len(session.runs), record.runs
    tokens = sum(run.tokens for run in session.runs.values() if run.status in ("COMPLETED", "FAILED", "CANCELLED"))
    yield "usage", tokens, record.usage.total_tokens


def _leases(session: ModelSession, record: SessionRecord) -> Iterator[Difference]:
    """Each lease, and the store's entry for the one that ends first."""
    order = [*session.queue, *([session.turn] if session.turn else [])]
    said = [session.leases[run_id] for run_id in order if run_id in session.leases]
    yield (
        "leases",
        [(one.each, one.until, one.clock) for one in said],
        [(one.each, one.until, one.clock) for one in record.leases()],
    )
    if len({lease.clock for lease in said}) <= 1:
        yield "lease_until", min((lease.until for lease in said), default=None), record.lease_until


def _entry(entry: Entry) -> tuple[Any, ...]:
    return entry.seq, entry.version, entry.kind, entry.at, entry.actor, entry.run_id, entry.refers_to, entry.status


def _event(event: Event) -> tuple[Any, ...]:
    return event.seq, event.version, event.kind, event.at, event.actor, event.run_id, event.refers_to, event.status


def _said(entry: Entry) -> Any:
    return entry.body


def _bodies(session: ModelSession, log: tuple[Event, ...]) -> list[Any]:
    """Bytes where the model gives bytes; a message that Satchel wrote is compared by its value."""
    held: list[Any] = []
    for entry, event in zip(session.messages(), (one for one in log if one.kind == "message"), strict=False):
        if isinstance(entry.body, bytes):
            held.append(event.body)
            continue
        body = decode(event.body)
        if isinstance(entry.body["content"], Json):
            same = decode(body["content"]) == entry.body["content"].value
            body["content"] = entry.body["content"] if same else body["content"]
        held.append(body)
    return held


RUN = (
    *("run_id", "number", "version", "goal", "status", "attempt", "max_attempts", "steps", "created", "started"),
    *("ended", "stop_reason", "cancel_requested", "input_seq", "parent_run_id", "memory", "not_merged"),
)


def _run(run: ModelRun) -> tuple[Any, ...]:
    said = None if run.input is None else decode(run.input)
    return (*(getattr(run, name) for name in RUN), run.tokens, run.error, said, run.question, run.expires, run.layer)


def _run_row(row: RunRow) -> tuple[Any, ...]:
    shown = Run.from_row(row, session_id="")
    error = None if shown.error is None else shown.error.code
    question = (None, None) if shown.question is None else (shown.question.name, shown.question.expires)
    layer = patched({}, shown.working_memory)
    return (*(getattr(shown, name) for name in RUN), shown.usage.total_tokens, error, shown.input, *question, layer)


CALL = ("seq", "version", "tool", "arguments", "run_id", "status", "repeat_of", "result", "error")


def _call(call: ModelCall) -> tuple[Any, ...]:
    return (*(getattr(call, name) for name in CALL), call.label, call.start, call.end)


def _call_row(row: CallRow) -> tuple[Any, ...]:
    shown = ToolCall.from_row(row)
    return (*(getattr(shown, name) for name in CALL), shown.tool_call_id, shown.start_at, shown.end_at)


def _replayed(
    session: ModelSession,
    record: SessionRecord,
    log: tuple[Event, ...],
    runs: tuple[RunRow, ...],
    calls: tuple[CallRow, ...],
    working_memory: bytes,
    metadata: bytes,
) -> Iterator[Difference]:
    """What the log alone says, beside the rows. Leases are in no log."""
    header = SessionRecord(
        tenant_id=record.tenant_id,
        session_id=record.session_id,
        user_id=record.user_id,
        revision=0,
        created_at=record.created_at,
        updated_at=record.created_at,
        active_at=record.created_at,
        clock_from=record.created_at,
        title=session.first_title,
        policy=SessionPolicy(),
    )
    replay = Replay(header, metadata=msgspec.json.encode(session.first_metadata))
    for event in log:
        replay.take(event)
    again = replay.state.existing
    for name in ("version", "last_seq", "updated_at", "status", "closed_at", "title", "lifecycle", "transitions"):
        yield from _differ(f"replayed {name}", getattr(again, name), getattr(record, name))
    for name in (*COUNTED, "changed"):
        yield from _differ(f"replayed {name}", getattr(again, name), getattr(record, name))
    turns = (
        None if one.turn is None else (one.turn.run_id, one.turn.status, one.turn.attempt, one.turn.expires_at)
        for one in (again, record)
    )
    yield from _differ("replayed turn", *turns)
    queue = [waiting.run_id for waiting in again.queue]
    yield from _differ("replayed queue", queue, [waiting.run_id for waiting in record.queue])
    rows = sorted(replay.state.runs.values(), key=lambda row: row.number)
    yield from _listed("replayed run", [_without_input(row) for row in rows], [_without_input(row) for row in runs])
    yield from _listed("replayed call", [replay.state.calls[seq] for seq in sorted(replay.state.calls)], list(calls))
    yield from _differ("replayed memory", decode(replay.working_memory or b"{}"), decode(working_memory or b"{}"))
    yield from _differ("replayed metadata", decode(replay.state.metadata), decode(metadata or b"{}"))


def _differ(what: str, said: Any, held: Any) -> Iterator[Difference]:
    if said != held:
        yield what, said, held


def _without_input(row: RunRow) -> RunRow:
    """The input of a run that has not started is in no event."""
    return msgspec.structs.replace(row, input=NO_JSON, input_actor="", input_weight=None, input_metadata=NO_JSON)
