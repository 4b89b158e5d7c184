"""A conversation on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from satchel import Conflict, Event, InvalidInput, Run, SatchelError
from satchel.cli.chat import answers, keyboard
from satchel.cli.chat.room import Item, Room
from satchel.cli.chat.screen import Screen
from satchel.cli.exit_codes import ExitCode
from satchel.sync.background import BackgroundLoop

HELP = """\
/help      this
/history   the messages of this session
/memory    its working memory
/quit      leave (Ctrl-D too); --continue comes back
//…        a message that begins with a slash
A line that ends in \\ goes on with the next. Ctrl-C stops the agent and keeps the turn; twice leaves."""


class Talk:
    """In the main thread, which may block; ``loop`` is the room's."""

    def __init__(self, loop: BackgroundLoop, room: Room, back: Callable[[str], str]) -> None:
        self._loop = loop
        self._back = back
        self._room = room
        self._screen = Screen()

    def hold(self, about: str) -> ExitCode:
        """Until the person leaves. Raises KeyboardInterrupt when they leave by Ctrl-C."""
        keyboard.prepare()
        screen = self._screen
        screen.note(f"{about if about.endswith('?') else about + '.'} /help lists what else there is.")
        if self._room.session_id is not None:
            screen.recap(self._loop.call(self._room.session()))
            unfinished = self._loop.call(self._room.unfinished_run())
            if unfinished is not None and not self._watch(unfinished):
                return self._leave()
        was_interrupted = False
        while True:
            try:
                text = keyboard.read_line().strip()
            except EOFError:
                screen.say("")
                break
            except KeyboardInterrupt as interrupt:
                screen.say("")
                if was_interrupted or isinstance(interrupt, keyboard.HungUp):
                    raise
                was_interrupted = True
                screen.note("Ctrl-C again leaves")
                continue
            was_interrupted = False
            if text == "/quit":
                break
            if text and not self._take(text):
                break
        return self._leave()

    def _leave(self) -> ExitCode:
        if self._room.session_id is not None:
            self._screen.note("to go on:")
            self._screen.command(self._back(self._room.session_id))
        return ExitCode.OK

    def _take(self, text: str) -> bool:
        """False: the person leaves."""
        if text.startswith("/") and not text.startswith("//"):
            self._command(text)
            return True
        try:
            run = self._loop.call(self._room.say(text.removeprefix("/") if text.startswith("//") else text))
        except SatchelError as refused:
            self._screen.warn(str(refused))
            return True
        return self._watch(run)

    def _command(self, text: str) -> None:
        screen = self._screen
        if text == "/help":
            screen.lines(HELP)
        elif text not in ("/history", "/memory"):
            screen.warn(
                f"there is no command {text.split(maxsplit=1)[0]}; /help lists them, // sends a text that begins with /"
            )
        elif self._room.session_id is None:
            screen.note("nothing was said yet")
        elif text == "/history":
            screen.messages(tuple(self._loop.call(self._room.session()).messages))
        else:
            screen.memory(self._loop.call(self._room.memory()))

    def _watch(self, run: Run) -> bool:
        """A run, until it has ended; False: the person leaves while it waits for an answer. The first Ctrl-C asks it to stop,
        the second leaves it behind."""
        inbox: SimpleQueue[Item] = SimpleQueue()
        self._loop.call(self._room.follow(run, inbox.put))
        is_stopping = False
        while True:
            try:
                item = inbox.get()
                if item is None:
                    break
                if isinstance(item, Exception):
                    raise item
                self._screen.show(item)
                if isinstance(item, Event) and item.kind == "question_asked":
                    self._answer(run, item)
            except EOFError:
                self._screen.note("it waits for your answer")
                return False
            except KeyboardInterrupt as interrupt:
                if is_stopping or isinstance(interrupt, keyboard.HungUp):
                    raise
                is_stopping = True
                self._screen.note("stopping … (Ctrl-C again leaves)")
                self._loop.call(self._room.cancel(run))
        self._screen.end(self._loop.call(self._room.run(run)))
        return True

    def _answer(self, run: Run, event: Event) -> None:
        """Ask the person what the run asks, unless somebody answered it since. Raises EOFError when they do not answer,
        KeyboardInterrupt, and AgentNotServed when nobody here would go on with it."""
        question = self._loop.call(self._room.run(run)).question
        if question is None or question.seq != event.seq:
            return
        self._room.check_serves(run)
        hint = answers.hint(question.schema)
        self._screen.ask(question.question, hint)
        self._screen.note("Ctrl-C cancels the run; Ctrl-D leaves its question open")
        while True:
            text = keyboard.read_line("? ")
            try:
                answer = answers.read_answer(text, question.schema)
                self._loop.call(self._room.answer(run, question, answer))
            except InvalidInput as refused:
                self._screen.warn(f"{refused.reason}{hint and f' ({hint})'}")
            except ValueError as wrong:
                self._screen.warn(f"please type {wrong}")
            except Conflict as late:
                self._screen.note(str(late))
                return
            else:
                return
