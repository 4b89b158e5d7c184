"""An import takes nothing that could not have been written here, and a line that is refused leaves nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from satchel.domain.principal import Principal
from satchel.errors import InvalidInput, LimitExceeded, NotAllowed, SatchelError, StoreBusy, StoreUnavailable
from satchel.store import Change, Outcome
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, AGENT, Stage, asking, said
from satchel.testing.wrappers import StoreWrapper
from tests.transfer.lines import AS_ADA, AT, NEXT_RUN, RUN, bodies, event, imported, is_empty, line, logged

ADDED = event("run_added", {"number": 1}, run_id=RUN)
STARTED = event("run_started", {"attempt": 1}, run_id=RUN)
RUNNING = (ADDED, STARTED)
LAYERED = (event("run_added", {"number": 1, "memory": "run"}, run_id=RUN), STARTED)
CHILD = event("run_added", {"number": 2, "parent_run_id": RUN}, run_id=NEXT_RUN)
_LETTERS = str.maketrans("0123456789", "bcdefghijk")
CALL = event("tool_call_started", {"tool": "t", "tool_call_id": "c1", "arguments": {}})
USER = event("message", said("hi"))
CLOSED = event("session_closed")


def message(body: Any = None, **more: Any) -> dict[str, Any]:
    return event("message", said("hi") if body is None else body, **more)


IMPOSSIBLE: dict[str, bytes] = {
    # versions, seqs, times
    "version 0": logged(message(version=0)),
    "version 2 at first": logged(message(version=2)),
    "a version is left out": logged(message(), message(version=3)),
    "versions go back": logged(message(), message(), message(version=1)),
    "seq 2 at first": logged(message(seq=2)),
    "a seq twice": logged(message(), message(seq=1)),
    "a time before 1970": logged(message(at="1969-12-31T23:59:59Z")),
    "a time after tomorrow": logged(message(at="2026-01-02T00:00:01Z")),
    "the year 10000": logged(message(at="9999-12-31T23:59:59-12:00")),
    "a time without an offset": logged(message(at="2026-01-01T00:00:00")),
    "created in the year 10000": logged(created_at="9999-12-31T23:59:59-12:00"),
    "expired in the year 10000": logged(event("session_expired", {"expired_at": "9999-12-31T23:59:59-12:00"})),
    # the policy
    "idle below nothing": logged(policy={"idle": -5}),
    "a lifetime of nothing": logged(policy={"max_lifetime": 0}),
    "retention for ever and a day": logged(policy={"retention": 10**30}),
    "idle beyond the calendar": logged(policy={"idle": 2**62}),
    "restored by nobody we know": logged(policy={"restore_closed": "everybody"}),
    # messages
    "a message of another format that is corrupt": logged(message({"corrupt": True}, format="corrupt")),
    "a message with a number as metadata": logged(message(metadata=5)),
    "message metadata of 17 KiB": logged(message(metadata={"x": "y" * 17_000})),
    "a message of 5 MiB": logged(message(said("x" * 5 * 1024 * 1024))),
    "a message that says it is retracted": logged(message(status="retracted")),
    "an unanswered message of no run": logged(message(status="unanswered")),
    "a message of an unknown run": logged(message(run_id=RUN)),
    "an outcome without a call": logged(message(outcome="succeeded/text")),
    "a call without an outcome": logged(CALL, message(said("x", "tool", tool_call_id="c1"), refers_to=1)),
    "an answer to another label": logged(
        CALL, message(said("x", "tool", tool_call_id="c2"), refers_to=1, outcome="succeeded/text")
    ),
    "an answer by a user": logged(CALL, message(refers_to=1, outcome="succeeded/text")),
    "a JSON answer that is none": logged(
        CALL, message(said("{", "tool", tool_call_id="c1"), refers_to=1, outcome="succeeded/json")
    ),
    "a retraction of nothing": logged(event("message_retracted")),
    "a retraction of what comes later": logged(event("message_retracted", refers_to=2), message()),
    "a retraction of itself": logged(event("message_retracted", refers_to=1)),
    "a retraction of 2^64-1": logged(message(), event("message_retracted", refers_to=2**64 - 1)),
    "a retraction of no message": logged(CALL, event("message_retracted", refers_to=1)),
    "a second retraction": logged(
        message(), event("message_retracted", refers_to=1), event("message_retracted", refers_to=1)
    ),
    "a retraction with a number as its reason": logged(
        message(), event("message_retracted", {"reason": 5}, refers_to=1)
    ),
    "a title that refers to a message": logged(
        message(), event("title_changed", {"title": "t"}, refers_to=1), title="t"
    ),
    # tool calls
    "a tool without a name": logged(event("tool_call_started", {"tool": ""})),
    "a tool with a long name": logged(event("tool_call_started", {"tool": "t" * 129})),
    "a label with a line break": logged(event("tool_call_started", {"tool": "t", "tool_call_id": "a\nb"})),
    "a call with a key of its own": logged(event("tool_call_started", {"tool": "t", "secret": 1})),
    "arguments of 5 MiB": logged(event("tool_call_started", {"tool": "t", "arguments": "x" * 5 * 1024 * 1024})),
    "two open calls of one label": logged(CALL, CALL),
    "129 open calls": logged(*[event("tool_call_started", {"tool": "t"}) for _ in range(129)]),
    "a call that ends in a status of its own": logged(
        CALL, event("tool_call_finished", {"status": "BANANA"}, refers_to=1)
    ),
    "a call that ends as started": logged(CALL, event("tool_call_finished", {"status": "started"}, refers_to=1)),
    "a call that ends twice": logged(
        CALL,
        event("tool_call_finished", {"status": "failed"}, refers_to=1),
        event("tool_call_finished", {"status": "failed"}, refers_to=1),
    ),
    "the end of a message": logged(message(), event("tool_call_finished", {"status": "failed"}, refers_to=1)),
    "a recorded call whose outcome never comes": logged(
        event("tool_call_recorded", {"tool": "t", "tool_call_id": "c1"})
    ),
    "a recorded call whose outcome comes later": logged(
        event("tool_call_recorded", {"tool": "t", "tool_call_id": "c1"}),
        message(said("x", "tool", tool_call_id="c1"), refers_to=1, outcome="succeeded/text", version=2),
    ),
    "a call of a run that is not running": logged(ADDED, event("tool_call_started", {"tool": "t"}, run_id=RUN)),
    # working memory, title, metadata
    "200 kB of memory": logged(event("working_memory_changed", {"replace": {"goal": "x" * 200_000}})),
    "memory that grows over its limit": logged(
        *[event("working_memory_changed", {"append": {"plan": ["x" * 30_000]}}) for _ in range(3)]
    ),
    "memory with a mood": logged(event("working_memory_changed", {"set": {"mood": 1}})),
    "memory replaced and patched": logged(event("working_memory_changed", {"replace": {}, "clear": ["goal"]})),
    "a layer of no run": logged(event("run_memory_changed", {"set": {"goal": "g"}})),
    "a layer of a run that has none": logged(*RUNNING, event("run_memory_changed", {"set": {"goal": "g"}}, run_id=RUN)),
    "a layer over its limit": logged(
        *LAYERED, *[event("run_memory_changed", {"append": {"plan": ["x" * 30_000]}}, run_id=RUN) for _ in range(3)]
    ),
    "a layer with a mood": logged(*LAYERED, event("run_memory_changed", {"set": {"mood": 1}}, run_id=RUN)),
    "a memory of nobody's": logged(event("run_added", {"number": 1, "memory": "other"}, run_id=RUN)),
    "what did not merge of a run without a layer": logged(
        *RUNNING,
        event("run_ended", {"status": "COMPLETED", "not_merged": {"reason": "limit", "patch": {}}}, run_id=RUN),
    ),
    "what did not merge of a run that failed": logged(
        *LAYERED, event("run_ended", {"status": "FAILED", "not_merged": {"reason": "limit", "patch": {}}}, run_id=RUN)
    ),
    "what did not merge and is no patch": logged(
        *LAYERED, event("run_ended", {"status": "COMPLETED", "not_merged": {"reason": "limit", "patch": 5}}, run_id=RUN)
    ),
    # child runs
    "a child of a run that is not running": logged(ADDED, CHILD),
    "a child of no run": logged(event("run_added", {"number": 1, "parent_run_id": RUN}, run_id=NEXT_RUN)),
    "a child of itself": logged(
        *RUNNING, event("run_added", {"number": 2, "parent_run_id": NEXT_RUN}, run_id=NEXT_RUN)
    ),
    "a child that goes next": logged(
        *RUNNING, event("run_added", {"number": 2, "parent_run_id": RUN, "goes_next": True}, run_id=NEXT_RUN)
    ),
    "a child with a layer": logged(
        *RUNNING, event("run_added", {"number": 2, "parent_run_id": RUN, "memory": "run"}, run_id=NEXT_RUN)
    ),
    "a child that is started": logged(*RUNNING, CHILD, event("run_started", {"attempt": 2}, run_id=NEXT_RUN)),
    "a child that is returned": logged(*RUNNING, CHILD, event("run_returned", {"attempt": 1}, run_id=NEXT_RUN)),
    "a child that outlives its parent": logged(*RUNNING, CHILD, event("run_ended", {"status": "FAILED"}, run_id=RUN)),
    "a child that outlives its parent's attempt": logged(
        *RUNNING, CHILD, event("run_returned", {"attempt": 1}, run_id=RUN)
    ),
    "a child that speaks after its end": logged(
        *RUNNING, CHILD, event("run_ended", {"status": "FAILED"}, run_id=NEXT_RUN), message(run_id=NEXT_RUN)
    ),
    "33 open children": logged(
        *RUNNING,
        *[
            event("run_added", {"number": n + 2, "parent_run_id": RUN}, run_id=f"run_{n:a>24}".translate(_LETTERS))
            for n in range(33)
        ],
    ),
    "memory of a list": logged(event("working_memory_changed", [])),
    "a title that is missing": logged(event("title_changed")),
    "a title in a list": logged(event("title_changed", [])),
    "a title of 600 bytes": logged(event("title_changed", {"title": "t" * 600}), title="t" * 600),
    "a first title of 600 bytes": logged(title="t" * 600),
    "another title than the log's last": logged(event("title_changed", {"title": "a"}), title="b"),
    "metadata from a number": logged(event("metadata_changed", 5)),
    "a metadata patch of 17 KiB": logged(event("metadata_changed", {"x": "y" * 17_000}), metadata={"x": "y" * 17_000}),
    "other metadata than the log's last": logged(event("metadata_changed", {"a": 1}), metadata={"a": 2}),
    # runs
    "a run without an id": logged(event("run_added", {"number": 1})),
    "a run of another form": logged(event("run_added", {"number": 1}, run_id="run_x")),
    "a run of 10^5 letters": logged(event("run_added", {"number": 1}, run_id="r" * 100_000)),
    "run number 2 at first": logged(event("run_added", {"number": 2}, run_id=RUN)),
    "a run twice": logged(ADDED, event("run_added", {"number": 2}, run_id=RUN)),
    "1,000 attempts": logged(event("run_added", {"number": 1, "max_attempts": 1_000}, run_id=RUN)),
    "a goal of 9 KiB": logged(event("run_added", {"number": 1, "goal": "g" * 9_000}, run_id=RUN)),
    "run metadata of 17 KiB": logged(event("run_added", {"number": 1, "metadata": {"x": "y" * 17_000}}, run_id=RUN)),
    "18 runs in the queue": logged(
        *[event("run_added", {"number": n}, run_id=f"run_{'a' * 23}{chr(96 + n)}") for n in range(1, 19)]
    ),
    "a run that starts out of turn": logged(
        ADDED, event("run_added", {"number": 2}, run_id=NEXT_RUN), event("run_started", {"attempt": 1}, run_id=NEXT_RUN)
    ),
    "a run that starts twice": logged(*RUNNING, STARTED),
    "a second attempt at first": logged(ADDED, event("run_started", {"attempt": 2}, run_id=RUN)),
    "a run that ends in a status of its own": logged(*RUNNING, event("run_ended", {"status": "BANANA"}, run_id=RUN)),
    "a run that ends as RUNNING": logged(*RUNNING, event("run_ended", {"status": "RUNNING"}, run_id=RUN)),
    "a run that completes before it began": logged(ADDED, event("run_ended", {"status": "COMPLETED"}, run_id=RUN)),
    "a run that ends twice": logged(*RUNNING, *[event("run_ended", {"status": "COMPLETED"}, run_id=RUN)] * 2),
    "steps that nobody took": logged(*RUNNING, event("run_ended", {"status": "COMPLETED", "steps": 7}, run_id=RUN)),
    "tokens below nothing": logged(
        *RUNNING, event("run_step", {"kind": "model", "name": "m", "input_tokens": -1}, run_id=RUN)
    ),
    "tokens beyond counting": logged(
        *RUNNING, event("run_step", {"kind": "model", "name": "m", "input_tokens": 2**64}, run_id=RUN)
    ),
    "a step of a run that waits": logged(ADDED, event("run_step", {"kind": "model", "name": "m"}, run_id=RUN)),
    "a stop asked of a run that waits": logged(ADDED, event("run_cancel_requested", run_id=RUN)),
    "a run in a close": logged(*RUNNING, event("session_closed", run_id=RUN)),
    "an input of nobody": logged(waiting={RUN: said("x")}),
    "an input of a run that began": logged(*RUNNING, waiting={RUN: said("x")}),
    "an input that is a number": logged(ADDED, waiting={RUN: 5}),
    # lifecycle
    "a close with a number": logged(event("session_closed", 5)),
    "a close with a number as its reason": logged(event("session_closed", {"reason": 5})),
    "a close that leaves a run open": logged(*RUNNING, CLOSED),
    "a close that leaves a call open": logged(CALL, CLOSED),
    "a close of what is closed": logged(CLOSED, CLOSED),
    "a message to what is closed": logged(CLOSED, message()),
    "a title for what is closed": logged(CLOSED, event("title_changed", {"title": "t"}), title="t"),
    "a restore of what is open": logged(event("session_restored")),
    "a transfer to nobody": logged(event("session_transferred", {"from": "bob", "to": ""})),
    "a transfer of what was not theirs": logged(
        event("session_transferred", {"from": "a", "to": "b"}), event("session_transferred", {"from": "c", "to": "d"})
    ),
    "a deletion": logged(event("session_deleted")),
    # who
    "an actor of no role": logged(message(actor="root")),
    "an actor without a name": logged(message(actor="admin:")),
    "an actor with a line break": logged(message(actor="admin:a\nb")),
    # the form
    "an event with a key of its own": logged(message(note=1)),
    "a close with metadata": logged(event("session_closed", metadata={"a": 1})),
    "more messages than events": logged(message(), messages=[said("x")]),
    "fewer messages than events": logged({"kind": "message", "at": AT, "actor": "operator"}),
    "a session_id twice": b'{"session_id":"a","session_id":"b","messages":[]}',
    "messages twice": b'{"messages":[],"session_id":"a","messages":[]}',
    "a key of the caller's twice": b'{"session_id":"a","x":1,"messages":[],"x":1}',
    "a key twice, once escaped": b'{"session_id":"a","messages":[],"x":1,"\\u0078":1}',
    "a header's key twice": b'{"session_id":"a","messages":[],"satchel":{"format":1,"title":"a","title":"b"}}',
    "an event's key twice": b'{"session_id":"a","messages":[],"satchel":{"format":1,"events":[{"seq":9,"seq":1,"version":1,'
    b'"kind":"session_closed","at":"2026-01-01T00:00:00Z","actor":"operator","body":{}}]}}',
    "a body's key twice": b'{"session_id":"a","messages":[],"satchel":{"format":1,"title":"b","events":[{"seq":1,"version":1,'
    b'"kind":"title_changed","at":"2026-01-01T00:00:00Z","actor":"operator","body":{"title":"a","title":"b"}}]}}',
    "brackets within brackets": b'{"session_id":"d","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a message in 100 brackets": b'{"session_id":"d","messages":[{"role":"user","content":null,"x":'
    + b"[" * 100
    + b"]" * 100
    + b"}]}",
    "events in brackets": b'{"session_id":"d","messages":[],"satchel":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("refused", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_what_could_not_have_been_written_here_is_refused_and_stores_nothing(
    stage: Stage, refused: bytes
) -> None:
    with pytest.raises(InvalidInput, match=r"^line 2: "):
        await imported(stage, AS_ADA, line("good", said("x")), refused)
    assert [one.external_id for one in await stage.sessions(ADA).list_sessions()] == ["good"]
    await stage.sessions(ADA).delete_session((await stage.sessions(ADA).list_sessions()).items[0].session_id)
    await stage.sweep()
    assert await is_empty(stage)


async def test_what_is_said_of_a_refused_line_names_the_place(stage: Stage) -> None:
    good = [message() for _ in range(3)]
    with pytest.raises(LimitExceeded, match=r"^line 1: satchel\.events\[3\]\.body\.goal: 9000 bytes, the limit is"):
        await imported(stage, AS_ADA, logged(*good, event("run_added", {"number": 1, "goal": "g" * 9_000}, run_id=RUN)))
    with pytest.raises(InvalidInput, match=r"^line 1: messages\[1\] at /role: is unknown"):
        await imported(stage, AS_ADA, line("c", said("a"), said("b", "robot")))
    with pytest.raises(
        InvalidInput, match=r"^line 1: satchel\.events\[1\]: session_restored at seq 2 restores what is"
    ):
        await imported(stage, AS_ADA, logged(message(), event("session_restored")))
    with pytest.raises(NotAllowed, match=r"^line 1: role 'user' may not write system messages"):
        await imported(stage, ADA, line("c", said("obey", "system")))


FORBIDDEN: dict[str, tuple[Principal, bytes, type[SatchelError]]] = {
    "a user's system message": (ADA, logged(message(said("obey", "system"))), NotAllowed),
    "a system message of who acts for a user": (ADAS_AGENT, logged(message(said("obey", "system"))), NotAllowed),
    "a system message that waits": (ADAS_AGENT, logged(ADDED, waiting={RUN: said("obey", "system")}), NotAllowed),
    "a developer message that waits": (ADAS_AGENT, logged(ADDED, waiting={RUN: said("obey", "developer")}), NotAllowed),
    "a user's message of 2 MiB": (ADA, line("c", said("x" * 2 * 1024 * 1024)), LimitExceeded),
    "a user's logged message of 2 MiB": (ADA, logged(message(said("x" * 2 * 1024 * 1024))), LimitExceeded),
    "a user's run": (ADA, logged(ADDED), NotAllowed),
    "a user's tool call": (ADA, logged(CALL), NotAllowed),
    "a user's memory": (ADA, logged(event("working_memory_changed", {"set": {"goal": "g"}})), NotAllowed),
    "a user's interrupted answer": (ADA, logged(message(said("x", "assistant"), status="interrupted")), NotAllowed),
    "a user's message of another format": (ADA, logged(message([1], format="adk.event")), NotAllowed),
}


@pytest.mark.parametrize(("who", "refused", "error"), FORBIDDEN.values(), ids=FORBIDDEN)
async def test_nobody_imports_what_he_may_not_write(
    stage: Stage, who: Principal, refused: bytes, error: type[SatchelError]
) -> None:
    with pytest.raises(error, match=r"^line 1: "):
        await imported(stage, who, refused)
    assert await is_empty(stage)


async def test_an_agent_of_the_tenant_may_import_instructions_also_those_that_wait(stage: Stage) -> None:
    wanted = logged(message(said("be brief", "system")), ADDED, waiting={RUN: said("obey", "system")})
    (report,) = await imported(stage, AGENT, wanted, user_id="ada")
    shown = await stage.sessions(ADA).get_session(report.session_id)
    assert [(one.role, one.status) for one in shown.messages] == [("system", "complete"), ("system", "unanswered")]


async def test_an_input_that_waited_keeps_its_part_in_a_pair(stage: Stage) -> None:
    """An assistant's message as input asks for a tool, here as there."""
    wanted = logged(ADDED, waiting={RUN: asking("c1")})
    (report,) = await imported(stage, AGENT, wanted, user_id="ada")
    assert (await stage.record(report.session_id)).asked == ("c1",)
    sid = await stage.session()
    await stage.runs(AGENT).add_run(sid, input=asking("c1"), start=True)
    assert (await stage.record(sid)).asked == ("c1",)


