"""Whatever becomes of connections: each effect once, each reply to a key the same, nothing of a stream lost or repeated."""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback

import httpx
import pytest

import satchel
from satchel import Message, OpenStore, OutcomeUnknown, Principal, RunContext, ServiceBusy, StoreUnavailable, TextDelta
from satchel.client.connection import Connection
from satchel.domain.event import Event
from satchel.errors import Unauthenticated
from satchel.http.app import make_app
from tests.client.cutting import cutting
from tests.client.served import key_of, served
from tests.http.plain import NO_CERTIFICATES
from tests.worker.stage import until

AGENT = Principal.agent("shop", tenant_id="acme", acting_for="ada")
WRITERS = 24


def connection(url: str, *, patience: float = 30.0) -> Connection:
    return satchel.connect(url, key_of(AGENT), patience=patience)


@pytest.mark.parametrize("operations", [200, pytest.param(5_000, marks=pytest.mark.full)])
async def test_each_effect_is_there_once_and_each_reply_to_a_key_is_the_same(store: OpenStore, operations: int) -> None:
    async with (
        served(store) as url,
        cutting(url, share=0.45) as (proxy, through),
        connection(through) as client,
    ):
        sid = (await client.sessions.create_session()).session_id
        numbers = iter(range(operations))
        said: dict[str, tuple[int, int]] = {}

        async def append(text: str, key: str | None) -> Message:
            while True:
                try:
                    return await client.sessions.append_message(
                        sid, {"role": "user", "content": text}, idempotency_key=key
                    )
                except OutcomeUnknown as unknown:  # a dozen cuts in a row
                    key = unknown.idempotency_key

        async def write() -> None:
            for number in numbers:
                key = None if number % 3 == 0 else f"key-{number}"
                message = await append(f"m{number}", key)
                said[f"m{number}"] = (message.seq, message.version)
                if key is not None and number % 5 == 1:
                    again = await append(f"m{number}", key)
                    assert (again.seq, again.version, again.replayed) == (message.seq, message.version, True)

        await asyncio.gather(*(write() for _ in range(WRITERS)))
        assert all(proxy.cuts.values()), proxy.cuts
        own = satchel.SessionManager(store, AGENT)
        session = await own.get_session(sid)
        assert (session.message_count, session.version) == (operations, operations)
        stored: dict[str, tuple[int, int]] = {}
        cursor: str | None = None
        while True:
            page = await own.events(sid, limit=1_000, cursor=cursor)
            stored |= {event.data["content"]: (event.seq, event.version) for event in page}
            cursor = page.next
            if cursor is None:
                break
        assert stored == said


async def test_a_call_that_creates_adds_and_ends_is_done_once_though_its_replies_are_cut(store: OpenStore) -> None:
    """Without a key of the caller's: one is drawn for each call, and nothing that comes back says so."""
    async with (
        served(store) as url,
        cutting(url, share=0.35, seed=7) as (_, through),
        connection(through) as client,
    ):

        async def work() -> str:
            session = await client.sessions.create_session(title="t")
            async with client.sessions.run(session.session_id, goal="look", input="go") as run:
                async with run.tool("look", {"at": 1}) as call:
                    call.result = 2
                await run.append_message({"role": "assistant", "content": "done"})
            return session.session_id

        made = await asyncio.gather(*(work() for _ in range(4)))
        own = satchel.SessionManager(store, AGENT)
        assert {session.session_id for session in await own.list_sessions(limit=100)} == set(made)
        for sid in made:
            session = await own.get_session(sid)
            assert [message.content for message in session.messages] == ["go", "done"]
            assert [(call.status, call.result) for call in session.tool_history] == [("succeeded", 2)]
            assert [run.status for run in session.runs] == ["COMPLETED"]


