"""A fork begins as a copy, and goes its own way."""

from __future__ import annotations

import pytest

from satchel.errors import OutcomeUnknown, StoreUnavailable
from satchel.testing.stage import ADA, ADAS_AGENT, Stage, asking, said
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import (
    AS_ADA,
    ELSEWHERE,
    FailingStore,
    busy_session,
    conversation,
    exported,
    imported,
    innermost,
)


class ForkSuite(StoreSuite):
    async def test_a_fork_begins_as_a_copy_and_goes_its_own_way(self, stage: Stage) -> None:
        sid = await busy_session(stage)
        before = await stage.log(sid)
        fork = await stage.sessions().fork_session(sid)
        assert await stage.log(fork.session_id) == before
        assert fork.forked_from is not None
        assert (fork.forked_from.session_id, fork.forked_from.seq) == (sid, len(before))
        assert (fork.user_id, fork.external_id, fork.title, fork.status) == ("ada", None, "second title", "ACTIVE")
        await stage.sessions().append_message(fork.session_id, said("only here"))
        assert await stage.log(sid) == before

    async def test_a_fork_holds_pairs_whole(self, stage: Stage) -> None:
        sid = await stage.session()
        agent = stage.sessions(ADAS_AGENT)
        await agent.append_message(sid, said("go"))  # 1
        await agent.append_message(sid, asking("c1", "c2"))  # 2
        await agent.append_message(sid, said("b", "tool", tool_call_id="c2"))  # 3
        await agent.append_message(sid, said("a", "tool", tool_call_id="c1"))  # 4
        await agent.append_message(sid, asking("c1"))  # 5: the same label again, never answered
        await agent.append_message(sid, said("so"))  # 6
        for up_to, last in ((0, 0), (1, 1), (2, 1), (3, 1), (4, 4), (5, 5), (6, 6), (99, 6)):
            fork = await agent.fork_session(sid, up_to=up_to)
            assert (await stage.record(fork.session_id)).last_seq == last, up_to

    async def test_a_fork_of_a_closed_session_is_open_and_says_why(self, stage: Stage) -> None:
        sid = await stage.session(title="old")
        await stage.sessions().rename_session(sid, "renamed")
        await stage.sessions().close_session(sid)
        fork = await stage.sessions().fork_session(sid, title="mine")
        assert (fork.status, fork.title, fork.closed_at) == ("ACTIVE", "mine", None)
        line = await exported(stage, ADA, fork.session_id)
        (report,) = await imported(stage, ELSEWHERE, [line])
        copy = await stage.sessions(ELSEWHERE).get_session(report.session_id)
        assert (copy.status, copy.title) == ("ACTIVE", "mine")
        assert [one.to for one in copy.lifecycle] == ["CLOSED", "ACTIVE"]

    async def test_open_work_of_a_forked_session_goes_on_there_and_ends_here(self, stage: Stage) -> None:
        sid = await stage.session()
        _, attempt = await stage.started_run(sid, input="one")
        call = await stage.sessions(ADAS_AGENT).start_tool_call(sid, "t", attempt=attempt)
        fork = await stage.sessions().fork_session(sid)
        assert [run.status for run in fork.runs] == ["FAILED"]
        assert [one.status for one in fork.tool_history] == ["unknown"]
        await stage.sessions(ADAS_AGENT).finish_tool_call(sid, call.seq, result="x", attempt=attempt)
        await stage.runs().complete_run(sid, attempt)

    async def test_an_interrupted_fork_is_hidden_and_goes_on_under_its_key(self, stage: Stage) -> None:
        (report,) = await imported(stage, AS_ADA, [conversation("long", *(said(str(n)) for n in range(700)))])
        failing = FailingStore(innermost(stage.store))
        failing.good = 1
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            await Stage(failing, stage.clock).sessions().fork_session(report.session_id, idempotency_key="key-1")
        assert len(await stage.sessions().list_sessions()) == 1
        await stage.sessions().append_message(report.session_id, said("after the fork was asked for"))
        fork = await stage.sessions().fork_session(report.session_id, idempotency_key="key-1")
        assert (fork.last_seq, fork.message_count) == (700, 700)
