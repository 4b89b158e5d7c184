"""Sessions on the move: fork, export, import."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest

from satchel.domain.imported import Imported
from satchel.domain.principal import Principal
from satchel.errors import InvalidInput, LimitExceeded, NotAllowed, StoreUnavailable
from satchel.store import Change, Outcome, Store
from satchel.testing.stage import ADA, ADAS_AGENT, AGENT, BOB, OPERATOR, Stage, asking, lasting, said
from satchel.testing.suite import StoreSuite
from satchel.testing.wrappers import StoreWrapper

AS_ADA = Principal.operator(tenant_id="acme", acting_for="ada")
ELSEWHERE = Principal.operator(tenant_id="umbrella", acting_for="eve")


async def exported(stage: Stage, who: Principal, *session_ids: str) -> bytes:
    return b"".join([piece async for piece in stage.sessions(who).export_sessions(session_ids)])


async def imported(stage: Stage, who: Principal, lines: Iterable[bytes | str], **options: Any) -> list[Imported]:
    return [one async for one in stage.sessions(who).import_sessions(lines, **options)]


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def conversation(name: str, *messages: Mapping[str, Any] | bytes, **more: Any) -> bytes:
    """One line with the five keys."""
    bodies = [msgspec.Raw(one) if isinstance(one, bytes) else dict(one) for one in messages]
    keys = {"source": "s", "licence": "l", "session_id": name, "messages": bodies, "meta": {"k": 1}}
    return msgspec.json.encode(keys | more)


def logged(**event: Any) -> bytes:
    """A line with one event that cannot be."""
    fields = {"seq": 1, "version": 1, "kind": "title_changed", "at": "2026-01-01T00:00:00Z", "actor": "a"}
    events = [fields | {"body": {"title": "t", "status": "unknown", "attempt": 1}} | event]
    return conversation("x", satchel={"format": 1, "events": events})


def without_ids(line: bytes) -> Any:
    """An exported line, less what an import gives anew."""
    shown = json.loads(line)
    for name in ("session_id", "external_id", "user_id"):
        shown["satchel"].pop(name)
    shown.pop("session_id")
    return shown


class FailingStore(StoreWrapper):
    """Goes away after ``good`` commits."""

    good = 0

    async def commit(self, changes: Any) -> list[Outcome]:
        if self.good <= 0:
            raise StoreUnavailable("the cable was pulled")
        self.good -= 1
        kept: list[Change] = list(changes)
        return await self.inner.commit(kept)


def innermost(store: Store) -> Store:
    """The store that all the wrappers are around."""
    while isinstance(store, StoreWrapper):
        store = store.inner
    return store


async def busy_session(stage: Stage) -> str:
    """A session with something of everything."""
    sid = await stage.session(title="first title", metadata={"k": [1.50, "修"]}, external_id="chat-1")
    agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
    await stage.sessions(AGENT).append_message(sid, said("be brief", "system"))
    await agent.append_message(sid, b'{ "role": "user", "content": "NUL \\u0000 \xf0\x9f\x98\x80", "n": 1.50 }')
    await agent.append_message(sid, b"[1.50]", format="adk.event", metadata={"by": "adk"})
    stage.clock.pass_time(1)
    _, attempt = await stage.started_run(sid, goal="g", input="go", agent="coding", metadata={"m": 1})
    await agent.append_message(sid, asking("c1", "c2"), attempt=attempt)
    call = await agent.start_tool_call(sid, "t", {"a": 1.0}, tool_call_id="c1", attempt=attempt)
    await agent.finish_tool_call(sid, call.seq, result={"rows": 1}, attempt=attempt)
    await agent.append_tool_history(sid, {"tool": "t", "tool_call_id": "c2", "error": "x"}, attempt=attempt)
    await agent.append_tool_history(sid, {"tool": "t", "arguments": {"a": 1}, "result": None}, attempt=attempt)
    await agent.update_working_memory(sid, {"set": {"goal": "g", "notes": {"n": 1}}}, attempt=attempt)
    await runs.add_step(sid, attempt, "gpt", input_tokens=3)
    stage.clock.step_wall(-50)
    await runs.complete_run(sid, attempt)
    await agent.retract_message(sid, 2)
    await agent.update_session(sid, title="second title", metadata={"l": 2})
    await agent.close_session(sid, reason="lunch")
    await agent.restore_session(sid)
    await agent.append_message(sid, said("half", "assistant"), status="interrupted")
    return sid


class TransferSuite(StoreSuite):
    # -- export and import

    @pytest.mark.parametrize("largest", ["deep", "many"])
    async def test_what_a_caller_may_write_comes_over_whatever_stands_around_it(
        self, stage: Stage, largest: str
    ) -> None:
        """Each document at its limit of levels or values; bodies hold one, or several, a level below their own."""
        document = nested(64) if largest == "deep" else [1] * 9_999
        inside = nested(63) if largest == "deep" else [1] * 4_000
        memory = {"notes": {"k": nested(62)}} if largest == "deep" else {"plan": ["a"] * 9_998}
        sid = await stage.session()
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        await agent.append_tool_history(
            sid, {"tool": "t", "arguments": document, "result": document, "error": document}
        )
        run, attempt = await stage.started_run(sid, metadata={"k": inside})
        call = await agent.start_tool_call(sid, "t", document, attempt=attempt)
        await agent.finish_tool_call(sid, call.seq, result=document, attempt=attempt)
        await runs.ask_question(sid, attempt, "size", "How big?", schema={"examples": inside})
        await runs.answer_run(sid, run.run_id, document)
        await agent.replace_working_memory(sid, memory, expected_version=0)
        line = await exported(stage, ADA, sid)
        (report,) = await imported(stage, ELSEWHERE, [line])
        assert (await stage.log(report.session_id, "umbrella"))[: len(await stage.log(sid))] == await stage.log(sid)

    @pytest.mark.parametrize("arguments", [nested(66), [1] * 10_100], ids=["deep", "many"])
    async def test_no_document_comes_over_that_nobody_may_write(self, stage: Stage, arguments: object) -> None:
        sid = await stage.session()
        await stage.sessions(ADAS_AGENT).append_tool_history(sid, {"tool": "t", "arguments": "here", "ok": True})
        line = await exported(stage, ADA, sid)
        planted = line.replace(b'"here"', msgspec.json.encode(arguments))
        with pytest.raises(LimitExceeded, match=r"line 1: satchel\.events\[0\]\.body"):
            await imported(stage, ELSEWHERE, [planted])

    async def test_export_and_import_are_an_exact_round_trip(self, stage: Stage) -> None:
        sid = await busy_session(stage)
        line = await exported(stage, ADA, sid)
        stage.clock.pass_time(500)
        (report,) = await imported(stage, ELSEWHERE, [line])
        assert (report.result, report.line, report.external_id) == ("imported", 1, "chat-1")
        again = await exported(stage, ELSEWHERE, report.session_id)
        assert without_ids(again) == without_ids(line)
        here, there = await stage.log(sid), await stage.log(report.session_id, "umbrella")
        assert there == here
        (twice,) = await imported(stage, Principal.operator(tenant_id="third", acting_for="x"), [again])
        assert await stage.log(twice.session_id, "third") == here
        old, new = await stage.record(sid), await stage.record(report.session_id, "umbrella")
        for name in (
            "version",
            "last_seq",
            "created_at",
            "updated_at",
            "title",
            "lifecycle",
            "usage",
            "changed",
            "asked",
        ):
            assert getattr(new, name) == getattr(old, name), name
        assert (new.messages, new.tool_calls, new.runs, new.retracted) == (old.messages, old.tool_calls, old.runs, 1)
        copied = stage.sessions(ELSEWHERE)
        assert await copied.get_working_memory(report.session_id) == await stage.sessions().get_working_memory(sid)
        calls = (await stage.sessions().tool_history(sid)).items
        assert (await copied.tool_history(report.session_id)).items == calls

    async def test_a_session_without_events_keeps_its_times(self, stage: Stage) -> None:
        sid = await stage.session(title="t", metadata={"k": 1})
        line = await exported(stage, ADA, sid)
        stage.clock.pass_time(500)
        (report,) = await imported(stage, ELSEWHERE, [line])
        old, new = await stage.record(sid), await stage.record(report.session_id, "umbrella")
        assert (new.created_at, new.updated_at, new.version) == (old.created_at, old.updated_at, 0)
        assert (await stage.sessions(ELSEWHERE).get_session(report.session_id)).metadata == {"k": 1}

    async def test_the_format_is_the_five_keys_and_what_they_lack(self, stage: Stage) -> None:
        messages = (b'{"role":"user","content":"a"}', b'{ "role" : "assistant", "content" : null, "x" : 1.50 }')
        (report,) = await imported(stage, AS_ADA, [conversation("theirs", *messages)])
        line = await exported(stage, ADA, report.session_id)
        shown = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        assert list(shown) == ["source", "licence", "session_id", "messages", "meta", "satchel"]
        assert json.loads(bytes(shown["session_id"])) == "theirs"
        assert bytes(shown["messages"]) == b"[" + b",".join(messages) + b"]"
        assert (bytes(shown["source"]), bytes(shown["licence"]), bytes(shown["meta"])) == (b'"s"', b'"l"', b'{"k":1}')
        assert json.loads(bytes(shown["satchel"]))["session_id"] == report.session_id
        assert (await stage.sessions().get_session(report.session_id)).external_id == "theirs"

    async def test_the_same_import_again_leaves_out_what_is_there(self, stage: Stage) -> None:
        lines = [conversation("one", said("a")), b"", conversation("two", said("b"), said("c"))]
        first = await imported(stage, AS_ADA, lines)
        again = await imported(stage, AS_ADA, lines)
        assert [(one.result, one.line, one.messages) for one in first] == [("imported", 1, 1), ("imported", 3, 2)]
        assert [one.result for one in again] == ["exists", "exists"]
        assert [one.session_id for one in again] == [one.session_id for one in first]
        await stage.sessions().delete_session(first[0].session_id)
        (anew, _) = await imported(stage, AS_ADA, lines)
        assert anew.result == "imported"
        assert anew.session_id != first[0].session_id

    async def test_there_is_said_of_the_same_session_alone_and_another_of_its_name_is_left(self, stage: Stage) -> None:
        sid = await stage.session(external_id="main")
        await stage.sessions().append_message(sid, said("Ada's"))
        stage.clock.pass_time(1)
        bobs = (await stage.sessions(BOB).create_session(external_id="main")).session_id
        await stage.sessions(BOB).append_message(bobs, said("Bob's"))
        lines = [await exported(stage, ADA, sid), await exported(stage, BOB, bobs)]
        everybody = Principal.operator(tenant_id="umbrella")
        first = await imported(stage, everybody, lines)
        assert [(one.result, one.user_id, one.former_user_id) for one in first] == [
            ("imported", "ada", None),
            ("imported", "bob", None),
        ]
        again = await imported(stage, everybody, lines)
        assert [(one.result, one.reason) for one in again] == [("exists", "")] * 2
        log = await stage.log(first[0].session_id, "umbrella")
        (mine, left) = await imported(stage, everybody, lines, user_id="ada")  # all Ada's
        assert (mine.result, left.result, left.session_id, left.former_user_id) == (
            "exists",
            "differs",
            first[0].session_id,
            "bob",
        )
        assert "created at" in left.reason
        # It goes on at either side: the one is there with all of the line, the other lacks some.
        await stage.sessions(everybody).append_message(first[0].session_id, said("here"))
        assert [one.result for one in await imported(stage, everybody, lines)] == ["exists", "exists"]
        await stage.sessions(BOB).append_message(bobs, said("there"))
        (short,) = await imported(stage, everybody, [await exported(stage, BOB, bobs)])
        assert (short.result, short.reason) == ("differs", "it ends at seq 1, and the line goes on")
        await stage.sessions().append_message(sid, said("not here"))
        (parts,) = await imported(stage, everybody, [await exported(stage, ADA, sid)])
        assert (parts.result, parts.reason) == ("differs", "it holds something else from seq 2 on")
        assert (await stage.log(first[0].session_id, "umbrella"))[:1] == log

    @pytest.mark.parametrize("there", ["is younger", "expired too", "went on"])
    async def test_a_session_that_expired_since_it_was_imported_is_there(self, stage: Stage, there: str) -> None:
        """By itself, and at another instant than the one that is there, whose clock began anew."""
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("one"))
        await stage.runs().add_run(sid)  # it waits, and ends with the session
        everybody = Principal.operator(tenant_id="umbrella")
        line = await exported(stage, ADA, sid)
        stage.clock.pass_time(5 * 86_400)
        (first,) = await imported(stage, everybody, [line])
        stage.clock.pass_time(26 * 86_400)  # it idles for 30 days
        assert (await stage.sessions().get_session(sid)).status == "EXPIRED"
        if there == "went on":
            await stage.sessions(everybody).append_message(first.session_id, said("two"))
        elif there == "expired too":
            stage.clock.pass_time(5 * 86_400)
            assert (await stage.sessions(everybody).get_session(first.session_id)).status == "EXPIRED"
        (again,) = await imported(stage, everybody, [await exported(stage, ADA, sid)])
        assert (again.result, again.reason) == ("exists", "")
        # What was done after it was not done here.
        await stage.sessions().restore_session(sid)
        (more,) = await imported(stage, everybody, [await exported(stage, ADA, sid)])
        assert more.result == "differs"

    async def test_open_work_arrives_ended_and_leases_do_not_travel(self, stage: Stage) -> None:
        sid = await stage.session()
        agent, runs = stage.sessions(ADAS_AGENT), stage.runs()
        _, attempt = await stage.started_run(sid, input="one")
        await runs.add_run(sid, input="two", on_busy="queue")
        await runs.add_run(sid, input="three", on_busy="cancel")
        await agent.start_tool_call(sid, "t", attempt=attempt)
        await agent.start_tool_call(sid, "t")
        await agent.append_message(sid, said("x"), idempotency_key="key-1")
        line = await exported(stage, ADA, sid)
        (report,) = await imported(stage, ELSEWHERE, [line])
        copied = stage.sessions(ELSEWHERE)
        shown = await copied.get_session(report.session_id)
        assert [(run.status, run.stop_reason) for run in shown.runs] == [("FAILED", "moved")] * 3
        assert [call.status for call in shown.tool_history] == ["unknown", "unknown"]
        assert (shown.active_run_id, shown.queued_run_ids) == (None, ())
        told = {(message.content, message.status) for message in shown.messages}
        assert told == {("one", "complete"), ("x", "complete"), ("two", "unanswered"), ("three", "unanswered")}
        fresh = await copied.append_message(report.session_id, said("x"), idempotency_key="key-1")
        assert fresh.replayed is False

    async def test_expiry_counts_from_the_import(self, stage: Stage) -> None:
        sid = await stage.session(policy=lasting(idle=60))
        line = await exported(stage, ADA, sid)
        stage.clock.pass_time(1_000)
        (report,) = await imported(stage, ELSEWHERE, [line])
        assert (await stage.sessions(ELSEWHERE).get_session(report.session_id)).status == "ACTIVE"
        stage.clock.pass_time(60)
        assert (await stage.sessions(ELSEWHERE).get_session(report.session_id)).status == "EXPIRED"

    async def test_a_user_imports_no_instructions_and_no_work(self, stage: Stage) -> None:
        with pytest.raises(NotAllowed):
            await imported(stage, ADA, [conversation("c", said("obey", "system"))])
        with pytest.raises(NotAllowed):
            await imported(stage, ADAS_AGENT, [conversation("c", said("obey", "developer"))])
        sid = await busy_session(stage)
        with pytest.raises(NotAllowed):
            await imported(stage, BOB, [await exported(stage, ADA, sid)])
        assert len(await stage.sessions(BOB).list_sessions()) == 0
        (report,) = await imported(stage, ADA, [conversation("c", said("hi"), said("hello", "assistant"))])
        assert report.messages == 2
        await imported(stage, AGENT, [conversation("d", said("be brief", "system"))], user_id="ada")

    async def test_a_user_cannot_import_events_in_anothers_name(self, stage: Stage) -> None:
        sid = await stage.session()
        await stage.sessions().append_message(sid, said("x"))
        line = (await exported(stage, ADA, sid)).replace(b'"user:ada"', b'"admin:root"')
        (report,) = await imported(stage, BOB, [line])
        assert {event.actor for event in await stage.log(report.session_id)} == {"user:bob"}

    @pytest.mark.parametrize(
        "line",
        [
            b"nonsense",
            b"[]",
            b'{"messages":[]}',
            b'{"session_id":"x"}',
            b'{"session_id":"","messages":[]}',
            b'{"session_id":7,"messages":[]}',
            b'{"session_id":"x","messages":{}}',
            b'{"session_id":"x","messages":[5]}',
            b'{"session_id":"x","messages":[{"role":"robot"}]}',
            b'{"session_id":"x","messages":[{"role":"user","seq":1}]}',
            b'{"session_id":"x","messages":[{"role":"user","content":"\xff"}]}',
            b'{"session_id":"x","messages":[],"meta":{"n":NaN}}',
            b'{"session_id":"x","messages":[],"satchel":[]}',
            b'{"session_id":"x","messages":[],"satchel":{"format":99}}',
            b'{"session_id":"x","messages":[{"role":"user"}],"satchel":{"format":1}}',
            conversation("x", satchel={"format": 1, "policy": {"idle": 0}}),
            logged(seq=2),
            logged(kind="session_deleted"),
            logged(kind="nonsense"),
            logged(at="yesterday"),
            logged(version=2),
            logged(kind="tool_call_finished"),
            logged(kind="tool_call_finished", refers_to=7),
            logged(kind="run_started"),
            logged(kind="run_started", body={"attempt": "one"}),
            logged(body={}),
            logged(body=[]),
            logged(body={"title": 5}),
            logged(kind="session_closed", body=[]),
            logged(kind="session_expired", body={"expired_at": "yesterday"}),
            logged(kind="tool_call_started", body={"arguments": {}}),
            logged(kind="tool_call_started", body={"tool": 7}),
            logged(kind="tool_call_recorded", body={"tool": "t", "status": "nonsense"}),
            logged(kind="working_memory_changed", body={"set": {"mood": 1}}),
            logged(kind="metadata_changed", body=[1]),
            logged(kind="run_added", body={"number": "one"}, run_id="run_x"),
            logged(kind="message", refers_to=7, outcome="succeeded/text", body={"role": "user"}),
        ],
        ids=range(37),
    )
    async def test_a_wrong_line_is_named_and_shows_no_session(self, stage: Stage, line: bytes) -> None:
        good = conversation("good", said("x"))
        with pytest.raises(InvalidInput, match="line 2"):
            await imported(stage, AS_ADA, [good, line])
        assert [one.external_id for one in await stage.sessions().list_sessions()] == ["good"]

    async def test_export_without_ids_is_what_the_list_shows(self, stage: Stage) -> None:
        for n in range(5):
            await stage.session(title="even" if n % 2 == 0 else "odd")
            await stage.session(BOB)
        pieces = [piece async for piece in stage.sessions().export_sessions(title="even", limit=2)]
        assert [json.loads(line)["satchel"]["title"] for line in b"".join(pieces).splitlines()] == ["even"] * 3

    async def test_the_operator_imports_for_the_user_it_names(self, stage: Stage) -> None:
        (report,) = await imported(stage, OPERATOR, [conversation("c", said("x"))], user_id="ada")
        assert (await stage.sessions(ADA).get_session(report.session_id)).user_id == "ada"
        with pytest.raises(InvalidInput):
            await imported(stage, OPERATOR, [conversation("c", said("x"))])
