"""The benchmarks' own fixtures are what they say."""

from __future__ import annotations

from benchmarks.reads import conversation
from satchel import Principal, SessionManager
from satchel.commit import OpenStore
from satchel.stores.memory import MemoryStore


async def test_the_long_session_has_its_messages_and_calls_at_its_beginning() -> None:
    manager = SessionManager(OpenStore(MemoryStore()), Principal.operator(tenant_id="acme", acting_for="ada"))
    (imported,) = [one async for one in manager.import_sessions([conversation("long", 300)])]
    session = await manager.get_session(imported.session_id)
    assert (session.last_seq, session.version) == (300, 300)
    assert [message.seq for message in session.messages] == list(range(1, 51))
    assert [call.seq for call in session.tool_history] == list(range(51, 101))
