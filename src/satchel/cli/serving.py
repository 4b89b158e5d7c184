"""``satchel serve`` and ``satchel config``."""

from __future__ import annotations

import logging
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from satchel.cli import flags, output
from satchel.cli.ending import leave_stuck_threads
from satchel.cli.exit_codes import ExitCode
from satchel.cli.failures import FlagRefused, StoreNotShared
from satchel.cli.store import made_sentence, new_file, run_async, without_password
from satchel.cli.typed import is_typed
from satchel.cli.variables import warn_of_unknown
from satchel.cli.working import load_agents
from satchel.errors import ExtraMissing
from satchel.http.settings import Settings, load_settings, shown
from satchel.worker import Served

_log = logging.getLogger("satchel.serve")

YOUR_AGENT = "YOUR-AGENT"  # in the line to try, where this server has none


def serve_http(
    *,
    agent: flags.ServedAgents = (),
    no_agents: flags.NoAgents = False,
    folder: flags.Folder = None,
    given: flags.ServersSettings = flags.NO_SETTINGS,
) -> None:
    """Serve sessions over HTTP, with a worker for the runs of its agents beside it.

    At the first start on a store a key for development is made, in a file beside the store that its owner alone can read;
    the line to try it with is printed. `satchel keys create` makes the keys of others.

    SIGTERM and Ctrl-C: streams end, requests that are here are answered, runs have --drain-seconds to finish. A second one
    ends it at once.
    """
    check_extras("server")
    from satchel.http.logs import log_to_stderr

    settings = _loaded(given)
    log_to_stderr(texts=settings.server.log_texts)
    warn_of_unknown(lambda sentence: tell(sentence, is_warning=True))
    chosen = _Chosen(tuple(agent), folder, no_agents)
    agents = _agents(settings, chosen)
    if settings.server.workers > 1:
        _serve_by_several(settings, chosen, agents)
        return
    run_async(_serve(settings, agents, _announcer(settings, agents, chosen)))


def _loaded(given: flags.ServersSettings) -> Settings:
    written = {
        "server.store": given.store,
        "server.host": given.host,
        "server.port": given.port,
        "server.concurrency": given.concurrency,
        "server.lease": given.lease,
        "server.drain_seconds": given.drain_seconds,
        "server.workers": given.workers,
        "server.traces": given.traces,
        "policy.idle": given.idle,
        "policy.max_lifetime": given.max_lifetime,
        "policy.retention": given.retention,
    }
    # What a variable says is read there, so that an error names the variable and no flag.
    typed = {
        name: value for name, value in written.items() if is_typed(f"--{name.rpartition('.')[2].replace('_', '-')}")
    }
    return load_settings(typed | {"server.access_log": False if given.quiet else None}, path=given.config)


@dataclass(frozen=True)
class _Chosen:
    """The agents that were asked for, as a process of its own can be told."""

    written: tuple[str, ...]
    folder: Path | None
    none: bool

    @property
    def is_demo(self) -> bool:
        """Nobody chose: the demo's are served."""
        return not self.none and not self.written


async def _serve(
    settings: Settings,
    agents: Mapping[str, Served],
    announce: Callable[[str, Path | None], None],
    listener: socket.socket | None = None,
) -> None:
    from satchel.http.serve import serve

    await serve(settings, agents, announce=announce, listener=listener, say=tell)


def tell(sentence: str, *, is_warning: bool = False) -> None:
    """To who looks on: a line as people read it on a terminal, else one of the log."""
    if output.is_terminal(sys.stderr):
        output.say(f"satchel: {sentence}" if is_warning else sentence)
    else:
        _log.log(logging.WARNING if is_warning else logging.INFO, "%s", sentence)


def _announcer(settings: Settings, agents: Mapping[str, Served], chosen: _Chosen) -> Callable[[str, Path | None], None]:
    made = new_file(settings.server.store)
    message = "帮我修复启动失败。" if chosen.is_demo else "hello"  # the demo's agents answer what they know

    def announce(address: str, key_file: Path | None) -> None:
        if made is not None:
            tell(made_sentence(made))
        served = f"agents: {', '.join(agents)}" if agents else "no agents"
        tell(f"satchel serves {without_password(settings.server.store)} at {address} ({served})")
        agent = None if agents else YOUR_AGENT
        output.write_bytes(ready_line(address, key_file, message, agent=agent).encode() + b"\n")
        output.flush()
        if not agents:
            worker = f"satchel worker --agent MODULE:OBJECT{_store_flag(settings)}"
            tell(f"{YOUR_AGENT}: one that a worker serves: {worker}")
        if key_file is None:
            tell(_about_key(settings))

    return announce