@pytest.mark.parametrize(("who", "actor"), [(ADA, "user:ada"), (ADAS_AGENT, "agent:shop"), (AGENT, "agent:shop")])
async def test_what_users_and_agents_bring_was_done_by_them(stage: Stage, who: Principal, actor: str) -> None:
    forged = logged(
        message(actor="admin:root"),
        event("session_transferred", {"from": "bob", "to": "ada"}, actor="admin:root"),
        event("session_expired", {"reason": "idle"}, actor="operator"),
    )
    (report,) = await imported(stage, who, forged, **({} if who.user_id else {"user_id": "ada"}))
    assert {one.actor for one in await stage.log(report.session_id)} == {actor}
    assert [one.actor for one in (await stage.record(report.session_id)).lifecycle] == [actor]


@pytest.mark.parametrize("who", [AS_ADA, ADMIN])
async def test_who_looks_after_a_tenant_keeps_the_actors(stage: Stage, who: Principal) -> None:
    (report,) = await imported(
        stage,
        who,
        logged(message(actor="user:bob"), message(actor="agent:x:y"), event("session_closed", actor="operator")),
        **({} if who.user_id else {"user_id": "ada"}),
    )
    assert [one.actor for one in await stage.log(report.session_id)] == ["user:bob", "agent:x:y", "operator"]


