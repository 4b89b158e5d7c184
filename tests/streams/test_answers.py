"""`ctx.stream()`: what an agent says becomes a message, whole, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import satchel
import satchel.sync
from satchel import (
    Attempt,
    Event,
    InvalidInput,
    LimitExceeded,
    Limits,
    Message,
    OpenStore,
    OutcomeUnknown,
    Principal,
    RunContext,
    RunFenced,
    RunManager,
    SessionClosed,
    SessionManager,
    StoreUnavailable,
    TextDelta,
)
from satchel.domain.ids import SessionRef
from satchel.domain.limits import DEFAULT_LIMITS
from satchel.store import Change, Outcome, PartialPage, Store
from satchel.stores.memory import MemoryStore
from satchel.testing.wrappers import StoreWrapper
from tests.worker.stage import until

AGENT = Principal.agent("shop", tenant_id="acme", acting_for="ada")
USER = Principal.user("ada", tenant_id="acme")


class Watched(StoreWrapper):
    """Counts pieces, and can be made slow, away, or silent about what it did."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.pieces: list[str] = []
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.away: Exception | None = None

    async def commit(self, changes: Sequence[Change]) -> list[Outcome]:
        await self.may_commit.wait()
        if self.away is not None:
            raise self.away
        outcomes = await self.inner.commit(changes)
        self.pieces += [piece.body.decode() for change in changes for piece in change.partials]
        return outcomes


class Scene:
    def __init__(self, store: OpenStore, watched: Watched) -> None:
        self.store = store
        self.watched = watched
        self.sessions = SessionManager(store, AGENT)
        self.session_id = ""

    async def messages(self) -> list[tuple[object, str]]:
        return [(message.content, message.status) for message in await self.sessions.messages(self.session_id)]

    async def log(self) -> list[Event]:
        return list(await self.sessions.events(self.session_id))

    async def left(self) -> int:
        """Pieces that are kept."""
        snapshot = await self.store.store.snapshot(SessionRef("acme", self.session_id))
        assert snapshot.record is not None
        return len(snapshot.record.streams)


