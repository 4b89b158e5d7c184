"""What the scenes read out of a session, and the claims that several of them make."""

from __future__ import annotations

import hashlib
from typing import Any

from satchel import Session
from satchel.demo.stage import Stage
from satchel.demo.story import call_line
from satchel.demo.stream import Stream


def first_answer(session: Session, *, number: int) -> str:
    """The first thing that the agent said in the run of this number."""
    return _answers(session, number)[0]


def last_answer(session: Session, *, number: int) -> str:
    return _answers(session, number)[-1]


def _answers(session: Session, number: int) -> list[str]:
    run_ids = [run.run_id for run in session.runs if run.number == number]
    said = [
        message.content for message in session.messages if message.role == "assistant" and message.run_id in run_ids
    ]
    return said or [""]


def gapless(seqs: list[int]) -> str:
    return f"1 to {len(seqs)}" if seqs == [*range(1, len(seqs) + 1)] else f"gaps in {seqs}"


def calls_of(session: Session, *, number: int) -> list[str]:
    run_ids = [run.run_id for run in session.runs if run.number == number]
    return [call_line(call.tool, call.arguments) for call in session.tool_history if call.run_id in run_ids]


def memory_of(session: Session) -> dict[str, Any]:
    assert session.working_memory is not None
    return session.working_memory.to_dict()


def check_runs(stage: Stage, session: Session, *, count: int) -> None:
    """Several runs in one session, each with a life of its own."""
    runs = session.runs
    stage.show.runs(runs)
    stage.check(f"{count} runs in one session", expected=[*range(1, count + 1)], found=[run.number for run in runs])
    stage.check("each has its own status", expected=["COMPLETED"] * count, found=[run.status for run in runs])
    times = [time for run in runs for time in (run.start_time, run.end_time)]
    known = [time for time in times if time is not None]
    stage.check(
        "each has its own times, one run after the other",
        expected=2 * count,
        found=len(set(known)) if known == sorted(known) else "not in order",
    )
    stage.check(
        "each has its own steps and tokens",
        expected=count,
        found=sum(run.steps > 0 < run.usage.total_tokens for run in runs),
    )
    stage.check(
        "the session's tokens are the sum of its runs'",
        expected=sum(run.usage.total_tokens for run in runs),
        found=session.usage.total_tokens,
    )


async def check_served(stage: Stage) -> None:
    """What a client reads is what the store holds, to the byte."""
    answer = await stage.ask("GET", f"/v1/sessions/{stage.session_id}")
    stored = (await stage.read()).to_json()
    stage.check(
        "over HTTP the session reads as the store holds it: bytes, SHA-256",
        expected=_digest(stored),
        found=_digest(answer.content),
    )


async def check_stream(stage: Stage, stream: Stream, *, cut_after: int) -> None:
    """``cut_after``: the seq of the last event before the server died."""
    last = (await stage.read()).last_seq
    await stream.reached(last)
    stage.check(
        "Ada's stream was cut by the kill, and came back with the id of the last event that it had",
        expected=cut_after,
        found=stream.resumed_after[0] if stream.resumed_after else "it was not cut",
    )
    async with stage.behind() as sessions:
        log = [event.seq for event in await sessions.events(stage.session_id, limit=500)]
    stage.check(
        "over the cut it brought each event of the log, once and in order",
        expected=f"1 to {len(log)}",
        found=gapless(stream.seqs) if log == stream.seqs else f"{stream.seqs}, the log {log}",
    )


def _digest(text: bytes) -> str:
    return f"{len(text)}, {hashlib.sha256(text).hexdigest()[:16]}"