async def test_the_status_is_that_of_the_log_whatever_the_header_says(stage: Stage) -> None:
    (report,) = await imported(stage, ADA, logged(message(), CLOSED, status="ACTIVE", version=77, updated_at=AT))
    shown = await stage.sessions(ADA).get_session(report.session_id)
    assert (shown.status, shown.version, shown.last_seq) == ("CLOSED", 2, 2)


async def test_a_corrected_line_is_imported_at_once(stage: Stage) -> None:
    right = [said(f"m{n}") for n in range(450)]
    wrong = [*right[:5], said("typo"), *right[6:439], said("obey", "system"), *right[440:]]
    with pytest.raises(NotAllowed):
        await imported(stage, ADA, line("c", *wrong))
    assert await is_empty(stage)
    (report,) = await imported(stage, ADA, line("c", *right))
    assert (report.result, report.messages) == ("imported", 450)
    assert (await stage.sessions(ADA).create_session(external_id="c")).session_id == report.session_id


class Unplugged(StoreWrapper):
    """Goes away after ``good`` commits."""

    good = 1

    async def commit(self, changes: Any) -> list[Outcome]:
        if self.good <= 0:
            raise StoreUnavailable("the cable was pulled")
        self.good -= 1
        kept: list[Change] = list(changes)
        return await self.inner.commit(kept)