def _about_key(settings: Settings) -> str:
    """What $KEY is, where no file holds one."""
    if settings.jwt is not None:
        return f"$KEY: a token of {settings.jwt.issuer}"
    create = f"satchel keys create{_store_flag(settings)} --tenant acme --role user --user ada"
    return f"$KEY: a key that you were given when it was made, for it is shown only then; another: KEY=$({create})"


def _store_flag(settings: Settings) -> str:
    url = settings.server.store
    return "" if without_password(url) != url else f" --store {shlex.quote(url)}"  # its password is for no log


def _serve_by_several(settings: Settings, chosen: _Chosen, agents: Mapping[str, Served]) -> None:
    from satchel.http.fleet import Fleet
    from satchel.http.serve import address_of, first_key, listen

    if settings.server.store.startswith("memory:"):
        raise StoreNotShared
    with listen(settings.server.host, settings.server.port) as listener:
        announce = _announcer(settings, agents, chosen)
        key_file = run_async(first_key(settings))
        Fleet(settings, listener, _one_of_several, chosen).run(lambda: announce(address_of(listener), key_file))


def _one_of_several(settings: Settings, listener: socket.socket, chosen: _Chosen, ready: Any) -> None:
    """In a process of its own."""
    from satchel.http.logs import log_to_stderr

    log_to_stderr(texts=settings.server.log_texts)
    run_async(_serve(settings, _agents(settings, chosen), lambda *_: ready.set(), listener))
    leave_stuck_threads(ExitCode.OK)


def ready_line(address: str, key_file: Path | None, message: str, *, agent: str | None) -> str:
    """What somebody can paste; ``agent``: where there is no default. The key itself is in no line of any terminal's history."""
    key = "$KEY" if key_file is None else f"$(cat {shlex.quote(str(key_file.absolute()))})"
    named = "" if agent is None else f'"agent": "{agent}", '
    body = f'{{{named}"message": "{message}"}}'
    return (
        f'curl -s {address}/v1/chat -H "Authorization: Bearer {key}" -H "Content-Type: application/json" -d '
        + shlex.quote(body)
    )


def _agents(settings: Settings, chosen: _Chosen) -> dict[str, Served]:
    if chosen.none:
        if chosen.written:
            raise FlagRefused("--agent and --no-agents do not go together")
        return {}
    if chosen.written:
        return load_agents(chosen.written)
    from satchel.demo.served import demo_agents

    return demo_agents(settings.server.store, chosen.folder)


def print_config(
    *,
    given: flags.ServersSettings = flags.NO_SETTINGS,
    json: flags.Json = False,
) -> None:
    """Print the settings of `satchel serve` as they hold: this folder's satchel.toml, the SATCHEL_* variables, the same flags, and
    the defaults for all else. It is a satchel.toml.

    A SATCHEL_* variable that there is not is named on stderr."""
    settings = _loaded(given)
    warn_of_unknown(lambda sentence: _warn(sentence, json=json))
    document = shown(settings)
    document["server"]["store"] = without_password(document["server"]["store"])
    if json:
        output.write_json(document)
        return
    lines: list[str] = []
    for group, members in document.items():
        lines.append(f"[{group}]")
        lines += [f"{name} = {toml_of(value)}" for name, value in members.items() if value is not None]
        lines.append("")
    output.write_bytes("\n".join(lines).encode())


def _warn(sentence: str, *, json: bool) -> None:
    if json:
        output.write_error({"warning": {"code": "unknown_variable", "message": sentence}})
    else:
        output.say(f"satchel: {sentence}")


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{output.encoded(name).decode()} = {toml_of(one)}" for name, one in value.items())
        return "{ " + inner + " }" if inner else "{}"
    return output.encoded(value).decode()


_NEEDS = {"client": ("httpx",), "server": ("httptools", "jsonschema_rs", "litestar", "prometheus_client", "uvicorn")}


def check_extras(*extras: str) -> None:
    """So that a missing extra is named before anything is opened. Raises ExtraMissing."""
    for extra in extras:
        if any(find_spec(name) is None for name in _NEEDS[extra]):
            raise ExtraMissing(extra, action=f"the {extra}")
