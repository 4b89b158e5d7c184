"""Where a log may be cut, for any interleaving."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from satchel.domain.event import Event
from satchel.domain.point import Pairs
from satchel.testing.stage import asking, said

LABELS = ("a", "b", "c")
steps = st.lists(
    st.tuples(st.sampled_from(["ask", "answer", "start", "end", "say"]), st.sampled_from(LABELS)), max_size=12
)


def events_of(chosen: list[tuple[str, str]]) -> tuple[list[Event], list[tuple[int, int]]]:
    """The log, and its pairs as somebody would list them who reads it."""
    log: list[Event] = []
    pairs: list[tuple[int, int]] = []
    asked: dict[str, int] = {}
    started: dict[str, int] = {}
    for what, label in chosen:
        seq = len(log) + 1
        kind, refers_to, body = "message", None, said("x")
        if what == "ask":
            body = asking(label)
            asked[label] = seq
        elif what == "answer":
            body = said("x", "tool", tool_call_id=label)
            if label in asked:
                pairs.append((asked.pop(label), seq))
        elif what == "start" and label not in started:
            kind, body = "tool_call_started", {"tool": "t", "tool_call_id": label}
            started[label] = seq
        elif what == "end" and label in started:
            kind, refers_to, body = "tool_call_finished", started.pop(label), {"status": "failed"}
            pairs.append((refers_to, seq))
        log.append(
            msgspec.convert(
                {"seq": seq, "version": seq, "kind": kind, "at": 0, "actor": "operator", "refers_to": refers_to}
                | {"body": msgspec.json.encode(body)},
                Event,
            )
        )
    return log, pairs


@given(steps, st.integers(0, 12))
def test_a_cut_parts_no_pair_and_takes_as_much_as_it_can(chosen: list[tuple[str, str]], wanted: int) -> None:
    log, pairs = events_of(chosen)
    up_to = min(wanted, len(log))
    cut = Pairs()
    for event in log:
        cut.take(event)
    whole = [end for end in range(up_to + 1) if not any(first <= end < second for first, second in pairs)]
    assert cut.cut(up_to) == max(whole)