async def test_a_stream_that_is_cut_again_and_again_loses_and_repeats_nothing(store: OpenStore) -> None:
    own = satchel.SessionManager(store, AGENT)
    sid = (await own.create_session()).session_id
    async with (
        served(store) as url,
        cutting(url, share=1.0, seed=3, bytes_of_answers=4_000, kinds=("middle",)) as (proxy, through),
        connection(through) as client,
    ):
        seen: list[Event | TextDelta] = []

        async def follow() -> None:
            async for item in client.sessions.follow(sid, after=0, text=True):
                seen.append(item)
                if isinstance(item, Event) and item.kind == "run_ended":
                    return

        def told(message: int) -> list[TextDelta]:
            return [item for item in seen if isinstance(item, TextDelta) and item.message == message]

        following = asyncio.create_task(follow())
        words = [f"word {number} " for number in range(150)]
        async with own.run(sid, input="tell") as run:
            for message in (1, 2):
                async with run.stream() as answer:
                    for word in words:
                        await answer.write(word)
                        await asyncio.sleep(0.004)
                    async with asyncio.timeout(20):
                        while not told(message):  # noqa: ASYNC110  # of what a follower was given
                            await asyncio.sleep(0.01)
            for number in range(30):
                await run.append_message({"role": "assistant", "content": f"m{number}"})
        async with asyncio.timeout(30):
            await following
        log = (await own.events(sid, limit=1_000)).items
        assert [item for item in seen if isinstance(item, Event)] == list(log)
        for message in (1, 2):
            end = 0
            for delta in told(message):
                assert delta.offset == end
                end = delta.end
            assert "".join(words).startswith("".join(delta.text for delta in told(message)))
        assert proxy.cuts["middle"] > 3, proxy.cuts


async def test_a_service_that_starts_again_goes_unnoticed_by_who_follows(store: OpenStore) -> None:
    own = satchel.SessionManager(store, AGENT)
    sid = (await own.create_session()).session_id
    seen: list[int] = []

    async def reached(count: int) -> None:
        async with asyncio.timeout(20):
            while len(seen) < count:  # noqa: ASYNC110  # of what a follower was given
                await asyncio.sleep(0.01)

    async with served(store) as url:
        port = int(url.rpartition(":")[2])
        client = connection(url)

        async def follow() -> None:
            async for event in client.sessions.follow(sid, after=0):
                seen.append(event.seq)
                if len(seen) == 40:
                    return

        following = asyncio.create_task(follow())
        for _ in range(10):
            await own.append_message(sid, {"role": "user", "content": "x"})
        await reached(5)
    for restart in range(2):
        for _ in range(10):  # nobody serves
            await own.append_message(sid, {"role": "user", "content": "x"})
        async with served(store, port=port):
            for _ in range(5):
                await own.append_message(sid, {"role": "user", "content": "x"})
            await reached(10 + 15 * (restart + 1))
    await following
    await client.close()
    assert seen == list(range(1, 41))


async def test_who_asks_too_much_waits_as_long_as_the_service_says(store: OpenStore) -> None:
    async with served(store, requests_per_second=20.0, burst=1) as url, connection(url) as client:
        sid = (await client.sessions.create_session()).session_id
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.sessions.append_message(sid, {"role": "user", "content": "x"})
        assert loop.time() - began > 0.9  # Retry-After counts in seconds
    async with served(store, requests_per_second=0.001, burst=1) as url, connection(url, patience=2) as client:
        await client.sessions.get_session(sid)
        with pytest.raises(ServiceBusy) as busy:
            await client.sessions.append_message(sid, {"role": "user", "content": "y"})
        assert (busy.value.problem, busy.value.retryable) == ("rate_limited", True)
    assert (await satchel.SessionManager(store, AGENT).get_session(sid)).message_count == 1


