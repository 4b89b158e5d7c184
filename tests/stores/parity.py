"""The same changes into the memory store and another, and every read compared."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, Literal, get_args

import msgspec

from satchel.domain.event import CHAT_FORMAT, Event, EventKind
from satchel.domain.idempotency import Answer, IdempotencyRecord
from satchel.domain.ids import SessionRef
from satchel.domain.policy import SessionPolicy
from satchel.domain.record import OpenCall, SessionRecord, SessionStatus, Turn, Waiting
from satchel.domain.run import RunError, RunRow, Usage
from satchel.domain.state import Clock, Want
from satchel.domain.tool_call import CallRow
from satchel.store import Change, Loaded, Outcome, Store
from satchel.stores.memory import MemoryStore

REFS = [
    SessionRef(tenant, session) for tenant in ("acme", "Acme", "acme ") for session in ("s1", "S1", "s1 ", "ß", "s")
]
USERS = ("ada", "Ada", "bob")
TEXTS = [
    b'{"a":"\\u0000"}',
    '{"role":"user","content":"早上好 🙂"}'.encode(),
    b'{ "n" : 1e2, "m":1.10 }',
    b'{"x":[]}',
    b"[]",
]
RUNS = [f"run_{n}" for n in range(4)]
HASHES = [bytes([n]) * 16 for n in range(3)]
QUEUES: tuple[Literal["ready"], Literal["sweep"]] = ("ready", "sweep")
LABELS = (None, "call_1", "call_2")


class Time:
    now = 1_000_000

    def __call__(self) -> Clock:
        return Clock(self.now, self.now // 2, "boot")


class History:
    """Draws changes that a store may be given; holds what it needs to know of the sessions."""

    def __init__(self, seed: int, time: Time) -> None:
        self.random = random.Random(seed)
        self.time = time
        self.records: dict[SessionRef, SessionRecord] = {}
        self.calls: dict[SessionRef, dict[int, CallRow]] = {}
        self.numbers: dict[tuple[SessionRef, str], int] = {}
        self.keys: list[bytes] = []

    def batch(self) -> list[Change]:
        chosen = self.random.sample(REFS, self.random.randint(1, 4))
        return [self.change(ref) for ref in chosen]

    def change(self, ref: SessionRef) -> Change:
        draw = self.random
        old = self.records.get(ref)
        base = None if old is None else old.revision
        if draw.random() < 0.1:
            base = draw.choice([None, 0, 10**9])  # stale, or by chance not
        seq = 0 if old is None else old.last_seq
        calls = self.calls.setdefault(ref, {})
        events: list[Event] = []
        rows: dict[int, CallRow] = {}
        for _ in range(draw.randint(0, 4)):
            seq += 1
            kind = draw.choice(("message", "message", *get_args(EventKind)))
            event = self.event(seq, kind)
            events.append(event)
            if kind in ("tool_call_started", "tool_call_recorded"):
                rows[seq] = self.call(seq)
            elif kind == "tool_call_finished" and (calls or rows):
                row = draw.choice([*calls.values(), *rows.values()])
                rows[row.seq] = msgspec.structs.replace(
                    row, status=draw.choice(["succeeded", "failed"]), end_time=self.time.now, result_seq=seq
                )
        runs = {run.run_id: run for run in (self.run(ref, seq) for _ in range(draw.randint(0, 2)))}
        idempotency = [self.kept() for _ in range(draw.randint(0, 2))]
        record = self.record(ref, old, seq, rows)
        return Change(
            ref=ref,
            base=base,
            record=record,
            not_after=draw.choice([None, None, self.time.now + 5, self.time.now, self.time.now - 1]),
            events=tuple(events),
            runs=tuple(runs.values()),
            calls=tuple(rows.values()),
            working_memory=draw.choice([None, None, b"", *TEXTS]),
            metadata=draw.choice([None, None, b"", *TEXTS]),
            idempotency=tuple(idempotency),
        )

    def applied(self, change: Change) -> None:
        self.records[change.ref] = change.record
        self.calls[change.ref].update({call.seq: call for call in change.calls})

    def record(self, ref: SessionRef, old: SessionRecord | None, seq: int, rows: dict[int, CallRow]) -> SessionRecord:
        draw = self.random
        turn = draw.choice(
            [
                None,
                Turn(
                    run_id=draw.choice(RUNS), status=draw.choice(["READY", "RUNNING"]), agent=draw.choice(["", "shop"])
                ),
            ]
        )
        status: SessionStatus = draw.choice(["ACTIVE", "ACTIVE", "ACTIVE", "CLOSED", "EXPIRED", "DELETED"])
        if old is not None and draw.random() < 0.5:
            status, turn = old.status, old.turn
        lease = draw.choice([None, self.time.now // 2 + draw.randint(-50, 50)])
        return SessionRecord(
            tenant_id=ref.tenant_id,
            session_id=ref.session_id,
            user_id=old.user_id if old is not None and draw.random() < 0.9 else draw.choice(USERS),
            revision=draw.randint(1, 10**12) if old is None else old.revision + 1,
            created_at=1,
            updated_at=self.time.now - draw.randint(0, 3),
            active_at=self.time.now,
            clock_from=1,
            status=status,
            last_seq=seq,
            hidden=draw.random() < 0.1,
            policy=SessionPolicy(idle=draw.choice([None, 40]), retention=draw.choice([None, 1, 20])),
            closed_at=None if status == "ACTIVE" else self.time.now - draw.randint(0, 25),
            turn=turn,
            queue=tuple(Waiting(run_id=run_id) for run_id in draw.sample(RUNS, draw.randint(0, 2))),
            open_calls=tuple(OpenCall(seq=call) for call in rows),
            sweep_at=draw.choice([None, self.time.now + draw.randint(-50, 50)]),
            lease_until=lease,
            lease_clock="" if lease is None else draw.choice(["boot", "another boot"]),
        )

    def event(self, seq: int, kind: EventKind) -> Event:
        draw = self.random
        return Event(
            seq=seq,
            version=seq,
            kind=kind,
            at=self.time.now,
            actor=draw.choice(["user:ada", "operator"]),
            body=draw.choice(TEXTS),
            run_id=draw.choice([None, *RUNS]),
            refers_to=draw.randint(1, seq) if kind == "message_retracted" else draw.choice([None, 1]),
            status=draw.choice(["complete", "interrupted", "unanswered"]),
            format=draw.choice([CHAT_FORMAT, "x.y"]),
            metadata=draw.choice([None, b'{"k":"v"}']),
            outcome=draw.choice([None, "failed/text"]),
        )

    def call(self, seq: int) -> CallRow:
        draw = self.random
        return CallRow(
            seq=seq,
            version=seq,
            tool=draw.choice(["read_file", "run_shell"]),
            arguments_hash=draw.choice(HASHES),
            status="started",
            start_time=self.time.now,
            tool_call_id=draw.choice(LABELS),
            run_id=RUNS[0] if seq % 3 else draw.choice([None, *RUNS]),
            result_kind=draw.choice(["event", "text", "json"]),
            repeat_of=draw.choice([None, 1]),
            step=(None, "one", "zwei ß")[seq % 3],  # a call keeps its name and its run
        )

    def run(self, ref: SessionRef, seq: int) -> RunRow:
        draw = self.random
        run_id = draw.choice(RUNS)
        said = draw.choice([None, *range(1, seq + 1)])
        return RunRow(
            run_id=run_id,
            number=self.numbers.setdefault((ref, run_id), len(self.numbers) + 1),
            status=draw.choice(["READY", "RUNNING", "WAITING", "COMPLETED"]),
            created_at=1,
            version=seq,
            goal=draw.choice(["", "find out why"]),
            usage=draw.choice([Usage(), Usage(input_tokens=5)]),
            error=draw.choice([None, RunError(code="worker_lost")]),
            input_seq=said,
            cancel_requested=draw.random() < 0.2,
            metadata=msgspec.Raw(draw.choice([b"", b'{"a": 1.0}'])),
            input=msgspec.Raw(b"" if said is not None else draw.choice([b"", *TEXTS])),
            input_metadata=msgspec.Raw(draw.choice([b"", b"{}"])),
        )

    def kept(self) -> IdempotencyRecord:
        self.keys.append(self.random.randbytes(16))
        return IdempotencyRecord(
            self.keys[-1], self.random.randbytes(16), Answer(version=1, at=self.time.now, seqs=(1,), ids=("ß",))
        )


def plain(value: Any) -> Any:
    """Comparable: a Raw has no equality of its content after a copy of its buffer, a state has none."""
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    if isinstance(value, msgspec.Struct):
        return type(value).__name__, {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if hasattr(value, "same_calls"):
        return {name: plain(getattr(value, name)) for name in value.__slots__}
    return value


async def reads(store: Store, history: History) -> list[Any]:
    draw = random.Random(history.time.now)
    seen: list[Any] = []
    for ref in REFS:
        seen.append(
            await store.snapshot(
                ref, messages=draw.randint(0, 5), tool_calls=draw.randint(0, 5), runs=draw.randint(0, 3)
            )
        )
        for _ in range(3):
            seen.append(
                await store.events(
                    ref,
                    after=draw.choice([0, 3]),
                    before=draw.choice([None, 0, 1, 9, 20]),
                    newest_first=draw.random() < 0.5,
                    kind=draw.choice([None, "message", "run_step"]),
                    run_id=draw.choice([None, None, *RUNS]),
                    with_retracted=draw.random() < 0.5,
                    limit=draw.choice([1, 5, 100]),
                )
            )
            seen.append(
                await store.tool_calls(
                    ref,
                    run_id=draw.choice([None, None, *RUNS]),
                    tool=draw.choice([None, "read_file"]),
                    arguments_hash=draw.choice([None, *HASHES]),
                    tool_call_id=draw.choice(LABELS),
                    is_open=draw.choice([None, True, False]),
                    after=draw.choice([0, 3]),
                    before=draw.choice([None, 9]),
                    newest_first=draw.random() < 0.5,
                    limit=draw.choice([1, 100]),
                )
            )
            seen.append(
                await store.runs(
                    ref,
                    run_id=draw.choice([None, None, *RUNS]),
                    status=draw.choice([None, "READY"]),
                    after_number=draw.choice([0, 2]),
                    before_number=draw.choice([None, 9]),
                    newest_first=draw.random() < 0.5,
                    limit=draw.choice([1, 100]),
                )
            )
    seen += [
        await store.sessions(
            tenant,
            user_id=draw.choice([None, *USERS]),
            status=draw.choice([None, "ACTIVE", "CLOSED", "EXPIRED"]),
            updated_from=draw.choice([None, history.time.now - 30]),
            updated_before=draw.choice([None, history.time.now - 1]),
            after=draw.choice([None, (history.time.now - 2, "s1")]),
            limit=draw.choice([1, 100]),
        )
        for tenant in 6 * ("acme", "Acme", "acme ", "ac")
    ]
    seen += [
        await store.due(queue, agent=agent, after=after, limit=draw.choice([1, 100]))
        for queue in QUEUES
        for after in (None, SessionRef("acme", "s1"), REFS[-1])
        for agent in (None, "", "shop")
    ]
    wanted = {
        ref: Want(
            keys=tuple(draw.sample(history.keys, min(3, len(history.keys)))),
            run_ids=tuple(draw.sample(RUNS, 2)),
            call_seqs=(1, 2, 3),
            arguments_hashes=tuple(HASHES),
            steps=((RUNS[0], "one"), (RUNS[0], "zwei ß"), (RUNS[1], "one"), (RUNS[0], "ONE")),
            event_seqs=(1, 2, 4),
            open_work=draw.random() < 0.5,
            working_memory=draw.random() < 0.5,
            metadata=draw.random() < 0.5,
        )
        for ref in REFS
    }
    seen.append(await store.load(wanted))
    return seen


async def commit(store: Store, changes: list[Change], *, through_transact: bool) -> list[Outcome]:
    if not through_transact:
        return await store.commit(changes)

    def decide(loaded: Loaded) -> list[Change]:
        assert set(loaded.sessions) == {change.ref for change in changes}
        return changes

    return await store.transact({change.ref: Want() for change in changes}, decide)


async def assert_parity(
    seed: int, make: Callable[[Callable[[], Clock]], Awaitable[Store]], *, steps: int = 80, every: int = 8
) -> None:
    """What the store that ``make`` gives, open, says is what memory says; and what another door to the same data says."""
    time = Time()
    memory, other = MemoryStore(clock=time), await make(time)
    await memory.open()
    history = History(seed, time)
    outcomes: set[Outcome] = set()
    try:
        for step in range(steps):
            time.now += history.random.randint(0, 4)
            changes = history.batch()
            through_transact = history.random.random() < 0.7
            expected = await commit(memory, changes, through_transact=through_transact)
            assert await commit(other, changes, through_transact=through_transact) == expected
            outcomes.update(expected)
            for change, outcome in zip(changes, expected, strict=True):
                if outcome is Outcome.APPLIED:
                    history.applied(change)
            if step % every == every - 1:
                await assert_same(other, memory, history)
    finally:
        await other.close()
    assert outcomes == {Outcome.APPLIED, Outcome.STALE}
    again = await make(time)
    try:
        await assert_same(again, memory, history)
    finally:
        await again.close()


async def assert_same(ours: Store, theirs: Store, history: History) -> None:
    for mine, expected in zip(await reads(ours, history), await reads(theirs, history), strict=True):
        assert plain(mine) == plain(expected)
