"""``satchel chat``."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import satchel
from satchel.cli import flags, output
from satchel.cli.exit_codes import ExitCode
from satchel.cli.failures import FlagRefused, StoreMissing
from satchel.cli.flag import variable
from satchel.cli.store import has_password, new_file, say_made
from satchel.domain.principal import LOCAL

if TYPE_CHECKING:
    from satchel.cli.chat.partner import Partner


def chat(
    *,
    store: flags.ChatStore = None,
    tenant: flags.ChatTenant = LOCAL,
    user: flags.ChatUser = LOCAL,
    agent: flags.ChatAgent = None,
    model: flags.Model = None,
    instructions: flags.Instructions = "",
    continue_: flags.Continue = False,
    session: flags.ChatSession = None,
    json: flags.Json = False,
) -> int:
    """Talk to an agent: one of your own, a model, or the demo's.

    Text appears while the agent speaks; what it asks you, you answer. Ctrl-C stops it and keeps the turn. A session is begun
    with your first message and stays in the store: --continue comes back to the newest, --session to any.

    --model is asked at OPENAI_BASE_URL (left out: OpenAI's own) with the key in OPENAI_API_KEY, and needs the extra openai.
    The agent runs in a worker of this process, for this session alone.

    Where stdin or stdout is no terminal, all of stdin is one message (or the answer to what the session's run asks), and its
    answer is printed; with --json one line, `{"session_id", "run", "message"}`. The exit code is 6 if there is none.
    """
    back = way_back(store=store, tenant=tenant, user=user, agent=agent, model=model, instructions=instructions)
    if continue_ and session is not None:
        raise FlagRefused("--continue is the newest session: leave --session out")
    for name, identity in (("--tenant", tenant), ("--user", user)):
        if identity == "":
            raise FlagRefused(f"{name} is empty, and an empty text is not an identity")
    is_resumed = continue_ or session is not None
    url = _own_store(create=not is_resumed) if store is None else store
    from satchel.cli.chat.partner import partner  # loaded here: no other command needs it, or what it loads

    with partner(agent=agent, model=model, instructions=instructions) as other:
        return _converse(url, other, tenant, user, back, is_resumed=is_resumed, session_id=session, json=json)


def _converse(
    url: str,
    other: Partner,
    tenant: str,
    user: str,
    back: Callable[[str], str],
    *,
    is_resumed: bool,
    session_id: str | None,
    json: bool,
) -> ExitCode:
    from satchel.cli.chat.keyboard import heed_hangups
    from satchel.cli.chat.pipe import answer_once
    from satchel.cli.chat.room import Room
    from satchel.cli.chat.talk import Talk
    from satchel.sync.background import BackgroundLoop

    _keep_logs_off_the_terminal()
    heed_hangups()
    loop = BackgroundLoop("satchel-chat")
    try:
        made = new_file(url)
        opened = satchel.open(url)
        loop.call(opened.open())
        say_made(made, json=json)
        room = Room(opened, other, tenant=tenant, user=user)
        is_over = False
        try:
            if is_resumed:
                loop.call(room.resume(session_id))
            if json or not (output.is_terminal(sys.stdin) and output.is_terminal(sys.stdout)):
                if other.is_scripted and not json:
                    output.say(f"satchel: this is {other.about}")
                code = answer_once(loop, room, back, json=json)
            else:
                code = Talk(loop, room, back).hold(other.about)
            is_over = True
        finally:
            loop.call(room.leave(at_once=not is_over))
            loop.call(opened.close())
    finally:
        loop.close()
    return code


def way_back(
    *, store: str | None, tenant: str, user: str, agent: str | None, model: str | None, instructions: str
) -> Callable[[str], str]:
    """From a session's id to the command that comes back to it, as this one was given and ready to be pasted."""
    words = []
    if store is not None and not _is_secret_of_the_environment(store):
        words += ["--store", store]
    for flag, value, unless in (
        ("--tenant", tenant, LOCAL),
        ("--user", user, LOCAL),
        ("--agent", agent, None),
        ("--model", None if agent is not None else model, None),
        ("--instructions", "" if agent is not None or model is None else instructions, ""),
    ):
        if value and (value != unless or variable(flag) in os.environ):
            words += [flag, value]

    def back(session_id: str) -> str:
        return shlex.join(["satchel", "chat", "--session", session_id, *words])

    return back


def _is_secret_of_the_environment(store: str) -> bool:
    """An address with a password that no command line showed yet stays where it is."""
    return has_password(store) and os.environ.get("SATCHEL_STORE") == store


def _keep_logs_off_the_terminal() -> None:
    """What a person must know stands in the run."""
    log = logging.getLogger("satchel")
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def _own_store(*, create: bool) -> str:
    """Where conversations are kept that no other store was named for."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    path = Path(home) / "satchel" / "chat.db"
    if create:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not path.exists():
        raise StoreMissing(str(path))
    return f"sqlite:///{path}"