@pytest.fixture(params=["memory", "sqlite"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    inner: Store = MemoryStore()
    if request.param == "sqlite":
        async with satchel.open(f"sqlite:///{tmp_path}/agent.db") as opened:
            inner = opened.store
            yield await make_scene(inner)
        return
    yield await make_scene(inner)


async def make_scene(inner: Store, limits: Limits = DEFAULT_LIMITS) -> Scene:
    watched = Watched(inner)
    made = Scene(OpenStore(watched, limits=limits), watched)
    made.session_id = (await made.sessions.create_session()).session_id
    return made


async def say(
    run: RunContext,
    *texts: str,
    pause: float = 0,
    members: Mapping[str, object] | None = None,
    tool_calls: list[Mapping[str, Any]] | None = None,
    leave: BaseException | None = None,
) -> Message | None:
    """A whole block."""
    async with run.stream() as answer:
        for text in texts:
            await answer.write(text)
            await asyncio.sleep(pause)
        answer.members = dict(members or {})
        answer.tool_calls = tool_calls
        if leave is not None:
            raise leave
    return answer.message


CALLS: list[Mapping[str, Any]] = [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]


async def test_what_is_said_becomes_the_message_with_all_that_it_has(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id, input="go") as run:
        async with run.stream(metadata={"model": "m"}) as answer:
            for word in ("I ", "look", ""):
                await answer.write(word)
            assert answer.text == "I look"
            answer.tool_calls = CALLS
            answer.members["refusal"] = None
        message = answer.message
        assert message is not None
        assert message.data == {"role": "assistant", "content": "I look", "tool_calls": CALLS, "refusal": None}
        assert (message.status, message.run_id, message.metadata) == ("complete", run.run.run_id, {"model": "m"})
        async with run.tool("ls", {}, tool_call_id="c1") as call:
            call.result = "app.py"
    assert [message for message, _ in await scene.messages()] == ["go", "I look", "app.py"]
    assert [event.streamed for event in await scene.log() if event.kind == "message"] == [None, 1, None]
    assert await scene.left() == 0


async def test_nothing_said_is_no_message_and_calls_alone_are_one(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id) as run:
        async with run.stream() as silent:
            pass
        assert silent.message is None
        async with run.stream() as asking:
            asking.tool_calls = CALLS
        assert asking.message is not None
        assert asking.message.data == {"role": "assistant", "content": None, "tool_calls": CALLS}
        with pytest.raises(KeyError):
            await say(run, tool_calls=CALLS, leave=KeyError())
    assert await scene.messages() == [(None, "complete")]


@pytest.mark.parametrize("leave", [ValueError("a fault"), asyncio.CancelledError(), SystemExit(3)], ids=repr)
async def test_a_block_that_is_left_by_an_exception_leaves_an_interrupted_message(
    scene: Scene, leave: BaseException
) -> None:
    async def speak() -> None:
        async with scene.sessions.run(scene.session_id) as run, run.stream() as answer:
            await answer.write("half an ")
            await asyncio.sleep(0.1)
            await answer.write("ans")  # not stored yet
            answer.tool_calls = CALLS
            raise leave

    with pytest.raises(type(leave)):
        await speak()
    assert await scene.messages() == [("half an ans", "interrupted")]
    (event,) = [event for event in await scene.log() if event.kind == "message"]
    assert (event.streamed, "tool_calls" in event.data) == (1, False)
    assert await scene.left() == 0


async def test_a_misspelt_member_is_an_error(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id) as run, run.stream() as answer:
        with pytest.raises(AttributeError):
            answer.toolcalls = CALLS  # type: ignore[attr-defined]  # the mistake


async def test_members_that_no_message_can_have_leave_it_interrupted(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id) as run:
        for members in ({"content": "x"}, {"role": "user"}, {"seq": 1}, {"x": float("nan")}):
            with pytest.raises(InvalidInput):
                await say(run, "said", members=members)
        with pytest.raises(InvalidInput):
            async with run.stream(metadata={"x": float("nan")}):
                pytest.fail("what cannot be stored is refused before anything is said")
    assert await scene.messages() == [("said", "interrupted")] * 4


async def test_what_is_no_text_is_refused_and_harms_nothing(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id) as run:
        async with run.stream() as answer:
            await answer.write("good ")
            for wrong in (b"bytes", None, 3, "\ud800"):
                with pytest.raises(InvalidInput):
                    await answer.write(wrong)  # type: ignore[arg-type]  # the mistake
            await answer.write("text")
        with pytest.raises(InvalidInput):
            await answer.write("too late")
    assert await scene.messages() == [("good text", "complete")]


async def test_many_small_writes_are_few_pieces_and_the_first_comes_at_once(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id) as run, run.stream() as answer:
        began = time.monotonic()
        await answer.write("first")
        await until(lambda: scene.watched.pieces)
        assert time.monotonic() - began < 0.5
        for _ in range(300):
            await answer.write("token ")
            await asyncio.sleep(0.001)
        took = time.monotonic() - began
        assert len(scene.watched.pieces) <= took / 0.05 + 2
    assert (await scene.messages())[0][0] == "first" + "token " * 300


async def test_who_writes_waits_when_the_store_does_not_keep_up(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id) as run, run.stream() as answer:
        await answer.write("first ")
        await until(lambda: scene.watched.pieces)
        scene.watched.may_commit.clear()
        written = 0

        async def write() -> None:
            nonlocal written
            for _ in range(200):
                await answer.write("x" * 1_000)
                written += 1_000

        writing = asyncio.create_task(write())
        await asyncio.sleep(0.2)
        assert 64_000 <= written <= 64 * 1024 + 10_000  # what waits, and the piece on its way
        scene.watched.may_commit.set()
        await writing
    assert (await scene.messages())[0] == ("first " + "x" * 200_000, "complete")
    assert max(len(piece) for piece in scene.watched.pieces) < 64 * 1024


@pytest.mark.parametrize("error", [StoreUnavailable("the cable was pulled"), OutcomeUnknown("at commit")], ids=repr)
async def test_a_store_that_is_away_for_a_while_loses_no_text(scene: Scene, error: Exception) -> None:
    async with scene.sessions.run(scene.session_id) as run, run.stream() as answer:
        await answer.write("before ")
        await asyncio.sleep(0.1)
        scene.watched.away = error
        for _ in range(20):
            await answer.write("while away ")
            await asyncio.sleep(0.01)
        scene.watched.away = None
    assert await scene.messages() == [("before " + "while away " * 20, "complete")]


async def test_a_message_ends_at_its_limit_and_keeps_what_fits() -> None:
    scene = await make_scene(MemoryStore(), Limits(agent_message=1_000))
    async with scene.sessions.run(scene.session_id) as run:
        with pytest.raises(LimitExceeded) as refused:
            await say(run, "x" * 900, "x" * 100)
        assert (refused.value.limit, refused.value.setting) == (1_000, "limits.agent_message")
    assert await scene.messages() == [("x" * 900, "interrupted")]


async def test_too_many_messages_at_once_are_refused() -> None:
    scene = await make_scene(MemoryStore(), Limits(open_streams=1))
    async with scene.sessions.run(scene.session_id) as run, run.stream() as first:
        await first.write("one")
        await asyncio.sleep(0.1)
        with pytest.raises(LimitExceeded):
            await say(run, "two", "two", pause=0.1)
    assert await scene.messages() == [("two", "interrupted"), ("one", "complete")]


@pytest.mark.parametrize("how", ["close", "fence"])
async def test_a_run_that_somebody_else_ends_keeps_what_was_stored(scene: Scene, how: str) -> None:
    runs = RunManager(scene.store, AGENT)
    raised: list[type[BaseException]] = []

    async def speak() -> None:
        async with scene.sessions.run(scene.session_id) as run, run.stream() as answer:
            await answer.write("stored")
            await until(lambda: scene.watched.pieces)
            if how == "close":
                await scene.sessions.close_session(scene.session_id)
            else:
                await runs.fail_run(scene.session_id, run.attempt, code="taken")
            for _ in range(200):
                await answer.write(" lost")
                await asyncio.sleep(0.01)

    try:
        await speak()
    except (RunFenced, SessionClosed) as refused:
        raised.append(type(refused))
    assert raised == [SessionClosed if how == "close" else RunFenced]
    assert await scene.messages() == [("stored", "interrupted")]


async def test_a_model_sees_that_an_answer_broke_off(scene: Scene) -> None:
    async with scene.sessions.run(scene.session_id, input="why?") as run:
        with pytest.raises(KeyError):
            await say(run, "because", leave=KeyError())
    context = await scene.sessions.context(scene.session_id)
    assert [message["content"] for message in context.messages][-2:] == ["why?", "because [interrupted here]"]
    assert (await scene.messages())[-1] == ("because", "interrupted")


async def test_a_session_that_does_not_stream_is_followed_without_a_read_more(scene: Scene) -> None:
    reads: list[str] = []

    class Counted(StoreWrapper):
        async def partial(self, *arguments: object, **options: object) -> object:  # type: ignore[override]  # counts alone
            reads.append("partial")
            return await self.inner.partial(*arguments, **options)  # type: ignore[arg-type]  # handed on

    sessions = SessionManager(OpenStore(Counted(scene.watched)), USER)
    for _ in range(5):
        await scene.sessions.append_message(scene.session_id, {"role": "user", "content": "x"})
    items = sessions.follow(scene.session_id, after=0, text=True)
    for _ in range(5):
        await anext(items)
    assert reads == []


def test_blocking_code_streams_and_follows(tmp_path: Path) -> None:
    with satchel.sync.open(f"sqlite:///{tmp_path}/agent.db") as store:
        sessions = satchel.sync.SessionManager(store, AGENT)
        session_id = sessions.create_session().session_id
        shown: list[str] = []

        def watch() -> None:
            with sessions.follow(session_id, after=0, text=True) as items:
                for item in items:
                    shown.append(item.text if isinstance(item, TextDelta) else item.kind)
                    if shown[-1] == "run_ended":
                        return

        watching = threading.Thread(target=watch)
        watching.start()
        with sessions.run(session_id) as run:
            with run.stream() as answer:
                for word in ("one ", "two ", "three"):
                    answer.write(word)
                    time.sleep(0.1)
                answer.members = {"refusal": None}
            assert answer.message is not None
            assert (answer.text, answer.message.content) == ("one two three", "one two three")
            with pytest.raises(InvalidInput):
                answer.write("too late")
        watching.join(20)
        assert "".join(shown[2:-2]) == "one two three"
        assert shown[:2] + shown[-2:] == ["run_added", "run_started", "message", "run_ended"]


async def test_text_comes_behind_the_events_that_were_there_before_it(scene: Scene) -> None:
    """What is written between the look at the log and the look at the text."""

    class Late(StoreWrapper):
        between: Callable[[], Awaitable[object]] | None = None

        async def partial(
            self, ref: SessionRef, run_id: str, *, attempt: int, message: int, offset: int = 0, limit: int
        ) -> PartialPage:
            between, self.between = self.between, None
            if between is not None:
                await between()
            return await self.inner.partial(ref, run_id, attempt=attempt, message=message, offset=offset, limit=limit)

    late = Late(scene.watched)
    runs = RunManager(scene.store, AGENT)
    run = await runs.add_run(scene.session_id, start=True)
    attempt = Attempt(run.run_id, run.attempt)
    await runs.add_text(scene.session_id, attempt, "one", message=1, offset=0)
    await runs.add_text(scene.session_id, attempt, "two", message=2, offset=0)

    async def write() -> None:
        for number in range(250):  # more than a page
            await scene.sessions.append_message(scene.session_id, {"role": "user", "content": f"{number}"})
        await runs.end_text(scene.session_id, attempt, {"role": "assistant", "content": "one"}, message=1)
        await runs.add_text(scene.session_id, attempt, " more", message=2, offset=3)

    late.between = write
    items = SessionManager(OpenStore(late), USER).follow(scene.session_id, after=0, text=True)
    shown = [await anext(items) for _ in range(2 + 250 + 1 + 1)]
    assert [item.seq for item in shown[:-1] if isinstance(item, Event)] == list(range(1, 254))
    last = shown[-1]
    assert isinstance(last, TextDelta)
    assert (last.message, last.text) == (2, "two more")
