"""ACTIVE, CLOSED, EXPIRED, DELETED: how a session gets there, and back."""

from __future__ import annotations

import asyncio

import pytest

from satchel.errors import (
    RestoreRefused,
    SessionClosed,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
)
from satchel.testing.stage import (
    ADA,
    ADAS_AGENT,
    ADMIN,
    AGENT,
    BOB,
    Stage,
    lasting,
    refused,
    said,
    unchanged,
)
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import RivalStore

MICROSECOND = 0.000001


class LifecycleSuite(StoreSuite):
    async def test_a_new_session_is_active_at_version_0_without_an_event(self, stage: Stage) -> None:
        made = await stage.sessions().create_session(title="Flask will not start", metadata={"k": "v"})
        assert (made.status, made.version, made.last_seq) == ("ACTIVE", 0, 0)
        assert made.session_id.startswith("sess_")
        assert (made.title, made.metadata, made.user_id, made.tenant_id) == (
            "Flask will not start",
            {"k": "v"},
            "ada",
            "acme",
        )
        assert await stage.kinds(made.session_id) == []
        assert made == await stage.sessions().get_session(made.session_id)

    async def test_ids_do_not_repeat(self, stage: Stage) -> None:
        made = await asyncio.gather(*(stage.session() for _ in range(50)))
        assert len(set(made)) == 50

    # -- close and restore

    async def test_a_closed_session_is_read_and_refuses_writes(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("before"))
        closed = await stage.sessions().close_session(sid, reason="done for today")
        assert (closed.status, closed.version) == ("CLOSED", 2)
        assert closed.closed_at is not None
        agent = stage.sessions(ADAS_AGENT)
        for write in (
            lambda: agent.append_message(sid, said("late")),
            lambda: agent.append_tool_history(sid, {"tool": "t"}),
            lambda: agent.update_working_memory(sid, {"append": {"plan": "x"}}),
            lambda: agent.update_session(sid, title="late"),
            lambda: agent.add_run(sid),
            lambda: agent.retract_message(sid, 1),
            lambda: stage.sessions(ADMIN).transfer_session(sid, "bob"),
        ):
            async with refused(stage, sid, SessionClosed, session_id=sid):
                await write()
        assert [message.content for message in await stage.sessions().messages(sid)] == ["before"]

    async def test_restore_gives_everything_back(self, stage: Stage) -> None:
        agent = stage.sessions(ADAS_AGENT)
        sid = await stage.session()
        await agent.append_message(sid, said("帮我修复启动失败。"))
        await agent.append_tool_history(sid, {"tool": "read_file", "arguments": {"path": "app.py"}, "result": "x"})
        await agent.update_working_memory(sid, {"append": {"completed": "read app.py"}})
        _, attempt = await stage.started_run(sid, goal="find out why")
        await stage.runs().complete_run(sid, attempt)
        await agent.close_session(sid)
        restored = await agent.restore_session(sid)
        assert restored.status == "ACTIVE"
        assert restored.closed_at is None
        assert [message.content for message in restored.messages] == ["帮我修复启动失败。"]
        assert [call.tool for call in restored.tool_history] == ["read_file"]
        assert [run.goal for run in restored.runs] == ["find out why"]
        assert restored.working_memory is not None
        assert restored.working_memory.completed == ("read app.py",)

    async def test_each_verb_may_be_repeated_without_harm(self, stage: Stage) -> None:
        sid = await stage.session()
        sessions = stage.sessions()
        async with unchanged(stage, sid):
            assert (await sessions.restore_session(sid)).version == 0
        await sessions.close_session(sid)
        async with unchanged(stage, sid):
            assert (await sessions.close_session(sid)).version == 1
        await sessions.restore_session(sid)
        await stage.sessions(ADMIN).expire_session(sid)
        async with unchanged(stage, sid):
            await stage.sessions(ADMIN).expire_session(sid)
        assert (await sessions.delete_session(sid)).status == "DELETED"
        async with unchanged(stage, sid):
            assert (await sessions.delete_session(sid)).status == "DELETED"

    async def test_who_may_restore_is_the_policys_to_say(self, stage: Stage) -> None:
        by_admin = await stage.session(policy=lasting(restore_closed="admin"))
        never = await stage.session(policy=lasting(restore_closed="never"))
        for sid, policy in ((by_admin, "admin"), (never, "never")):
            await stage.sessions().close_session(sid)
            for who in (ADA, ADAS_AGENT, AGENT):
                async with refused(stage, sid, RestoreRefused, status="CLOSED", policy=policy):
                    await stage.sessions(who).restore_session(sid)
        assert (await stage.sessions(ADMIN).restore_session(by_admin)).status == "ACTIVE"
        async with refused(stage, never, RestoreRefused):
            await stage.sessions(ADMIN).restore_session(never)

    async def test_an_expired_session_has_a_policy_of_its_own(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=10, restore_expired="never"))
        stage.clock.pass_time(10)
        with pytest.raises(RestoreRefused) as met:
            await stage.sessions(ADMIN).restore_session(sid)
        assert (met.value.status, met.value.policy) == ("EXPIRED", "never")
        closed = await stage.session(policy=lasting(restore_expired="never"))
        await stage.sessions().close_session(closed)
        assert (await stage.sessions().restore_session(closed)).status == "ACTIVE"

    # -- what is open ends with the session

    @pytest.mark.parametrize("how", ["close", "max_lifetime", "expire"])
    async def test_open_runs_and_calls_end_in_the_commit_that_ends_the_session(self, stage: Stage, how: str) -> None:
        policy = lasting(max_lifetime=100) if how == "max_lifetime" else lasting(idle=1_000)
        sid = await stage.session(policy=policy)
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        _, attempt = await stage.started_run(sid, lease=3_600, input="one")
        waiting = await runs.add_run(sid, input="two", on_busy="queue")
        in_run = await agent.start_tool_call(sid, "run_shell", {}, attempt=attempt)
        loose = await agent.start_tool_call(sid, "read_file", {})
        before = await stage.record(sid)
        if how == "close":
            await agent.close_session(sid)
        elif how == "expire":
            await stage.sessions(ADMIN).expire_session(sid)
        else:
            stage.clock.step_wall(100)
            await stage.sessions().get_session(sid)
        after = await stage.record(sid)
        reason = "session_closed" if how == "close" else "session_expired"
        assert after.version == before.version + 1
        assert {event.version for event in (await stage.log(sid))[before.last_seq :]} == {after.version}
        held = {run.run_id: (run.status, run.stop_reason) for run in await runs.list_runs(sid)}
        assert held == {attempt.run_id: ("CANCELLED", reason), waiting.run_id: ("CANCELLED", reason)}
        calls = {call.seq: (call.status, call.ok) for call in await agent.tool_history(sid)}
        assert calls == {in_run.seq: ("unknown", None), loose.seq: ("unknown", None)}
        said_by_then = [(message.content, message.status) for message in await agent.messages(sid)]
        assert said_by_then == [("one", "complete"), ("two", "unanswered")]
        assert (after.turn, after.queue, after.open_calls, after.lease_until) == (None, (), (), None)

    async def test_a_worker_that_still_runs_is_refused(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid)
        await stage.sessions().close_session(sid)
        async with refused(stage, sid, SessionClosed):
            await stage.sessions(ADAS_AGENT).append_message(sid, said("late", "assistant"), attempt=attempt)
        async with refused(stage, sid, SessionClosed):
            await stage.runs().renew_run(sid, attempt)
        async with refused(stage, sid, SessionClosed):
            await stage.runs().complete_run(sid, attempt)

    # -- deletion

    async def test_a_deleted_session_is_gone_for_its_owner_and_unknown_to_strangers(self, stage: Stage) -> None:
        sid = await stage.session(title="secret", metadata={"k": "secret"})
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, said("secret"))
        tombstone = await stage.sessions().delete_session(sid, reason="asked to")
        assert (tombstone.status, tombstone.title, tombstone.metadata) == ("DELETED", "", {})
        assert [(one.to, one.actor, one.reason) for one in tombstone.lifecycle] == [("DELETED", "user:ada", "asked to")]
        for read in (
            agent.get_session(sid),
            agent.messages(sid),
            agent.events(sid),
            agent.tool_history(sid),
            agent.get_working_memory(sid),
            agent.context(sid),
            stage.runs().list_runs(sid),
        ):
            async with refused(stage, sid, SessionDeleted):
                await read
        for write in (
            agent.append_message(sid, said("late")),
            agent.close_session(sid),
            agent.restore_session(sid),
            agent.add_run(sid),
        ):
            async with refused(stage, sid, SessionDeleted):
                await write
        async with refused(stage, sid, SessionNotFound):
            await stage.sessions(BOB).get_session(sid)
        assert len(await stage.sessions().list_sessions()) == 0
        assert await stage.log(sid) == ()

    async def test_a_deleted_session_is_not_revived_by_a_late_write(self, stage: Stage) -> None:
        """Also with the write in flight: it was decided on a session that was there."""
        sid = await stage.session()
        racing = RivalStore(stage.store)
        slow = Stage(racing, stage.clock)

        async def delete() -> None:
            await stage.sessions().delete_session(sid)

        racing.rival = delete
        with pytest.raises(SessionDeleted):
            await slow.sessions().append_message(sid, said("late"))
        assert (await stage.record(sid)).status == "DELETED"
        assert await stage.log(sid) == ()

    async def test_an_external_id_names_a_new_session_after_a_deletion(self, stage: Stage) -> None:
        sessions = stage.sessions()
        first = await sessions.create_session(external_id="chat-1", title="first")
        again = await sessions.create_session(external_id="chat-1", title="ignored")
        assert (again.session_id, again.title) == (first.session_id, "first")
        with pytest.raises(SessionExists) as met:
            await sessions.create_session(external_id="chat-1", if_exists="raise")
        assert met.value.session_id == first.session_id
        await sessions.delete_session(first.session_id)
        second = await sessions.create_session(external_id="chat-1", title="second")
        assert second.session_id != first.session_id
        assert (second.title, second.version, second.external_id) == ("second", 0, "chat-1")
        await sessions.delete_session(second.session_id)
        third = await sessions.create_session(external_id="chat-1")
        assert third.session_id not in (first.session_id, second.session_id)

    async def test_an_external_id_names_a_new_session_after_a_transfer(self, stage: Stage) -> None:
        first = await stage.sessions().create_session(external_id="chat-1")
        await stage.sessions(ADMIN).transfer_session(first.session_id, "bob")
        second = await stage.sessions().create_session(external_id="chat-1")
        assert (second.session_id != first.session_id, second.user_id) == (True, "ada")
        of_bob = await stage.sessions(BOB).create_session(external_id="chat-1")
        assert of_bob.session_id not in (first.session_id, second.session_id)

    async def test_an_external_id_meets_nobody_elses(self, stage: Stage) -> None:
        of_ada = await stage.sessions(ADA).create_session(external_id="chat-1")
        of_bob = await stage.sessions(BOB).create_session(external_id="chat-1")
        by_agent = await stage.sessions(ADAS_AGENT).create_session(external_id="chat-1")
        assert of_bob.session_id != of_ada.session_id == by_agent.session_id
        assert of_bob.user_id == "bob"

    async def test_an_external_id_created_twice_at_once_is_one_session(self, stage: Stage, second: Stage) -> None:
        made = await asyncio.gather(
            *(one.sessions().create_session(external_id="chat-1") for one in (stage, second, stage, second))
        )
        assert len({session.session_id for session in made}) == 1

    # -- the history of all this

    async def test_every_transition_stays_in_the_record(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        await stage.sessions().close_session(sid, reason="lunch")
        await stage.sessions(ADAS_AGENT).restore_session(sid)
        stage.clock.pass_time(60)
        shown = await stage.sessions().get_session(sid)
        assert [(one.to, one.actor, one.reason) for one in shown.lifecycle] == [
            ("CLOSED", "user:ada", "lunch"),
            ("ACTIVE", "agent:shop", ""),
            ("EXPIRED", "operator", "idle"),
        ]
        assert shown.transition_count == 3

    async def test_the_newest_32_transitions_are_kept_and_all_are_counted(self, stage: Stage) -> None:
        sid = await stage.session()
        for number in range(20):
            await stage.sessions().close_session(sid, reason=str(number))
            await stage.sessions().restore_session(sid)
        shown = await stage.sessions().get_session(sid)
        assert (len(shown.lifecycle), shown.transition_count) == (32, 40)
        assert shown.lifecycle[0].reason == "4"
