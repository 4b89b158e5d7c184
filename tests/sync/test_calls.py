"""A blocking call: where it may stand, what it raises, and what threads share."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

import satchel
import satchel.sync
from satchel import InvalidInput, Principal, SessionClosed, SessionNotFound, StoreMisused
from satchel.domain.ids import SessionRef
from satchel.domain.state import Clock, Want
from satchel.store import Change, Loaded, Outcome
from satchel.stores.memory import MemoryStore, process_clock
from satchel.sync import OpenStore, RunManager, SessionManager, Sweeper

AGENT = Principal.agent("shop", tenant_id="acme", acting_for="ada")


def test_errors_arrive_as_they_were_raised() -> None:
    manager = SessionManager()
    with pytest.raises(SessionNotFound) as unknown:
        manager.get_session("sess_nobody")
    assert isinstance(unknown.value, KeyError)
    session = manager.create_session()
    manager.close_session(session.session_id)
    with pytest.raises(SessionClosed, match="restore_session"):
        manager.append_message(session.session_id, {"role": "user", "content": "too late"})
    assert manager.restore_session(session.session_id).status == "ACTIVE"


def test_a_refusal_does_not_wait_for_the_collector() -> None:
    manager = SessionManager()
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(SessionNotFound) as unknown:
            manager.get_session("sess_nobody")
        seen = weakref.ref(unknown.value)
        del unknown
        assert seen() is None
    finally:
        gc.enable()


def test_a_manager_without_arguments_has_a_memory_of_its_own() -> None:
    one, other = SessionManager(), SessionManager()
    session = one.create_session()
    assert one.principal == Principal.local()
    with pytest.raises(SessionNotFound):
        other.get_session(session.session_id)


def test_managers_of_one_store_see_the_same_sessions() -> None:
    with satchel.sync.open("memory:") as store:
        session = SessionManager(store, AGENT).create_session()
        run = RunManager(store, AGENT).add_run(session.session_id, start=True)
        assert SessionManager(store, AGENT).get_session(session.session_id).active_run_id == run.run_id


def test_a_closed_store_takes_no_calls() -> None:
    with satchel.sync.open("memory:") as store:
        manager = SessionManager(store)
        session = manager.create_session()
    with pytest.raises(StoreMisused):
        manager.get_session(session.session_id)


def test_a_store_of_the_async_door_is_refused_by_name() -> None:
    store = satchel.open("memory:")
    for make in (SessionManager, RunManager, Sweeper):
        with pytest.raises(InvalidInput, match=r"satchel\.sync\.open"):
            make(store)  # type: ignore[arg-type]  # the mistake that this is about


async def test_inside_a_running_event_loop_a_call_blocks_and_answers() -> None:
    manager = SessionManager()
    session = manager.create_session()
    other = asyncio.create_task(asyncio.sleep(0))
    manager.append_message(session.session_id, {"role": "user", "content": "hello"})
    assert not other.done()  # nothing else ran here meanwhile
    assert manager.get_session(session.session_id).version == 1
    await other


class MeddlingClock:
    """A clock that asks the manager, on the thread that the manager works on."""

    def __init__(self) -> None:
        self.question: Callable[[], object] | None = None
        self.answers: list[BaseException] = []

    def __call__(self) -> Clock:
        question, self.question = self.question, None
        if question is not None:
            with pytest.raises(StoreMisused, match="wait for itself") as refused:
                question()
            self.answers.append(refused.value)
        return process_clock()


def test_a_call_on_the_background_thread_is_refused_instead_of_waiting_for_itself() -> None:
    clock = MeddlingClock()
    with OpenStore(satchel.OpenStore(MemoryStore(clock=clock))) as store:
        manager = SessionManager(store)
        session = manager.create_session()
        clock.question = lambda: manager.get_session(session.session_id)
        assert manager.get_session(session.session_id).status == "ACTIVE"
        assert len(clock.answers) == 1


class CountingStore(MemoryStore):
    """Takes as long for a batch as a disk would."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    async def transact(
        self, wanted: Mapping[SessionRef, Want], decide: Callable[[Loaded], Sequence[Change]]
    ) -> list[Outcome]:
        self.batches += 1
        await asyncio.sleep(0.002)
        return await super().transact(wanted, decide)


def test_writes_of_many_threads_are_gapless_and_share_commits() -> None:
    counting = CountingStore()
    with OpenStore(satchel.OpenStore(counting)) as store:
        manager = SessionManager(store, AGENT)
        session_id = manager.create_session().session_id
        created = counting.batches

        def write(thread: int) -> list[int]:
            return [
                manager.append_message(session_id, {"role": "user", "content": f"{thread}/{number}"}).seq
                for number in range(50)
            ]

        with ThreadPoolExecutor(8) as pool:
            seqs = list(pool.map(write, range(8)))
        assert sorted(seq for of_thread in seqs for seq in of_thread) == list(range(1, 401))
        assert all(of_thread == sorted(of_thread) for of_thread in seqs)  # each thread's own order is kept
        stored = manager.messages(session_id, limit=1000).items
        for thread, of_thread in enumerate(seqs):
            assert [stored[seq - 1].content for seq in of_thread] == [f"{thread}/{number}" for number in range(50)]
        assert counting.batches - created <= 200  # alone each would have been a batch


def test_all_threads_use_one_background_thread() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: SessionManager().create_session(), range(16)))
    assert [thread.name for thread in threading.enumerate()].count("satchel-sync") == 1


def test_a_call_sees_the_context_variables_of_its_caller() -> None:
    request_id = contextvars.ContextVar("request_id", default="")
    seen: list[str] = []

    def clock() -> Clock:
        seen.append(request_id.get())
        return process_clock()

    with OpenStore(satchel.OpenStore(MemoryStore(clock=clock))) as store:
        manager = SessionManager(store)
        session = manager.create_session()
        request_id.set("req-1")
        seen.clear()
        manager.get_session(session.session_id)
        assert set(seen) == {"req-1"}
        request_id.set("")
