"""Whatever was stored, what a model is given is accepted, fits, and loses nothing that it could hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.context import Context
from satchel.domain.event import CHAT_FORMAT, CORRUPT_BODY, CORRUPT_FORMAT, Event
from satchel.domain.message import tokens_of
from satchel.domain.preamble import BEGINS
from satchel.domain.record import OpenCall
from satchel.opened import OpenStore
from satchel.sessions import SessionManager
from satchel.stores.memory import MemoryStore
from satchel.testing.chat_grammar import assert_accepted
from satchel.testing.clock import START, SettableClock
from satchel.testing.rows import REF, event, put, record, run
from satchel.testing.stage import ADA

LABELS = ("a", "b", "c", "a_2", "")
RUNS = ("run_1", "run_2", "run_3")
TEXTS = ("", "hello", "修复启动失败,然后再看看别的文件。", "x y " * 40, "\n    return 1" * 30, "大" * 400, "q" * 5_000)

texts = st.sampled_from(TEXTS)
contents: st.SearchStrategy[Any] = (
    texts | st.none() | st.just([]) | st.builds(lambda text: [{"type": "text", "text": text}], texts)
)
call = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(LABELS) | st.none(),
        "type": st.sampled_from(["function", "odd"]),
        "function": st.just(None)
        | st.fixed_dictionaries(
            {}, optional={"name": st.sampled_from(["ls", ""]), "arguments": texts | st.just({"a": 1})}
        ),
    },
)
plain_call = st.builds(
    lambda label: {"id": label, "type": "function", "function": {"name": "ls", "arguments": "{}"}},
    st.sampled_from(LABELS[:3]),
)
calls = st.lists(plain_call | call, max_size=4)
bodies = st.one_of(
    st.builds(lambda content: {"role": "user", "content": content}, contents),
    st.builds(lambda content: {"role": "system", "content": content}, contents),
    st.builds(lambda content: {"role": "assistant", "content": content}, contents),
    st.builds(lambda content, asked: {"role": "assistant", "content": content, "tool_calls": asked}, contents, calls),
    st.builds(lambda asked: {"role": "assistant", "tool_calls": asked}, st.lists(plain_call, min_size=1, max_size=4)),
    st.builds(
        lambda content, label: {"role": "tool", "tool_call_id": label, "content": content},
        contents,
        st.sampled_from(LABELS) | st.none(),
    ),
)


class Said(NamedTuple):
    body: dict[str, Any]
    format: str
    status: str
    run_id: str | None
    is_retracted: bool
    was_counted: bool


conversations = st.lists(
    st.builds(
        Said,
        bodies,
        st.sampled_from([CHAT_FORMAT] * 8 + ["adk.event", CORRUPT_FORMAT]),
        st.sampled_from(["complete"] * 6 + ["interrupted", "unanswered"]),
        st.none() | st.sampled_from(RUNS),
        st.sampled_from([False] * 7 + [True]),
        st.booleans(),
    ),
    max_size=30,
)


class Stored(NamedTuple):
    sessions: SessionManager
    events: list[Event]
    retracted: set[int]

    def seen(self, run_number: int | None = None) -> list[Event]:
        """The chat messages that a model may be shown."""
        later = RUNS[run_number:] if run_number is not None else ()
        return [
            one
            for one in self.events
            if one.kind == "message"
            and one.format == CHAT_FORMAT
            and one.status != "unanswered"
            and one.seq not in self.retracted
            and one.run_id not in later
        ]


async def stored(said: list[Said], *, repeat: int, open_label: str | None) -> Stored:
    events: list[Event] = []
    retracted: set[int] = set()
    for turn in range(repeat):
        for one in said:
            seq = len(events) + 1
            body = CORRUPT_BODY if one.format == CORRUPT_FORMAT else msgspec.json.encode(one.body)
            fields: dict[str, Any] = {"body": body, "format": one.format, "status": one.status, "run_id": one.run_id}
            made = event(seq, **fields)
            events.append(msgspec.structs.replace(made, tokens=tokens_of(made)) if one.was_counted else made)
            if one.is_retracted and turn % 2 == 0:
                events.append(event(seq + 1, kind="message_retracted", body=b"{}", refers_to=seq))
                retracted.add(seq)
    messages = [one for one in events if one.kind == "message"]
    kept = [one for one in messages if one.seq not in retracted and one.status != "unanswered"]
    store = MemoryStore(clock=SettableClock())
    await store.open()
    whole = record(
        version=len(events),
        last_seq=len(events),
        updated_at=START + len(events),
        messages=len(messages),
        retracted=len(retracted),
        context_tokens=sum([tokens_of(one) for one in kept]),
        runs=3,
        open_calls=() if open_label is None else (OpenCall(seq=1, tool_call_id=open_label),),
    )
    runs = tuple(run(number, status="COMPLETED", goal="do it") for number in (1, 2, 3))
    memory = b'{"goal":"repair","completed":["read app.py","read the log"]}'
    await put(store, record=whole, events=tuple(events), runs=runs, working_memory=memory)
    return Stored(SessionManager(OpenStore(store), ADA), events, retracted)


def own(context: Context) -> list[dict[str, Any]]:
    """Without the session state and what is synthetic."""
    return [
        one
        for one in context.messages
        if not str(one.get("content")).startswith((BEGINS, "(unknown: the call", "(still running"))
    ]


@settings(max_examples=150, deadline=None)
@given(
    conversations,
    st.sampled_from([1, 1, 1, 30]),
    st.sampled_from([1, 5, 40, 200, 1_000, 8_000, 1_000_000]),
    st.none() | st.sampled_from(LABELS[:3]),
    st.none() | st.integers(0, 3),
)
async def test_any_conversation_is_accepted_and_fits(
    said: list[Said], repeat: int, max_tokens: int, open_label: str | None, run_number: int | None
) -> None:
    there = await stored(said, repeat=repeat, open_label=open_label)
    context = await there.sessions.context(REF.session_id, max_tokens=max_tokens, run_number=run_number)
    assert_accepted(context.messages)
    assert context.tokens <= max_tokens
    assert context.window_share == context.tokens / max_tokens
    assert context == await there.sessions.context(REF.session_id, max_tokens=max_tokens, run_number=run_number)
    # What instructs was written as such.
    instructions = [one.data["content"] or "" for one in there.seen(run_number) if one.data["role"] == "system"]
    shown = [one["content"] for one in context.messages if one["role"] == "system"]
    assert all(content in instructions for content in shown) or context.shortened
    # Everything is there, or it says what is not.
    answered = [one for one in there.seen(run_number) if one.data["role"] != "tool"]
    others = [one for one in own(context) if one["role"] != "tool"]
    if max_tokens == 1_000_000:
        assert (context.dropped, context.shortened, context.instructions_dropped) == (0, 0, 0)
        assert len(others) == len(answered)
    if others and context.dropped == 0:
        assert len(others) == len(answered)
    if len(others) < len(answered):
        assert context.dropped > 0
    assert context.dropped <= len([one for one in there.events if one.kind == "message"])


@settings(max_examples=60, deadline=None)
@given(conversations, texts, st.sampled_from([60, 200, 1_000]))
async def test_the_newest_message_is_there_if_it_fits(said: list[Said], text: str, max_tokens: int) -> None:
    bare = [one for one in said if one.body["role"] != "system"]  # instructions come first
    newest = {"role": "user", "content": text}
    there = await stored(
        [*bare, Said(newest, CHAT_FORMAT, "complete", None, is_retracted=False, was_counted=True)],
        repeat=1,
        open_label=None,
    )
    context = await there.sessions.context(REF.session_id, max_tokens=max_tokens)
    fits = tokens_of(there.events[-1]) <= max_tokens
    assert not fits or context.messages[-1] == newest
    assert context.messages[-1]["role"] == "user"
