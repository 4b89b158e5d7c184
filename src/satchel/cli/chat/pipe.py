"""A conversation without a terminal: one message in, one answer out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from queue import SimpleQueue

import msgspec

from satchel import Event, InvalidInput, Message, Run
from satchel.cli import output, sentences
from satchel.cli.chat import answers, keyboard
from satchel.cli.chat.room import Item, Room
from satchel.cli.exit_codes import ExitCode
from satchel.cli.failures import FileUnusable
from satchel.sync.background import BackgroundLoop


def answer_once(loop: BackgroundLoop, room: Room, back: Callable[[str], str], *, json: bool) -> ExitCode:
    """All of stdin is the message, or the answer to what the session's run asks.

    Raises FileUnusable, AgentNotServed, InvalidInput for an answer that does not fit its question, and what the store raises.
    """
    text = _read_stdin()
    run, after = _begin(loop, room, text)
    try:
        _wait(loop, room, run, after=after)
    except keyboard.HungUp:
        raise
    except KeyboardInterrupt:
        loop.call(room.cancel(run))
        raise
    run = loop.call(room.run(run))
    message = _last_answer(loop.call(room.messages(run)))
    if json:
        answer = None if message is None else msgspec.Raw(message.to_json())
        output.write_json({"session_id": run.session_id, "run": msgspec.Raw(run.to_json()), "message": answer})
    else:
        if message is not None:
            output.write_text(sentences.message_text(message))
        if run.error is not None:
            output.say(f"satchel: the run failed: {run.error.code}: {run.error.message}")
        if run.question is not None:
            output.say(f"{run.question.question}  {answers.hint(run.question.schema)}".rstrip())
        output.say("to go on:")
        output.say(back(run.session_id))
    is_answered = run.status == "COMPLETED" and message is not None
    return ExitCode.OK if is_answered else ExitCode.NOT_ANSWERED


def _read_stdin() -> str:
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as wrong:
        raise FileUnusable("stdin", f"is not UTF-8 (byte {wrong.start})") from None
    except OSError as error:
        raise FileUnusable("stdin", error.strerror or "cannot be read") from error
    if not text.strip():
        raise FileUnusable("stdin", "holds no message")
    return text.strip("\r\n")


def _begin(loop: BackgroundLoop, room: Room, text: str) -> tuple[Run, int]:
    """The run that goes on, and the seq behind which it does."""
    waiting = None if room.session_id is None else loop.call(room.unfinished_run())
    if waiting is None or waiting.question is None:
        return loop.call(room.say(text)), 0
    try:
        answer = answers.read_answer(text, waiting.question.schema)
    except ValueError as wrong:
        raise InvalidInput(f"the run asks: {waiting.question.question} Type {wrong}", field="answer") from None
    loop.call(room.answer(waiting, waiting.question, answer))
    return waiting, waiting.question.seq


def _wait(loop: BackgroundLoop, room: Room, run: Run, *, after: int) -> None:
    """Until the run has ended, or asks something."""
    inbox: SimpleQueue[Item] = SimpleQueue()
    loop.call(room.follow(run, inbox.put))
    while (item := inbox.get()) is not None:
        if isinstance(item, Exception):
            raise item
        if isinstance(item, Event) and item.kind == "question_asked" and item.seq > after:
            return


def _last_answer(messages: tuple[Message, ...]) -> Message | None:
    """The newest message of the agent that says something."""
    for message in reversed(messages):
        if message.role == "assistant" and message.content:
            return message
    return None
