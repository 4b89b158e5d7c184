"""A fork is the session as it was at the point: nothing that came later, and no pair cut in two."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from satchel.errors import (
    IdempotencyMismatch,
    SatchelError,
    SessionDeleted,
    SessionNotFound,
    StoreUnavailable,
    VersionConflict,
)
from satchel.store import Change, Outcome
from satchel.testing.stage import ADAS_AGENT, ADMIN, Stage, asking, said
from satchel.testing.wrappers import StoreWrapper
from tests.transfer.lines import AS_ADA, exported, imported, line


def answer(label: str) -> dict[str, Any]:
    return said("result", "tool", tool_call_id=label)


# -- what came later


async def test_a_title_that_came_later_is_not_told(stage: Stage) -> None:
    sid = await stage.session(title="first")
    sessions = stage.sessions()
    await sessions.append_message(sid, said("a"))  # 1
    await sessions.rename_session(sid, "second")  # 2
    await sessions.append_message(sid, said("b"))  # 3
    await sessions.rename_session(sid, "third")  # 4
    forks = [await sessions.fork_session(sid, up_to=up_to) for up_to in range(1, 5)]
    assert [fork.title for fork in forks] == ["first", "second", "second", "third"]
    assert (await sessions.fork_session(sid, up_to=1, title="mine")).title == "mine"


async def test_a_title_without_later_changes_is_that_of_the_session(stage: Stage) -> None:
    sid = await stage.session(title="only")
    await stage.sessions().append_messages(sid, [said("a"), said("b")])
    assert (await stage.sessions().fork_session(sid, up_to=1)).title == "only"


async def test_the_title_before_a_fork_was_named_is_known(stage: Stage) -> None:
    sid = await stage.session(title="first")
    await stage.sessions().append_message(sid, said("a"))
    await stage.sessions().rename_session(sid, "second")
    fork = await stage.sessions().fork_session(sid, title="mine")
    assert (fork.title, (await stage.sessions().fork_session(fork.session_id, up_to=2)).title) == ("mine", "second")


async def test_metadata_that_came_later_is_not_told(stage: Stage) -> None:
    sid = await stage.session(metadata={"kept": 1, "covered": 1, "deep": {"kept": 1, "covered": 1}})
    sessions = stage.sessions()
    await sessions.update_session(sid, metadata={"said": 1, "removed": 1, "deep": {"said": 1}})  # 1
    await sessions.append_message(sid, said("a"))  # 2
    changes = {"late": 1, "covered": 2, "said": 2, "removed": None, "deep": {"covered": 2, "said": 2, "late": {"x": 1}}}
    await sessions.update_session(sid, metadata=changes)  # 3
    fork = await sessions.fork_session(sid, up_to=2)
    assert fork.metadata == {"kept": 1, "said": 1, "removed": 1, "deep": {"kept": 1, "said": 1}}
    whole = await sessions.fork_session(sid, up_to=3)
    assert whole.metadata == (await sessions.get_session(sid)).metadata


async def test_an_input_that_waited_at_the_point_is_in_the_fork(stage: Stage) -> None:
    sid = await stage.session()
    run = await stage.runs().add_run(sid, input="my question")
    point = (await stage.record(sid)).last_seq
    await stage.runs().start_run(sid, run.run_id)
    await stage.sessions(ADAS_AGENT).append_message(sid, said("later", "assistant"))
    fork = await stage.sessions().fork_session(sid, up_to=point)
    assert [(one.content, one.status) for one in fork.messages] == [("my question", "unanswered")]
    assert [(one.status, one.stop_reason) for one in fork.runs] == [("FAILED", "moved")]


# -- pairs


async def test_no_interleaving_of_calls_and_results_is_cut(stage: Stage) -> None:
    sid = await stage.session()
    agent = stage.sessions(ADAS_AGENT)
    for message in (asking("c1"), asking("c2"), answer("c2"), answer("c1"), said("so")):
        await agent.append_message(sid, message)
    ends = [(await agent.fork_session(sid, up_to=up_to)).forked_from for up_to in range(1, 6)]
    assert [None if end is None else end.seq for end in ends] == [0, 0, 0, 4, 5]


async def test_a_call_and_its_end_are_not_parted(stage: Stage) -> None:
    sid = await stage.session()
    agent = stage.sessions(ADAS_AGENT)
    await agent.append_message(sid, said("go"))  # 1
    call = await agent.start_tool_call(sid, "t")  # 2
    await agent.append_message(sid, said("meanwhile"))  # 3
    lost = await agent.start_tool_call(sid, "t")  # 4: never ends
    await agent.finish_tool_call(sid, call.seq, result="x")  # 5
    await agent.append_message(sid, asking("c1"))  # 6
    await agent.append_tool_history(sid, {"tool": "t", "tool_call_id": "c1", "result": "y"})  # 7 and its message, 8
    assert (lost.seq, (await stage.record(sid)).last_seq) == (4, 8)
    ends = [(await agent.fork_session(sid, up_to=up_to)).forked_from for up_to in range(1, 9)]
    assert [None if end is None else end.seq for end in ends] == [1, 1, 1, 1, 5, 5, 5, 8]


async def test_messages_of_other_formats_are_no_calls(stage: Stage) -> None:
    sid = await stage.session()
    agent = stage.sessions(ADAS_AGENT)
    await agent.append_message(sid, b"[1,2]", format="my.format")
    await agent.append_message(sid, said("x"))
    assert (await agent.fork_session(sid, up_to=1)).message_count == 1


async def test_a_fork_in_the_middle_of_anything_can_be_exported_and_imported(stage: Stage) -> None:
    sid = await stage.session(title="t", metadata={"m": 1})
    agent = stage.sessions(ADAS_AGENT)
    _, attempt = await stage.started_run(sid, input="one", goal="g")
    await stage.runs().add_run(sid, input="two", on_busy="queue")
    await agent.append_message(sid, asking("c1"), attempt=attempt)
    call = await agent.start_tool_call(sid, "t", tool_call_id="c1", attempt=attempt)
    await agent.finish_tool_call(sid, call.seq, error="no", attempt=attempt)
    await agent.update_working_memory(sid, {"set": {"goal": "g"}}, attempt=attempt)
    await stage.runs().add_step(sid, attempt, "m", input_tokens=3)
    await agent.update_session(sid, title="u", metadata={"m": 2})
    await agent.close_session(sid)
    await agent.restore_session(sid)
    last = (await stage.record(sid)).last_seq
    assert last > 15
    for up_to in range(last + 1):
        fork = await agent.fork_session(sid, up_to=up_to)
        (report,) = await imported(stage, AS_ADA, await exported(stage, AS_ADA, fork.session_id))
        copy, made = await stage.log(report.session_id), await stage.log(fork.session_id)
        assert copy == made, up_to


# -- versions and keys


async def test_a_fork_takes_the_version_that_its_caller_saw(stage: Stage) -> None:
    sid = await stage.session()
    await stage.sessions().append_message(sid, said("a"))
    with pytest.raises(VersionConflict) as met:
        await stage.sessions().fork_session(sid, expected_version=0)
    assert (met.value.expected, met.value.current, met.value.changed) == (0, 1, ("messages",))
    assert len(await stage.sessions().list_sessions()) == 1
    fork = await stage.sessions().fork_session(sid, expected_version=1, idempotency_key="k")
    await stage.sessions().append_message(sid, said("b"))
    again = await stage.sessions().fork_session(sid, expected_version=1, idempotency_key="k")  # as first answered
    assert (again.session_id, again.replayed) == (fork.session_id, True)


@pytest.mark.parametrize("other", [{"up_to": 1}, {"title": "other"}, {}], ids=str)
async def test_a_key_is_for_one_fork(stage: Stage, other: dict[str, Any]) -> None:
    sid = await stage.session()
    await stage.sessions().append_messages(sid, [said("a"), said("b")])
    fork = await stage.sessions().fork_session(sid, up_to=2, title="mine", idempotency_key="k")
    with pytest.raises(IdempotencyMismatch):
        await stage.sessions().fork_session(sid, idempotency_key="k", **other)
    again = await stage.sessions().fork_session(sid, up_to=2, title="mine", idempotency_key="k")
    assert (fork.replayed, again.replayed, again.session_id) == (False, True, fork.session_id)


@pytest.mark.parametrize("became", ["deleted", "given away"])
async def test_a_fork_is_found_under_its_key_whatever_became_of_its_source(stage: Stage, became: str) -> None:
    sid = await stage.session()
    await stage.sessions().append_message(sid, said("a"))
    fork = await stage.sessions().fork_session(sid, idempotency_key="k")
    if became == "deleted":
        await stage.sessions().delete_session(sid)
    else:
        await stage.sessions(ADMIN).transfer_session(sid, "bob")
    again = await stage.sessions().fork_session(sid, idempotency_key="k")
    assert (again.session_id, again.replayed) == (fork.session_id, True)
    gone = SessionDeleted if became == "deleted" else SessionNotFound
    with pytest.raises(gone):
        await stage.sessions().fork_session(sid, idempotency_key="another")
    with pytest.raises(gone):
        await stage.sessions().fork_session(sid)


class Unplugged(StoreWrapper):
    """Goes away after ``good`` commits."""

    good = 1

    async def commit(self, changes: Any) -> list[Outcome]:
        if self.good <= 0:
            raise StoreUnavailable("the cable was pulled")
        self.good -= 1
        kept: list[Change] = list(changes)
        return await self.inner.commit(kept)


async def test_a_fork_that_goes_on_is_new_and_a_repeated_one_is_not(stage: Stage) -> None:
    (report,) = await imported(stage, AS_ADA, line("long", *(said(str(n)) for n in range(700))))
    sid = report.session_id
    version = report.events
    with pytest.raises(SatchelError):
        await (
            Stage(Unplugged(stage.store), stage.clock)
            .sessions()
            .fork_session(sid, expected_version=version, idempotency_key="k")
        )
    with pytest.raises(IdempotencyMismatch):
        await stage.sessions().fork_session(sid, title="other", idempotency_key="k")
    await stage.sessions().append_message(sid, said("later"))
    fork = await stage.sessions().fork_session(sid, expected_version=version, idempotency_key="k")
    again = await stage.sessions().fork_session(sid, idempotency_key="k")
    assert (fork.replayed, fork.message_count, again.replayed) == (False, 700, True)
    assert again.session_id == fork.session_id


async def test_of_two_forks_under_one_key_one_is_new(stage: Stage) -> None:
    sid = await stage.session()
    await stage.sessions().append_message(sid, said("a"))
    both = await asyncio.gather(
        *(stage.sessions().fork_session(sid, idempotency_key="k") for _ in range(2)), return_exceptions=True
    )
    forks = [one for one in both if not isinstance(one, BaseException)]
    assert len(forks) == 2, both
    assert sorted(fork.replayed for fork in forks) == [False, True]
    assert forks[0].session_id == forks[1].session_id