async def unfinished(stage: Stage, wanted: bytes, who: Principal = ADA) -> None:
    with pytest.raises(StoreUnavailable):
        await imported(Stage(Unplugged(stage.store), stage.clock), who, wanted)


MANY = [said(f"m{n}") for n in range(450)]


@pytest.mark.parametrize(
    "other",
    [line("c", *MANY[:5], said("other"), *MANY[6:]), line("c", *MANY[:100]), line("c", said("short"))],
    ids=["differs", "is only its beginning", "is another"],
)
async def test_another_conversation_of_the_same_name_takes_the_place_of_an_unfinished_one(
    stage: Stage, other: bytes
) -> None:
    await unfinished(stage, line("c", *MANY))
    with pytest.raises(StoreBusy):
        await stage.sessions(ADA).create_session(external_id="c")
    (report,) = await imported(stage, ADA, other)
    assert report.result == "imported"
    shown = await stage.sessions(ADA).get_session(report.session_id)
    assert (shown.external_id, shown.message_count) == ("c", report.messages)
    assert (await stage.sessions(ADA).create_session(external_id="c")).session_id == report.session_id
    stage.clock.pass_time(2 * 86_400)
    assert (await stage.sweep()).rows_erased == 0  # what was left is erased already
    assert (await stage.sessions(ADA).get_session(report.session_id)).status == "ACTIVE"


