"""The managers of a client are those of the library: methods, results, errors."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Sequence
from typing import Any

import pytest

import satchel
from satchel import (
    Attempt,
    ExtraMissing,
    InvalidInput,
    Message,
    NotServed,
    OpenStore,
    OutcomeUnknown,
    Policy,
    Principal,
    RunManager,
    RunNotFound,
    Session,
    SessionManager,
    SessionNotFound,
    StoreMisused,
    Unauthenticated,
    sync,
)
from satchel.client.connection import Connection
from satchel.client.runs import RemoteRunManager
from satchel.client.sessions import RemoteSessionManager
from satchel.http.identity import Credentials
from satchel.http.keys import KeyRing
from satchel.testing.stage import ADA, ADAS_AGENT, ADMIN, asking, said
from tests.client.served import key_of, served
from tests.open_files import open_files

# Of the library itself: they stand on the other methods.
SHARED = {"run", "add_run", "rename_session"}

ODD_BODIES = (
    '{"role":"user","content":"plain"}',
    '{ "role" : "user", "content": "spaces \\u00e9 \\u4f60 \\ud83d\\ude00 é 你 😀 \\u0000",\t"n": 1.10, "m": 1E3, "big": 123456789012345678901234567890 }',
    '{"content":[{"type":"text","text":"parts"}],"role":"user","message":"an own key","messages":[1], "items":{"a":[]}}',
    '{"role": "user" , "content": "}{\\"" }',
)


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("remote", "own"),
    [(RemoteSessionManager, SessionManager), (RemoteRunManager, RunManager)],
    ids=["sessions", "runs"],
)
def test_every_method_is_there_with_the_same_arguments(remote: type, own: type) -> None:
    assert public(remote).keys() == public(own).keys()
    for name, method in public(own).items():
        theirs = public(remote)[name]
        if own is SessionManager and name in SHARED:
            assert theirs is method
            continue
        assert theirs is not method, f"{name} would ask a store that is not here"
        if callable(method):
            assert inspect.signature(theirs) == inspect.signature(method), name


async def test_what_a_service_does_not_do_is_said_by_name(client: Connection) -> None:
    with pytest.raises(NotServed):
        client.sessions.export_sessions()
    with pytest.raises(NotServed):
        client.sessions.import_sessions(())
    for manager in (client.sessions, client.runs):
        with pytest.raises(NotServed):
            _ = manager.principal


async def rich_session(store: OpenStore) -> str:
    """Something of everything."""
    own, runs = SessionManager(store, ADAS_AGENT), RunManager(store, ADAS_AGENT)
    policy = Policy(context_window=50)
    sid = (
        await own.create_session(title="t", external_id="e", metadata={"k": [1, 2.5, None]}, policy=policy)
    ).session_id
    for body in ODD_BODIES:
        await own.append_message(sid, body, metadata={"n": 1})
    await own.append_message(sid, '{"any": [1]}', format="other", status="interrupted")
    taken_back = await own.append_message(sid, said("no"))
    await own.retract_message(sid, taken_back.message_id)
    await own.append_message(sid, asking("c1"))
    call = await own.start_tool_call(sid, "run", {"a": 10**30}, tool_call_id="c1")
    await own.finish_tool_call(sid, call.seq, result={"b": 1.0})
    await own.append_tool_history(sid, {"tool": "run", "arguments": {"a": 10**30}, "error": "it broke"})
    await own.start_tool_call(sid, "slow")
    await own.update_working_memory(sid, {"append": {"plan": "one"}, "remove": {"errors": "x"}})
    async with own.run(sid, goal="g", input="go", memory="run") as run:
        await run.update_working_memory({"set": {"goal": "G", "notes": {"n": 1}}})
        await run.step("model", input_tokens=3, output_tokens=4)
        async with run.child("part"):
            pass
        async with run.stream() as answer:
            await answer.write("streamed")
    waiting = await runs.add_run(sid, goal="ask", start=True, max_attempts=2)
    attempt = Attempt(waiting.run_id, waiting.attempt)
    await runs.ask_question(sid, attempt, "q", "Sure?", schema={"type": "boolean"})
    await runs.add_run(sid, input="later", on_busy="queue", metadata={"m": 1})
    await own.fork_session(sid)
    return sid


async def test_what_is_read_equals_what_the_library_reads(store: OpenStore, client: Connection) -> None:
    sid = await rich_session(store)
    own, own_runs = SessionManager(store, ADAS_AGENT), RunManager(store, ADAS_AGENT)
    theirs, their_runs = client.sessions, client.runs
    session = await own.get_session(sid)
    assert await theirs.get_session(sid) == session
    assert (await theirs.get_session(sid)).to_json() == session.to_json()
    assert await theirs.get_session(sid, include=()) == await own.get_session(sid, include=())
    assert await theirs.list_sessions() == await own.list_sessions()
    assert [bytes(message.body) for message in (await theirs.messages(sid)).items[: len(ODD_BODIES)]] == [
        body.encode() for body in ODD_BODIES
    ]
    assert await theirs.messages(sid, include_retracted=True) == await own.messages(sid, include_retracted=True)
    assert await theirs.messages(sid, order="desc", limit=3) == await own.messages(sid, order="desc", limit=3)
    assert await theirs.events(sid) == await own.events(sid)
    assert await theirs.tool_history(sid) == await own.tool_history(sid)
    assert await theirs.tool_history(sid, is_open=True) == await own.tool_history(sid, is_open=True)
    assert await their_runs.list_runs(sid) == await own_runs.list_runs(sid)
    assert await theirs.get_working_memory(sid) == await own.get_working_memory(sid)
    assert await theirs.context(sid) == await own.context(sid)
    for run in session.runs:
        assert await their_runs.get_run(sid, run.run_id) == run
        assert await theirs.context(sid, run_id=run.run_id) == await own.context(sid, run_id=run.run_id)
    followed = [event async for event in theirs.follow(sid, after=0, run_id=session.runs[0].run_id)]
    assert followed == [event async for event in own.follow(sid, after=0, run_id=session.runs[0].run_id)]


async def test_what_came_as_bytes_is_stored_and_comes_back_byte_for_byte(store: OpenStore, client: Connection) -> None:
    own = SessionManager(store, ADAS_AGENT)
    sid = (await client.sessions.create_session()).session_id
    for body in ODD_BODIES:
        assert (await client.sessions.append_message(sid, body)).body == body.encode()
    several = await client.sessions.append_messages(sid, ODD_BODIES)
    assert [message.body.decode() for message in several] == list(ODD_BODIES)
    stored = (await own.messages(sid)).items
    assert [message.body.decode() for message in stored] == [*ODD_BODIES, *ODD_BODIES]
    assert several == stored[len(ODD_BODIES) :]


async def test_a_key_of_ones_own_gives_the_first_answer_again_and_a_drawn_one_says_nothing(client: Connection) -> None:
    sid = (await client.sessions.create_session()).session_id
    for key, replayed in (("k", True), (None, False)):
        first = await client.sessions.append_message(sid, said("x"), idempotency_key=key)
        again = await client.sessions.append_message(sid, said("x"), idempotency_key=key)
        assert (first.replayed, again.replayed) == (False, replayed)
        assert (first.seq == again.seq) is replayed


async def test_a_run_whose_agent_is_not_named_is_for_the_services_default_one(store: OpenStore) -> None:
    async with served(store, agents=("shop", "data")) as url, satchel.connect(url, key_of(ADAS_AGENT)) as client:
        sid = (await client.sessions.create_session()).session_id
        for add in (client.runs.add_run, client.sessions.add_run):
            assert (await add(sid, input="hi", on_busy="queue")).agent == "shop"
        assert (await client.runs.add_run(sid, agent="data", on_busy="queue")).agent == "data"
        assert (await client.runs.add_run(sid, agent="", on_busy="queue")).agent == ""


async def test_a_loop_of_ones_own_has_no_agent_unless_it_names_one(store: OpenStore) -> None:
    async with served(store, agents=("shop",)) as url, satchel.connect(url, key_of(ADAS_AGENT)) as client:
        sid = (await client.sessions.create_session()).session_id
        async with client.sessions.run(sid, input="hi") as run, run.child("a part") as child:
            assert (run.run.agent, child.run.agent) == ("", "")
        async with client.sessions.run(sid, agent="mine") as run:
            assert run.run.agent == "mine"
        started = await client.runs.add_run(sid, start=True)
        assert (started.status, started.agent) == ("RUNNING", "")
    own = RunManager(store, ADAS_AGENT)
    assert (await own.add_run(sid, agent=None, on_busy="queue")).agent == ""  # in the library nobody is the default


async def test_why_nobody_may_begin_a_run_is_a_warning_in_the_clients_log(
    store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(store, agents=("shop",)) as url, satchel.connect(url, key_of(ADAS_AGENT)) as client:
        sid = (await client.sessions.create_session()).session_id
        run = await client.runs.add_run(sid, agent="修", on_busy="queue")
        for agent in (None, "shop"):
            await client.runs.add_run(sid, agent=agent, on_busy="queue")
    (warning,) = [record for record in caplog.records if record.name == "satchel.client"]
    assert (warning.levelname, warning.getMessage()) == (
        "WARNING",
        f"{run.run_id}: the run waits for a worker that serves agent '\\u4fee': this server serves shop",
    )


async def test_a_key_of_an_agent_is_narrowed_to_one_user(store: OpenStore) -> None:
    ring = KeyRing(store)
    key = await ring.create(tenant_id="acme", role="agent")
    async with (
        served(store, identity=Credentials(ring)) as url,
        satchel.connect(url, key, acting_for="Zoë") as narrowed,
        satchel.connect(url, key) as agent,
    ):
        made = await narrowed.sessions.create_session()
        other = await agent.sessions.create_session(user_id="ada")
        assert made.user_id == "Zoë"
        assert [session.session_id for session in await narrowed.sessions.list_sessions()] == [made.session_id]
        with pytest.raises(SessionNotFound):
            await narrowed.sessions.get_session(other.session_id)


async def test_a_wrong_key_is_no_identity_and_stands_in_no_error(url: str) -> None:
    async with satchel.connect(url, "satchel_secret") as client:
        with pytest.raises(Unauthenticated) as refused:
            await client.sessions.list_sessions()
    assert "secret" not in str(refused.value) + repr(client)
    assert "the key that connect() was given" in str(refused.value)
    assert "Authorization" not in str(refused.value)
    for bad in ("", "a b", "ключ", 3, "k\r\nX: y"):
        with pytest.raises(InvalidInput) as wrong:
            satchel.connect(url, bad)  # type: ignore[arg-type]  # wrong on purpose
        assert (wrong.value.field, str(bad) in str(wrong.value) and len(str(bad)) > 1) == ("key", False)


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8321", "ftp://host", "http://", "http://host:x", "http://u:p@host", "http://h/?q", "http://h é", 3],
)
def test_an_address_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(InvalidInput) as wrong:
        satchel.connect(url, "k")
    assert wrong.value.field == "url"


@pytest.mark.parametrize("option", [{"timeout": 0}, {"patience": -1}, {"timeout": True}, {"acting_for": ""}])
def test_an_option_out_of_range_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as wrong:
        satchel.connect("http://host", "k", **option)
    assert [wrong.value.field] == list(option)


async def test_a_closed_connection_says_so(url: str) -> None:
    client = satchel.connect(url, key_of(ADA))
    await client.sessions.list_sessions()
    await client.close()
    await client.close()
    with pytest.raises(StoreMisused):
        await client.sessions.list_sessions()


async def test_a_connection_that_is_closed_in_the_middle_of_calls_leaves_none_open_and_nobody_misled(
    store: OpenStore, url: str
) -> None:
    """In whatever turn of the loop: while they connect, are sent, or are answered."""
    own = SessionManager(store, ADA)
    quiet = (await own.create_session()).session_id
    heard: set[type] = set()
    for turns in range(0, 40, 2):
        sid = (await own.create_session()).session_id
        before = len(open_files())
        client = satchel.connect(url, key_of(ADA))
        reading = [asyncio.ensure_future(client.sessions.get_session(sid)) for _ in range(3)]
        writing = [asyncio.ensure_future(client.sessions.append_message(sid, said(f"{n}"))) for n in range(3)]
        following = asyncio.ensure_future(anext(client.sessions.follow(quiet, after=0)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        async with asyncio.timeout(5):
            read = await asyncio.gather(*reading, return_exceptions=True)
            written = await asyncio.gather(*writing, return_exceptions=True)
            with pytest.raises(StoreMisused):
                await following
            while len(open_files()) > before:  # noqa: ASYNC110  # the service's ends, and all of ours
                await asyncio.sleep(0.001)
        assert {type(found) for found in read} <= {Session, StoreMisused}
        stored = {message.content for message in (await own.get_session(sid)).messages}
        for number, found in enumerate(written):
            assert isinstance(found, Message | OutcomeUnknown | StoreMisused)
            heard.add(type(found))
            if not isinstance(found, OutcomeUnknown):
                assert (str(number) in stored) == isinstance(found, Message)
    assert heard == {Message, OutcomeUnknown, StoreMisused}


async def test_a_runs_id_in_the_place_of_a_sessions_is_called_one(store: OpenStore, url: str) -> None:
    own = SessionManager(store, ADMIN)
    run = await RunManager(store, ADMIN).add_run((await own.create_session(user_id="ada")).session_id)
    async with satchel.connect(url, key_of(ADMIN)) as client:
        for sessions in (own, client.sessions):
            with pytest.raises(SessionNotFound, match="that is a run's id"):
                await sessions.get_session(run.run_id)


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ExtraMissing) as missing:
        satchel.connect("http://host", "k")
    assert missing.value.extra == "client"


async def test_an_admin_moves_a_session(store: OpenStore, url: str) -> None:
    own = SessionManager(store, ADMIN)
    sid = (await own.create_session(user_id="ada")).session_id
    async with satchel.connect(url, key_of(ADMIN)) as client:
        assert (await client.sessions.transfer_session(sid, "bob")).user_id == "bob"
        assert (await client.sessions.expire_session(sid, reason="old")).status == "EXPIRED"
        listed = await client.sessions.list_sessions(user_id="bob", status="EXPIRED", metadata={}, title="")
        assert [session.session_id for session in listed] == [sid]


async def test_blocking_code_has_the_same_managers(store: OpenStore, url: str) -> None:
    def work() -> tuple[str, Sequence[str], list[str]]:
        with sync.connect(url, key_of(ADAS_AGENT)) as client:
            assert isinstance(client.sessions, sync.SessionManager)
            assert isinstance(client.runs, sync.RunManager)
            sid = client.sessions.create_session(title="t").session_id
            client.sessions.append_message(sid, said("x"))
            with client.sessions.run(sid, goal="g", input="go") as run:
                with run.tool("look", {"at": 1}) as call:
                    call.result = 2
                with run.stream() as answer:
                    answer.write("said")
            run_id = client.runs.list_runs(sid).items[0].run_id
            kinds = [event.kind for event in client.sessions.follow(sid, after=0, run_id=run_id)]
            with pytest.raises(SessionNotFound):
                client.sessions.get_session("sess_unknown")
            return sid, kinds, [message.content for message in client.sessions.messages(sid)]

    sid, kinds, contents = await asyncio.to_thread(work)
    assert contents == ["x", "go", "said"]
    assert kinds[-1] == "run_ended"
    session = await SessionManager(store, Principal.user("ada", tenant_id="acme")).get_session(sid)
    assert [run.status for run in session.runs] == ["COMPLETED"]


@pytest.mark.parametrize("run_id", ["..", "a/b", "x y", "%2e"])
async def test_a_text_of_a_run_that_none_can_be_is_of_an_unknown_run(store: OpenStore, run_id: str) -> None:
    async with served(store) as url, satchel.connect(url, key_of(ADAS_AGENT)) as client:
        sid = (await client.sessions.create_session()).session_id
        attempt = Attempt(run_id, 1)
        with pytest.raises(RunNotFound):
            await client.runs.add_text(sid, attempt, "x", message=1, offset=0)
        with pytest.raises(RunNotFound):
            await client.runs.end_text(sid, attempt, {"role": "assistant", "content": "x"}, message=1)