async def test_a_service_that_is_away_is_told_apart_from_one_that_may_have_done_it(store: OpenStore) -> None:
    async with served(store) as url:
        sid = (await satchel.SessionManager(store, AGENT).create_session()).session_id
    async with connection(url, patience=0.3) as client:
        for call in (client.sessions.get_session(sid), client.sessions.close_session(sid)):
            with pytest.raises(StoreUnavailable, match="cannot be reached: ConnectError") as away:
                await call
            assert (
                len("".join(traceback.format_exception(away.value)).splitlines()) < 40
            )  # ours, and not the transport's
    async with (
        served(store) as url,
        cutting(url, share=1.0, bytes_of_answers=2) as (_, through),
        connection(through, patience=0.5) as client,
    ):
        with pytest.raises(StoreUnavailable):
            await client.sessions.get_session(sid)
        with pytest.raises(OutcomeUnknown) as unknown:
            await client.sessions.append_message(sid, {"role": "user", "content": "x"}, idempotency_key="k")
        assert unknown.value.__notes__ == ["its idempotency key: k"]


async def test_a_service_that_is_away_when_the_answer_comes_does_not_lose_it(store: OpenStore) -> None:
    own = satchel.RunManager(store, AGENT)
    async with (
        served(store) as url,
        cutting(url, share=0.0) as (proxy, through),
        connection(through, patience=0.1) as client,
    ):
        sid = (await client.sessions.create_session()).session_id
        async with client.sessions.run(sid, lease=10) as run:
            asking = asyncio.create_task(run.ask("sure", "?"))
            await until(lambda: own.list_runs(sid, status="WAITING"))
            await asyncio.sleep(0.1)
            proxy.share = 1.0
            await own.answer_run(sid, run.run.run_id, "yes")
            await asyncio.sleep(1.5)
            proxy.share = 0.0
            assert await asyncio.wait_for(asking, 10) == "yes"
        assert sum(proxy.cuts.values()) > 1
    assert (await own.get_run(sid, run.run.run_id)).status == "COMPLETED"


@pytest.mark.parametrize("leaving", [None, ValueError("own")])
async def test_a_caller_that_is_cancelled_while_its_run_ends_leaves_no_run_behind(
    store: OpenStore, leaving: Exception | None
) -> None:
    own = satchel.RunManager(store, AGENT)
    async with served(store) as url, connection(url) as client:
        sid = (await client.sessions.create_session()).session_id
        inside = asyncio.Event()

        async def work() -> None:
            async with client.sessions.run(sid):
                inside.set()
                if leaving is not None:
                    raise leaving

        async def is_over() -> bool:
            return not await own.list_runs(sid, status="RUNNING")

        for turns in range(1, 12):
            working = asyncio.create_task(work())
            await inside.wait()
            inside.clear()
            for _ in range(turns):
                await asyncio.sleep(0)
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError, ValueError):
                await working
            await until(is_over, within=5)


async def test_a_tool_that_ran_is_in_the_history_though_its_caller_is_cancelled_at_its_end(store: OpenStore) -> None:
    async with served(store) as url, connection(url) as client:
        sid = (await client.sessions.create_session()).session_id
        inside = asyncio.Event()

        async def use(run: RunContext) -> None:
            async with run.tool("t") as call:
                call.result = "done"
                inside.set()

        async with client.sessions.run(sid) as run:
            for turns in range(12):
                using = asyncio.create_task(use(run))
                await inside.wait()
                inside.clear()
                for _ in range(turns):
                    await asyncio.sleep(0)
                using.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await using
    history = await satchel.SessionManager(store, AGENT).tool_history(sid)
    assert [call.status for call in history] == ["succeeded"] * 12


class Between(httpx.AsyncBaseTransport):
    """A proxy: each request reaches the service, and who asked is answered so instead; None: cut."""

    def __init__(self, inner: httpx.AsyncBaseTransport, *answers: int | None) -> None:
        self._inner = inner
        self._answers = list(answers)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._answers.pop(0)
        if answer != 401:
            await (await self._inner.handle_async_request(request)).aread()
        if answer is None:
            raise httpx.ReadError("cut")
        problem = {"code": "unauthenticated", "detail": "who is calling?"}
        return httpx.Response(
            answer, json=problem, headers={"content-type": "application/problem+json"} if answer == 401 else {}
        )