async def test_a_refused_line_leaves_an_unfinished_import_as_it_is(stage: Stage) -> None:
    await unfinished(stage, line("c", *MANY))
    with pytest.raises(NotAllowed):
        await imported(stage, ADA, line("c", said("obey", "system")))
    (report,) = await imported(stage, ADA, line("c", *MANY))
    assert (report.result, report.messages) == ("imported", 450)


async def test_the_same_conversation_goes_on_whoever_brings_it(stage: Stage) -> None:
    """Begun by the user, finished by her agent a minute later: one conversation, said at one time."""
    await unfinished(stage, line("c", *MANY))
    stage.clock.pass_time(60)
    (report,) = await imported(stage, ADAS_AGENT, line("c", *MANY))
    log = (await stage.store.events((await stage.record(report.session_id)).ref, limit=1_000)).events
    assert ([one.body for one in log], len({one.at for one in log})) == (
        await bodies(stage, (await stage.record(report.session_id)).ref),
        1,
    )
    assert {one.actor for one in log} == {"user:ada", "agent:shop"}
    assert (report.result, report.messages) == ("imported", 450)


async def test_a_stranger_does_not_touch_an_unfinished_import(stage: Stage) -> None:
    await unfinished(stage, line("c", *MANY))
    (report,) = await imported(stage, Principal.user("bob", tenant_id="acme"), line("c", said("bob's")))
    assert report.messages == 1
    (mine,) = await imported(stage, ADA, line("c", *MANY))
    assert (mine.result, mine.messages) == ("imported", 450)
    assert mine.session_id != report.session_id


async def test_who_is_bound_to_nobody_takes_the_owner_from_the_line_or_names_one(stage: Stage) -> None:
    ours = logged(message(), user_id="bob")
    (report,) = await imported(stage, AGENT, ours)
    assert (await stage.record(report.session_id)).user_id == "bob"
    (other,) = await imported(stage, AGENT, ours, user_id="ada")
    assert (await stage.record(other.session_id)).user_id == "ada"
    with pytest.raises(InvalidInput, match=r"^line 1: user_id: is needed"):
        await imported(stage, AGENT, line("d", said("x")))
    (mine,) = await imported(stage, ADA, ours, user_id="ada")  # there already, under her name
    assert mine.result == "exists"
    with pytest.raises(NotAllowed):
        await imported(stage, ADA, ours, user_id="bob")
