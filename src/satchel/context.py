"""What a model should see of a session: pairs of call and result whole, within a number of tokens.

What a user could write never stands in a system message: memory and history are handed over as data, and say so.
What is mended here (a call without a result gets a synthetic one) is not stored.

The order is chosen for a provider's cache of prompts, which holds what a prompt shares with an earlier one from its first
byte on: instructions, older messages, and only then the session state, before the newest message of the user. What the
messages say already is not in the state, so that it stays the same from step to step of a run; and a window that is full moves
by an eighth of its size at once, not with each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import msgspec

from satchel.domain.event import CHAT_FORMAT, Event
from satchel.domain.exchange import Exchange, exchanges, shortened
from satchel.domain.ids import SessionRef
from satchel.domain.json_text import decode
from satchel.domain.layer import layered
from satchel.domain.memory import memory_from
from satchel.domain.message import tokens_of
from satchel.domain.preamble import Preamble, preamble
from satchel.domain.record import SessionRecord
from satchel.domain.run import RunRow
from satchel.domain.spelling import as_read, has_written, json_as_written
from satchel.domain.tokens import TokenCounter, estimate_tokens
from satchel.domain.tool_call import CallRow
from satchel.shown import Shown
from satchel.store import Snapshot, Store

PAGE = 100
DIGEST_RUNS = 5
DIGEST_CALLS = 20
INSTRUCTIONS = 20  # messages at the beginning of a session that may be instructions
STATE_SHARE = 4  # the state takes at most this part of the window, and so does one result once not everything fits
STRIDES = 8  # a full window moves by this part of it
LEAST_RESULT = 64  # tokens of a result that are shown whatever the window
LEAST_TEXT = 20  # tokens below which no text is cut

_encode = msgspec.json.Encoder().encode


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """``messages`` go straight into a chat API; ``tokens`` is what they weigh, never more than ``max_tokens``, and
    ``window_share`` tokens over ``max_tokens``.

    ``dropped``: older messages that did not fit (of those that lie before what is shown all count that were not taken back).
    ``instructions_dropped``: of these, instructions at the beginning of the session: ``max_tokens`` is too small for them.
    ``shortened``: messages that are shown with less than their whole text.
    """

    messages: list[dict[str, Any]]
    tokens: int
    dropped: int
    max_tokens: int
    instructions_dropped: int = 0
    shortened: int = 0
    spelt: dict[int, msgspec.Raw] = {}  # by index, messages that Python's numbers would spell otherwise: for to_json

    @property
    def window_share(self) -> float:
        return self.tokens / self.max_tokens

    def to_dict(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "tokens": self.tokens,
            "dropped": self.dropped,
            "instructions_dropped": self.instructions_dropped,
            "shortened": self.shortened,
            "max_tokens": self.max_tokens,
            "window_share": self.window_share,
        }

    def to_json(self) -> bytes:
        """:meth:`to_dict` as JSON; numbers are spelled as they were given."""
        return _encode(self.to_dict() | {"messages": self.messages_as_spelled()})

    def messages_as_spelled(self) -> list[Any]:
        """``messages``, with the JSON text of those whose numbers Python would spell otherwise."""
        return [self.spelt.get(index, message) for index, message in enumerate(self.messages)]


async def build_context(
    store: Store,
    ref: SessionRef,
    snapshot: Snapshot,
    *,
    max_tokens: int,
    run_number: int | None = None,
    reader: RunRow | None = None,
    layer: RunRow | None = None,
    count: TokenCounter = estimate_tokens,
) -> Context:
    """``snapshot`` holds the memory and the newest runs and calls; with ``run_number`` nothing of later runs is shown. What
    child runs said is left out, unless the ``reader`` is one: it is shown its own messages and no others. ``layer``: the run
    whose layer lies over the memory."""
    record = snapshot.record
    assert record is not None  # it was read
    child = reader if reader is not None and reader.parent_run_id is not None else None
    shown = Shown(store, record, snapshot.runs, run_number=run_number, reader=reader)
    runs = await shown.runs(DIGEST_RUNS)
    calls = await shown.calls(snapshot.tool_calls)
    view = _View(record, max_tokens, count)
    newest = await view.newest(store, shown, child)
    beginning: list[Event] = []
    if not newest.is_whole or child is not None:
        page = await store.events(ref, kind="message", with_retracted=False, limit=INSTRUCTIONS)
        first = newest.first if child is None else child.added_seq
        beginning = [event for event in page.events if event.seq < first]
    memory = memory_from(snapshot.working_memory)
    if layer is not None:
        memory = layered(memory, layer)

    def state(told: Sequence[Exchange], most: int) -> Preamble:
        return preamble(memory, runs, _untold(calls, told), most=min(most, max_tokens // STATE_SHARE), count=count)

    goes_on = child is None and len(beginning) < INSTRUCTIONS
    return view.build(await shown.messages(beginning), newest, state, goes_on=goes_on)


class _Newest(NamedTuple):
    """The newest messages, oldest first: all of them that were read, and those that are shown. ``is_whole``: there are no
    older ones. ``is_counted``: the record counts how many there are."""

    read: list[Event]
    shown: list[Event]
    is_whole: bool
    is_counted: bool

    @property
    def first(self) -> int:
        return self.read[0].seq


class _State(Protocol):
    """What is known beside the messages that are ``told``, in at most ``most`` tokens."""

    def __call__(self, told: Sequence[Exchange], most: int) -> Preamble: ...


class _View:
    """One look at a session through a window of ``max_tokens``."""

    def __init__(self, record: SessionRecord, max_tokens: int, count: TokenCounter) -> None:
        self._record = record
        self._max_tokens = max_tokens
        self._count = count
        self._most_of_a_result = max(LEAST_RESULT, max_tokens // STATE_SHARE)

    async def newest(self, store: Store, shown: Shown, child: RunRow | None) -> _Newest:
        """A little more than fit."""
        after, run_id = (0, None) if child is None else (child.added_seq, child.run_id)
        read: list[Event] = []
        seen: list[Event] = []
        weight = 0
        before = self._record.last_seq + 1
        is_whole = False
        while weight <= self._max_tokens and not is_whole:
            page = await store.events(
                self._record.ref,
                after=after,
                before=before,
                newest_first=True,
                kind="message",
                run_id=run_id,
                with_retracted=False,
                limit=PAGE,
            )
            counted = [msgspec.structs.replace(event, tokens=tokens_of(event)) for event in page.events]
            found = await shown.messages(counted)
            read.extend(counted)
            seen.extend(found)
            weight += sum([self._least(event) for event in found])
            is_whole = len(page.events) < PAGE
            if not is_whole:
                before = page.events[-1].seq
        return _Newest(read[::-1], seen[::-1], is_whole, is_counted=child is None)

    def _least(self, event: Event) -> int:
        """What a message takes of the window when there is no room."""
        if event.format != CHAT_FORMAT:
            return 0
        tokens = tokens_of(event)
        if tokens > self._most_of_a_result and decode(event.body).get("role") == "tool":
            return self._most_of_a_result
        return tokens

    def build(self, beginning: list[Event], newest: _Newest, state: _State, *, goes_on: bool) -> Context:
        """``beginning``: what may be instructions. ``goes_on``: they may go on in what was read as newest."""
        open_labels = frozenset(
            [call.tool_call_id for call in self._record.open_calls if call.tool_call_id is not None]
        )
        groups = exchanges(newest.shown, open_labels, self._count)
        first = exchanges(beginning, frozenset(), self._count)
        instructions = _leading_instructions(first)
        unread = 0
        if not newest.is_whole and newest.is_counted:
            read = len(newest.read) + _stored(instructions)
            unread = max(0, self._record.messages - self._record.retracted - read)
        if len(instructions) == len(first) and goes_on:
            more = _leading_instructions(groups)
            groups = groups[len(more) :]
            instructions += more
        head = _fitting(instructions, self._max_tokens)
        room = self._max_tokens - _weight(head)
        tail, cut = groups, 0
        known = state(tail, room)
        if not newest.is_whole or _weight(tail) + known.tokens > room:
            groups, cuts = self._with_short_texts(groups, room)
            reserved = state((), room - (groups[-1].tokens if groups else 0)).tokens
            fitting = _fitting(groups[::-1], room - reserved)[::-1]
            start = len(groups) - len(fitting)
            tail = groups if newest.is_whole and start == 0 else self._aligned(groups, start, newest.read)
            cut = sum(cuts[len(groups) - len(tail) :])
            known = state(tail, room - _weight(tail))
        messages = _laid(head, known, tail)
        return Context(
            messages=as_read(messages),
            spelt=_spelt(messages),
            tokens=_weight(head) + known.tokens + _weight(tail),
            dropped=_stored(instructions) + _stored(groups) - _stored(head) - _stored(tail) + unread,
            max_tokens=self._max_tokens,
            instructions_dropped=len(instructions) - len(head),
            shortened=cut,
        )

    def _with_short_texts(self, groups: Sequence[Exchange], room: int) -> tuple[list[Exchange], list[int]]:
        """No result takes more than its part of the window; and the newest exchange fits, if shorter texts can make it.
        With the number of texts that were cut in each."""
        cut = [shortened(one, self._most_of_a_result, self._count, results_only=True) for one in groups]
        most = room
        while cut and cut[-1][0].tokens > room and most > LEAST_TEXT:
            cut[-1] = shortened(groups[-1], most, self._count, results_only=False)
            most = most * 3 // 4
        return [exchange for exchange, _ in cut], [number for _, number in cut]

    def _aligned(self, groups: list[Exchange], start: int, newest: Sequence[Event]) -> list[Exchange]:
        """``groups`` from ``start`` on, or from a little later: where the tokens from the session's beginning pass a multiple
        of a stride. So the window's beginning stays where it is while messages come, and moves by a stride. Nothing that is
        larger is left out for it."""
        stride = max(1, self._max_tokens // STRIDES)
        before = self._record.context_tokens
        tokens_before: dict[int, int] = {}
        for event in reversed(newest):
            before -= 0 if event.status == "unanswered" else tokens_of(event)
            tokens_before[event.seq] = before
        skipped = 0
        for index in range(max(start, 1), len(groups)):
            skipped += groups[index - 1].tokens if index > start else 0
            if skipped > 2 * stride:
                break
            if tokens_before[groups[index - 1].seq] // stride != tokens_before[groups[index].seq] // stride:
                return groups[index:]
        return groups[start:]


def _leading_instructions(groups: Sequence[Exchange]) -> list[Exchange]:
    return list(takewhile(lambda exchange: exchange.instructs, groups))


def _fitting(groups: Sequence[Exchange], room: int) -> list[Exchange]:
    """As many as fit, from the first on."""
    fitting = []
    for exchange in groups:
        room -= exchange.tokens
        if room < 0:
            break
        fitting.append(exchange)
    return fitting


def _weight(groups: Sequence[Exchange]) -> int:
    return sum([exchange.tokens for exchange in groups])


def _stored(groups: Sequence[Exchange]) -> int:
    """Messages of the session; synthetic ones do not count."""
    return sum([len(exchange.seqs) for exchange in groups])


def _spelt(messages: Sequence[dict[str, Any]]) -> dict[int, msgspec.Raw]:
    return {
        index: msgspec.Raw(json_as_written(message)) for index, message in enumerate(messages) if has_written(message)
    }


def _untold(calls: Sequence[CallRow], told: Sequence[Exchange]) -> list[CallRow]:
    """The calls that these messages do not tell of."""
    seqs = {seq for exchange in told for seq in exchange.seqs}
    labels = {label for exchange in told for label in exchange.labels}
    return [
        call
        for call in calls
        if not (call.result_seq in seqs or (call.status == "started" and call.tool_call_id in labels))
    ]


def _laid(head: Sequence[Exchange], known: Preamble, tail: Sequence[Exchange]) -> list[dict[str, Any]]:
    """The state stands before the newest message of the user; at the beginning, if there is none."""
    by_user = [index for index, exchange in enumerate(tail) if exchange.role == "user"]
    split = by_user[-1] if by_user else 0
    before = [message for exchange in (*head, *tail[:split]) for message in exchange.messages]
    return before + known.messages + [message for exchange in tail[split:] for message in exchange.messages]