@pytest.mark.parametrize("answers", [(500,), (524,), (None, 401), (502, 500)], ids=str)
async def test_a_write_that_may_be_done_is_never_told_as_refused(
    store: OpenStore, answers: tuple[int | None, ...]
) -> None:
    app = make_app(store, principal_of=lambda _: AGENT)
    own = satchel.SessionManager(store, AGENT)
    sid = (await own.create_session()).session_id
    transport = Between(httpx.ASGITransport(app=app), *answers)
    async with (
        httpx.AsyncClient(verify=NO_CERTIFICATES, transport=transport) as http,
        satchel.connect("http://there", "key", http=http) as client,
    ):
        with pytest.raises(OutcomeUnknown) as unknown:
            await client.sessions.append_message(sid, {"role": "user", "content": "x"})
    assert (await own.get_session(sid)).message_count == 1
    key = unknown.value.idempotency_key
    assert unknown.value.__notes__ == [f"its idempotency key: {key}"]
    again = await own.append_message(sid, {"role": "user", "content": "x"}, idempotency_key=key)
    assert again.replayed


async def test_a_refusal_that_no_write_went_before_is_that_refusal(store: OpenStore) -> None:
    app = make_app(store, principal_of=lambda _: AGENT)
    transport = Between(httpx.ASGITransport(app=app), 401)
    async with (
        httpx.AsyncClient(verify=NO_CERTIFICATES, transport=transport) as http,
        satchel.connect("http://there", "key", http=http) as client,
    ):
        with pytest.raises(Unauthenticated):
            await client.sessions.create_session()


class Switched(httpx.AsyncBaseTransport):
    """Nobody is there while it is ``off``."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.off = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.off:
            raise httpx.ConnectError("nobody listens")
        return await self._inner.handle_async_request(request)


async def test_who_waits_for_an_answer_waits_on_while_the_service_is_away(store: OpenStore) -> None:
    """As on a store that is away: a question lasts longer than most troubles."""
    transport = Switched(httpx.ASGITransport(app=make_app(store, principal_of=lambda _: AGENT)))
    runs = satchel.RunManager(store, AGENT)
    async with (
        httpx.AsyncClient(verify=NO_CERTIFICATES, transport=transport) as http,
        satchel.connect("http://there", "key", http=http, patience=0.2) as client,
    ):
        sid = (await client.sessions.create_session()).session_id
        async with client.sessions.run(sid, lease=60) as run:
            asking = asyncio.create_task(run.ask("sure", "Sure?"))
            async with asyncio.timeout(20):
                while (await runs.get_run(sid, run.run.run_id)).status != "WAITING":  # noqa: ASYNC110  # of what stands in the store
                    await asyncio.sleep(0.01)
            transport.off = True
            await asyncio.sleep(0.6)  # longer than the patience of a call
            transport.off = False
            await runs.answer_run(sid, run.run.run_id, "yes")
            assert await asyncio.wait_for(asking, 20) == "yes"
        assert (await runs.get_run(sid, run.run.run_id)).status == "COMPLETED"


async def test_many_calls_at_once_share_a_connection_to_a_service(store: OpenStore) -> None:
    """Streams do not take the connections that calls need."""
    async with served(store) as url, connection(url) as client:
        sid = (await client.sessions.create_session()).session_id
        streams = [client.sessions.follow(sid, after=0) for _ in range(120)]
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        order = list(range(30))
        random.Random(1).shuffle(order)
        await asyncio.gather(*(client.sessions.append_message(sid, {"role": "user", "content": str(n)}) for n in order))
        assert {event.seq for event in await asyncio.gather(*waiting)} == {1}
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]  # an async generator, as any follow is
