"""The commands as cyclopts knows them, and their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from cyclopts import App

from satchel.cli import (
    copying,
    deleting,
    doctoring,
    exporting,
    flags,
    importing,
    keys,
    lifecycle,
    migrating,
    runs,
    serving,
    sweeping,
    tailing,
    viewing,
    working,
)
from satchel.cli.chat.command import chat
from satchel.cli.exit_codes import explained
from satchel.cli.failures import StoreNotShared

ABOUT = """Sessions of AI agents: conversation, working memory, tool history and runs, in a store that survives.

Every flag has an environment variable: --store is SATCHEL_STORE, --updated-after is SATCHEL_UPDATED_AFTER; a flag that may
be repeated takes one value a line. On a store the command is the operator: it may see and do everything of the tenant."""

EPILOGUE = f"""Begin with:

  satchel demo
  export SATCHEL_STORE=sqlite:///agent.db SATCHEL_TENANT=acme
  satchel sessions import talks.jsonl.gz --user ada
  satchel sessions list
  satchel tail SESSION_ID --all

Exit codes:

{explained()}"""


def play_demo(
    *,
    folder: flags.Folder = None,
    store: flags.DemosStore = None,
    json: flags.Json = False,
    keep: flags.Keep = False,
) -> int:
    """Play the demo: an agent repairs a project, its server is killed, and another goes on where it was.

    Over HTTP, with real servers, on this machine alone; the agent is scripted, its tools are real. Each check that it prints
    is computed; the exit code is 1 if one fails.
    """
    serving.check_extras("client", "server")
    if store is not None and store.startswith("memory:"):
        raise StoreNotShared
    from satchel.demo.play import run_demo

    return run_demo(folder=folder, json=json, keep=keep, store=store)


def _version() -> str:
    from importlib.metadata import version

    return version("satchel")


def make_app() -> App:
    app = App(
        name="satchel",
        help=_flowing(ABOUT),
        help_format="plaintext",
        help_epilogue=EPILOGUE,
        version=_version,
        version_format="plaintext",
        result_action="return_value",
        exit_on_error=False,
        print_error=False,
        suppress_keyboard_interrupt=False,
    )
    sessions = App(
        name="sessions", help="List, show, close, restore, delete, import and export sessions.", help_epilogue=""
    )
    app.command(sessions)
    running = App(name="runs", help="List, show, answer and cancel the runs of a session.", help_epilogue="")
    app.command(running)
    keyring = App(name="keys", help="Make, list and revoke the keys of a server.", help_epilogue="")
    app.command(keyring)
    migrate = App(name="migrate", help="Bring a store's schema up to date, or see what that takes.", help_epilogue="")
    app.command(migrate)
    _add(app, "demo", play_demo)
    _add(
        app,
        "chat",
        chat,
        "satchel chat --model gpt-5-mini",
        "satchel chat --continue",
        "echo 你好 | satchel chat --json | jq -r .message.content",
    )
    _add(
        app,
        "serve",
        serving.serve_http,
        "satchel serve",
        "satchel serve --store sqlite:///agent.db --port 8321 --agent agents:shop --idle 12h",
    )
    _add(app, "config", serving.print_config)
    _add(
        app,
        "tail",
        tailing.tail_session,
        "satchel tail sess_… --all",
        "satchel tail sess_… --json | jq -r .kind",
    )
    _add(
        app,
        "worker",
        working.serve_agents,
        "satchel worker --agent agents:shop --store sqlite:///agent.db",
        "satchel worker --agent a:one --agent two=b:make --concurrency 4",
        usage="satchel worker --store URL --agent AGENT [OPTIONS]",
    )
    _add(
        app,
        "sweep",
        sweeping.sweep_store,
        "satchel sweep --store sqlite:///agent.db",
        "satchel sweep --store postgresql://… --every 5s --json",
    )
    _add(
        app,
        "copy",
        copying.copy_store,
        "satchel copy --from sqlite:///agent.db --to postgresql://ada@db/satchel",
        "satchel copy --from sqlite:///agent.db --to sqlite:///acme.db --tenant acme",
    )
    _add(app, "doctor", doctoring.examine_store, "satchel doctor --store sqlite:///agent.db")
    _add(migrate, "status", migrating.show_schema)
    _add(migrate, "up", migrating.bring_up)
    _add(migrate, "sql", migrating.print_sql, "satchel migrate sql --store postgresql://… | psql …")
    _add(
        sessions,
        "list",
        viewing.list_sessions,
        "satchel sessions list --status closed --updated-after 2026-01-31",
        "satchel sessions list --user ada --metadata topic=sales --title flask",
    )
    _add(sessions, "show", viewing.show_session)
    _add(sessions, "close", lifecycle.close_session)
    _add(sessions, "restore", lifecycle.restore_session)
    _add(
        sessions,
        "delete",
        deleting.delete_sessions,
        "satchel sessions delete sess_…",
        "satchel sessions delete --user ada --status closed --older-than 30d --dry-run",
        "satchel sessions delete --before 2026-01-01 --yes",
        usage="satchel sessions delete --store URL --tenant T [OPTIONS] [SESSION_ID]",
    )
    _add(
        sessions,
        "import",
        importing.import_sessions,
        "satchel sessions import a.jsonl b.jsonl.gz --user ada",
        "satchel sessions import backup.jsonl.gz",
        "zcat b.jsonl.gz | satchel sessions import - --user ada",
        usage="satchel sessions import --store URL --tenant T [--user U] [OPTIONS] FILE...",
    )
    _add(
        sessions,
        "export",
        exporting.export_sessions,
        "satchel sessions export -o backup.jsonl.gz",
        "satchel sessions export sess_… | jq .messages",
        usage="satchel sessions export --store URL --tenant T [OPTIONS] [SESSION_ID...]",
    )
    _add(running, "list", runs.list_runs, "satchel runs list sess_…", "satchel runs list --external-id ticket-17")
    _add(running, "show", runs.show_run)
    _add(
        running,
        "answer",
        runs.answer_run,
        "satchel runs answer sess_… y",
        """satchel runs answer sess_… 'e {"order": 18}'""",
        usage="satchel runs answer --store URL --tenant T [OPTIONS] [SESSION_ID] ANSWER",
    )
    _add(running, "cancel", runs.cancel_run)
    _add(
        keyring,
        "create",
        keys.create_key,
        "satchel keys create --store sqlite:///agent.db --tenant acme --role user --user ada",
        "satchel keys create --store sqlite:///agent.db --tenant acme --role agent --acting-for ada --expires-in 90d",
    )
    _add(keyring, "list", keys.list_keys)
    _add(keyring, "revoke", keys.revoke_key)
    return app


def _add(app: App, name: str, command: Callable[..., object], *examples: str, usage: str | None = None) -> None:
    shown = "\n".join(["For example:", "", *(f"  {line}" for line in examples)]) if examples else ""
    app.command(
        command,
        name=name,
        help=_flowing(inspect.getdoc(command) or ""),
        help_epilogue=shown,
        usage=None if usage is None else f"Usage: {usage}",
    )


def _flowing(text: str) -> str:
    """Each paragraph as one line, to be broken where the terminal ends."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
