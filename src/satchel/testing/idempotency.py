"""Same key, same request: the first answer. And an outcome that nobody could tell is found out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from satchel.domain.ids import SessionRef
from satchel.domain.memory import WorkingMemory
from satchel.domain.principal import Principal
from satchel.domain.run import Attempt
from satchel.errors import (
    IdempotencyMismatch,
    InvalidInput,
    LimitExceeded,
    RunFenced,
    SessionClosed,
    SessionDeleted,
)
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, BOB, Stage, lasting, refused, said, unchanged
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import RivalStore, UnknownStore

Write = Callable[[Stage, str, str], Awaitable[Any]]


async def _finish(stage: Stage, sid: str, key: str) -> Any:
    return await stage.sessions(AGENT).finish_tool_call(sid, 1, result="x", idempotency_key=key)


async def _retract(stage: Stage, sid: str, key: str) -> Any:
    return await stage.sessions(AGENT).retract_message(sid, 2, idempotency_key=key)


def _sessions(verb: str, *arguments: Any, who: Principal = AGENT, **options: Any) -> Write:
    def call(stage: Stage, sid: str, key: str) -> Awaitable[Any]:
        written: Awaitable[Any] = getattr(stage.sessions(who), verb)(sid, *arguments, **options, idempotency_key=key)
        return written

    return call


# Every write: on a session whose log begins with an open call (1) and a message (2).
WRITES: dict[str, Write] = {
    "append_message": _sessions("append_message", said("x")),
    "append_messages": _sessions("append_messages", [said("x"), said("y")]),
    "retract_message": _retract,
    "append_tool_history": _sessions("append_tool_history", {"tool": "t", "result": 1}),
    "start_tool_call": _sessions("start_tool_call", "t", {"a": 1}),
    "finish_tool_call": _finish,
    "update_working_memory": _sessions("update_working_memory", {"append": {"plan": "x"}}),
    "replace_working_memory": _sessions("replace_working_memory", {"goal": "x"}, expected_version=2),
    "update_session": _sessions("update_session", metadata={"k": 1}),
    "rename_session": _sessions("rename_session", "t"),
    "close_session": _sessions("close_session"),
    "expire_session": _sessions("expire_session", who=ADMIN),
    "transfer_session": _sessions("transfer_session", "bob", who=ADMIN),
    "add_run": _sessions("add_run", goal="x", input="y"),
}


class IdempotencySuite(StoreSuite):
    async def prepared(self, stage: Stage) -> str:
        sid = await stage.session()
        await stage.sessions(AGENT).start_tool_call(sid, "t")
        await stage.sessions(AGENT).append_message(sid, said("first"))
        return sid

    async def test_two_runs_may_call_their_steps_the_same(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        seqs = []
        for number in (1, 2):
            async with agent.run(sid, input=f"question {number}") as run:
                answer = said(f"answer {number}", "assistant")
                first = await run.append_message(answer, idempotency_key="final-answer")
                again = await run.append_message(answer, idempotency_key="final-answer")
                assert (again.seq, again.replayed) == (first.seq, True)
                seqs.append(first.seq)
        assert len(set(seqs)) == 2

    @pytest.mark.parametrize("name", WRITES)
    async def test_a_retry_gets_the_first_answer_and_stores_nothing(self, stage: Stage, name: str) -> None:
        sid = await self.prepared(stage)
        first = await WRITES[name](stage, sid, "key-1")
        async with unchanged(stage, sid):
            again = await WRITES[name](stage, sid, "key-1")
        one, other = (answer[0] if isinstance(answer, tuple) else answer for answer in (first, again))
        assert (one.replayed, other.replayed) == (False, True)
        assert _facts(first) == _facts(again)

    @pytest.mark.parametrize("name", [name for name in WRITES if name not in ("close_session", "expire_session")])
    async def test_a_retry_gets_its_answer_also_after_a_close(self, stage: Stage, name: str) -> None:
        sid = await self.prepared(stage)
        first = await WRITES[name](stage, sid, "key-1")
        await stage.sessions(AGENT).append_message(sid, said("in between"))
        await stage.sessions(AGENT).close_session(sid)
        async with unchanged(stage, sid):
            again = await WRITES[name](stage, sid, "key-1")
            async with refused(stage, sid, SessionClosed):
                await stage.sessions(AGENT).append_message(sid, said("x"), idempotency_key="another")
        if name not in ("update_session", "rename_session", "transfer_session"):  # a Session is read now
            assert _facts(first) == _facts(again)

    @pytest.mark.parametrize("name", WRITES)
    async def test_the_same_key_twice_at_once_writes_once(self, stage: Stage, second: Stage, name: str) -> None:
        """In one batch, and by another process."""
        sid = await self.prepared(stage)
        before = (await stage.record(sid)).version
        doors = (stage, stage, second, second)
        told = await asyncio.gather(*(WRITES[name](door, sid, "key-1") for door in doors))
        flat = [answer[0] if isinstance(answer, tuple) else answer for answer in told]
        first_answers = [answer for answer in flat if not answer.replayed]
        if not isinstance(stage.store, UnknownStore):  # there, each process may take what it finds for its own
            assert len(first_answers) == 1
        assert first_answers
        assert (await stage.record(sid)).version == before + 1

    async def test_the_same_key_for_another_request_is_refused(self, stage: Stage) -> None:
        sid = await self.prepared(stage)
        agent = stage.sessions(AGENT)
        await agent.append_message(sid, said("x"), idempotency_key="key-1")
        others: tuple[Awaitable[Any], ...] = (
            agent.append_message(sid, said("y"), idempotency_key="key-1"),
            agent.append_message(sid, said("x"), metadata={}, idempotency_key="key-1"),
            agent.append_message(sid, b'{"role": "user", "content": "x"}', idempotency_key="key-1"),
            agent.append_messages(sid, [said("x"), said("x")], idempotency_key="key-1"),
            agent.append_message(sid, said("x"), status="interrupted", idempotency_key="key-1"),
            agent.append_tool_history(sid, {"tool": "t"}, idempotency_key="key-1"),
            agent.close_session(sid, idempotency_key="key-1"),
            stage.runs(AGENT).add_run(sid, idempotency_key="key-1"),
        )
        for other in others:
            async with refused(stage, sid, IdempotencyMismatch):
                await other

    async def test_the_expected_version_is_no_part_of_the_request(self, stage: Stage) -> None:
        sid = await self.prepared(stage)
        agent = stage.sessions(AGENT)
        first = await agent.append_message(sid, said("x"), expected_version=2, idempotency_key="key-1")
        for version in (None, 2, 3):
            again = await agent.append_message(sid, said("x"), expected_version=version, idempotency_key="key-1")
            assert (again.seq, again.version, again.replayed) == (first.seq, 3, True)

    async def test_keys_are_shared_within_a_side_and_by_no_other(self, stage: Stage) -> None:
        sid = await self.prepared(stage)

        async def append(who: Principal) -> tuple[int, bool]:
            told = await stage.sessions(who).append_message(sid, said("x"), idempotency_key="key-1")
            return told.seq, told.replayed

        assert await append(ADA) == (3, False)
        assert await append(ADAS_AGENT) == (3, True)  # an agent that acts for Ada is on Ada's side
        assert await append(AGENT) == (4, False)
        assert await append(Principal.agent("another worker", tenant_id="acme")) == (4, True)
        assert await append(ADMIN) == (5, False)

    async def test_keys_belong_to_one_session(self, stage: Stage) -> None:
        for sid in (await stage.session(), await stage.session()):
            told = await stage.sessions().append_message(sid, said("x"), idempotency_key="key-1")
            assert (told.seq, told.replayed) == (1, False)

    async def test_a_call_that_changes_nothing_leaves_its_record_too(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = stage.sessions()
        restored = await sessions.restore_session(sid, idempotency_key="key-1")
        assert (restored.version, restored.replayed) == (0, False)
        await sessions.close_session(sid)
        late = await sessions.restore_session(sid, idempotency_key="key-1")
        assert (late.status, late.replayed) == ("CLOSED", True)

    async def test_a_refusal_is_not_stored(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = stage.sessions()
        await sessions.close_session(sid)
        async with refused(stage, sid, SessionClosed):
            await sessions.append_message(sid, said("x"), idempotency_key="key-1")
        await sessions.restore_session(sid)
        told = await sessions.append_message(sid, said("x"), idempotency_key="key-1")
        assert told.replayed is False

    async def test_a_retry_creates_nothing_twice(self, stage: Stage, second: Stage) -> None:
        doors = (stage, second, stage, second)
        made = await asyncio.gather(
            *(door.sessions().create_session(title="t", idempotency_key="key-1") for door in doors)
        )
        assert len({session.session_id for session in made}) == 1
        if not isinstance(stage.store, UnknownStore):
            assert sorted(session.replayed for session in made) == [False, True, True, True]
        with pytest.raises(IdempotencyMismatch):
            await stage.sessions().create_session(title="another", idempotency_key="key-1")
        of_bob = await stage.sessions(BOB).create_session(title="t", idempotency_key="key-1")
        assert of_bob.session_id != made[0].session_id
        await stage.sessions().delete_session(made[0].session_id)
        with pytest.raises(SessionDeleted):
            await stage.sessions().create_session(title="t", idempotency_key="key-1")

    async def test_a_retry_of_a_run_adds_and_claims_nothing_twice(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        first = await runs.add_run(sid, input="x", start=True, idempotency_key="key-1")
        again = await runs.add_run(sid, input="x", start=True, idempotency_key="key-1")
        assert (again.run_id, again.attempt, again.status, again.replayed) == (first.run_id, 1, "RUNNING", True)
        await runs.complete_run(sid, Attempt(first.run_id, 1))
        after = await runs.add_run(sid, input="x", start=True, idempotency_key="key-1")
        assert (after.status, after.version, after.end_time, after.stop_reason) == (
            "RUNNING",
            first.version,
            None,
            None,
        )
        assert len(await stage.sessions().messages(sid)) == 1

    async def test_a_repeated_claim_is_not_given_the_attempt_of_who_claimed_after_it(self, stage: Stage) -> None:
        sid = await stage.session()
        runs = stage.runs()
        run = await runs.add_run(sid, max_attempts=2)
        await runs.start_run(sid, run.run_id, lease=10, idempotency_key="worker-1")
        stage.clock.pass_time(10)
        await runs.start_run(sid, run.run_id, lease=10, idempotency_key="worker-2")
        again = await runs.start_run(sid, run.run_id, lease=10, idempotency_key="worker-1")
        assert (again.attempt, again.replayed) == (1, True)
        async with refused(stage, sid, RunFenced):
            await runs.complete_run(sid, Attempt(run.run_id, again.attempt))

    async def test_a_runs_keys_hold_its_run_and_attempt(self, stage: Stage) -> None:
        sid = await stage.session()
        runs, agent = stage.runs(), stage.sessions(ADAS_AGENT)
        run = await runs.add_run(sid, max_attempts=2)
        told = []
        for number in (1, 2):
            await runs.start_run(sid, run.run_id, lease=10)
            attempt = Attempt(run.run_id, number)
            for _ in range(2):
                step = await agent.append_message(sid, said("step", "assistant"), attempt=attempt, idempotency_key="k")
                told.append(step.replayed)
            stage.clock.pass_time(10)
        assert told == [False, True, False, True]

    async def test_a_repeated_fork_is_one_session(self, stage: Stage) -> None:
        sid = await self.prepared(stage)
        sessions = stage.sessions()
        first = await sessions.fork_session(sid, title="t", idempotency_key="key-1")
        again = await sessions.fork_session(sid, title="t", idempotency_key="key-1")
        assert again.session_id == first.session_id
        assert (first.replayed, again.replayed) == (False, True)
        with pytest.raises(IdempotencyMismatch):
            await sessions.fork_session(sid, title="another", idempotency_key="key-1")

    async def test_keys_are_visible_ascii_of_at_most_255_characters(self, stage: Stage) -> None:
        sid = await stage.session()
        for wrong in ("", "a b", "a\nb", "é", "\0", 7, b"key"):
            async with refused(stage, sid, InvalidInput, field="idempotency_key"):
                await stage.sessions().append_message(sid, said("x"), idempotency_key=wrong)  # type: ignore[arg-type]  # wrong on purpose
        async with refused(stage, sid, LimitExceeded, size=256, limit=255):
            await stage.sessions().append_message(sid, said("x"), idempotency_key="k" * 256)
        told = [
            await stage.sessions().append_message(sid, said("x"), idempotency_key=key)
            for key in ("k", "K", "k~!", "k" * 255)
        ]
        assert [message.replayed for message in told] == [False] * 4

    # -- unknown outcomes

    @pytest.mark.parametrize("seed", range(8))
    async def test_an_unknown_outcome_is_found_out_inside_and_nothing_is_written_twice(
        self, stage: Stage, seed: int
    ) -> None:
        flaky = UnknownStore(stage.store, seed=seed, share=0.6)
        door = Stage(flaky, stage.clock)
        sid = await door.session()
        agent = door.sessions(AGENT)
        for n in range(10):
            told = await agent.append_message(sid, said(str(n)), idempotency_key=f"key-{n}" if n % 2 else None)
            assert told.seq == n + 1
        await agent.update_working_memory(sid, {"append": {"plan": "once"}})
        _, attempt = await door.started_run(sid, AGENT, input="once")
        await door.runs(AGENT).complete_run(sid, attempt)
        assert flaky.unknown_applied + flaky.unknown_lost > 0
        assert [message.content for message in await agent.messages(sid)] == [*map(str, range(10)), "once"]
        assert (await agent.get_working_memory(sid)).plan == ("once",)
        assert (await stage.record(sid)).version == 13

    async def test_a_call_without_a_key_never_hears_that_it_was_made_before(self, stage: Stage) -> None:
        door = Stage(UnknownStore(stage.store, seed=1, share=0.9), stage.clock)
        sid = await door.session()
        told = [await door.sessions().append_message(sid, said("x")) for _ in range(10)]
        assert [message.replayed for message in told] == [False] * 10

    async def test_the_record_is_in_the_commit_of_the_effect(self, stage: Stage) -> None:
        """A rival's commit between load and commit makes the whole change stale, its record with it."""
        sid = await stage.session()
        racing = RivalStore(stage.store)
        slow = Stage(racing, stage.clock)

        async def close() -> None:
            await stage.sessions().close_session(sid)

        racing.rival = close
        with pytest.raises(SessionClosed):
            await slow.sessions().append_message(sid, said("x"), idempotency_key="key-1")
        await stage.sessions().restore_session(sid)
        told = await stage.sessions().append_message(sid, said("x"), idempotency_key="key-1")
        assert told.replayed is False

    async def test_records_live_as_long_as_the_session(self, stage: Stage) -> None:
        sid = await self.prepared(stage)
        await stage.sessions().append_message(sid, said("x"), idempotency_key="key-1")
        await stage.sessions().delete_session(sid)
        assert await stage.store.erase(SessionRef("acme", sid), 100) == 0

    async def test_a_retry_of_a_creation_tells_again_whether_the_session_was_found(self, stage: Stage) -> None:
        sessions = stage.sessions()
        made = await sessions.create_session(external_id="talk", idempotency_key="makes")
        assert made.existed is False
        for _ in range(2):
            found = await sessions.create_session(external_id="talk", idempotency_key="finds")
            assert (found.session_id, found.existed) == (made.session_id, True)
        await sessions.append_message(made.session_id, said("x"))
        assert (await sessions.create_session(external_id="talk", idempotency_key="makes")).existed is False
        assert (await sessions.create_session(idempotency_key="nameless")).existed is False
        assert (await sessions.create_session(idempotency_key="nameless")).existed is False

    async def test_a_retry_of_a_memory_write_shows_the_memory_as_it_was_first_answered(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)

        async def patch(key: str, version: int, **patch: Any) -> WorkingMemory:
            return await agent.update_working_memory(sid, patch, expected_version=version, idempotency_key=key)

        async def replace() -> WorkingMemory:
            return await agent.replace_working_memory(
                sid, {"goal": "g2", "notes": {"n": 1}}, expected_version=2, idempotency_key="whole"
            )

        writes: list[Callable[[], Awaitable[WorkingMemory]]] = [
            lambda: patch("first", 0, append={"plan": "a"}, set={"goal": "g"}),
            lambda: patch("second", 1, append={"plan": ["b", "c"]}, remove={"plan": "a"}),
            replace,
            lambda: patch("nothing", 3, remove={"plan": "absent"}),  # a no-op, which leaves its key too
            lambda: patch("third", 3, clear=["notes"], append={"errors": "e"}),
        ]
        answered = [await write() for write in writes]
        await agent.append_message(sid, said("in between"))
        await agent.close_session(sid)
        async with unchanged(stage, sid):
            for write, first in zip(writes, answered, strict=True):
                again = await write()
                assert (again.replayed, first.replayed) == (True, False)
                assert (again.to_dict(), again.version) == (first.to_dict(), first.version)

    async def test_a_retry_of_a_write_to_a_layer_shows_the_memory_as_its_run_saw_it(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.update_working_memory(sid, {"append": {"plan": "before"}})
        for number in range(2):
            _, attempt = await stage.started_run(sid, memory="run")
            child = await stage.runs().add_child_run(sid, attempt)
            writers = (attempt, Attempt(child.run_id, child.attempt), attempt)
            writes = [
                (writer, {"append": {"completed": f"{number} {step}"}}, f"key-{number}-{step}")
                for step, writer in enumerate(writers)
            ]
            answered = [
                await agent.update_working_memory(sid, patch, attempt=writer, idempotency_key=key)
                for writer, patch, key in writes
            ]
            await agent.update_working_memory(sid, {"append": {"plan": f"by somebody {number}"}})
            if number:
                await stage.runs().complete_run(sid, attempt)
            else:
                await stage.runs().fail_run(sid, attempt, code="x")
            for (writer, patch, key), first in zip(writes, answered, strict=True):
                again = await agent.update_working_memory(sid, patch, attempt=writer, idempotency_key=key)
                assert again.replayed
                assert (again.to_dict(), again.version) == (first.to_dict(), first.version)

    async def test_a_tombstone_does_not_tell_that_a_key_was_used(self, stage: Stage) -> None:
        sid = await stage.session(idempotency_key="k", policy=lasting(idle=400, retention=1))
        stage.clock.pass_time(500)
        for key in ("k", "another"):  # the first one meets it overdue, with its records still there
            with pytest.raises(SessionDeleted):
                await stage.sessions().append_message(sid, said("late"), idempotency_key=key)


def _facts(answer: Any) -> Any:
    """What the commit fixed."""
    if isinstance(answer, tuple):
        return [_facts(one) for one in answer]
    names = ("version", "seq", "run_id", "session_id", "status", "attempt", "repeat_of", "message_id")
    return {name: getattr(answer, name) for name in names if hasattr(answer, name)}
