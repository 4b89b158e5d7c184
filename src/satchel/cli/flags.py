"""Every flag and argument, described once. Each flag has its variable: ``--updated-after`` is ``SATCHEL_UPDATED_AFTER``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from satchel.cli.flag import WHERE, as_moment, as_pairs, as_run_status, as_status, flag
from satchel.domain.run import RunStatus

# -- where


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Where:
    """A store, and whose sessions of it."""

    store: Annotated[
        str, flag("--store", about="The store, for example sqlite:///agent.db.", group=WHERE, metavar="URL")
    ]
    tenant: Annotated[
        str, flag("--tenant", about="The organisation whose sessions they are.", group=WHERE, metavar="T")
    ]
    user: Annotated[
        str | None,
        flag("--user", about="Only this user's sessions; left out: all of the tenant.", group=WHERE, metavar="U"),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Whose:
    """A store, and the user whose sessions they will be, or whose each line says."""

    store: Annotated[
        str,
        flag(
            "--store", about="The store, for example sqlite:///agent.db; made if missing.", group=WHERE, metavar="URL"
        ),
    ]
    tenant: Annotated[
        str, flag("--tenant", about="The organisation whose sessions they are.", group=WHERE, metavar="T")
    ]
    user: Annotated[
        str | None,
        flag(
            "--user",
            about="The user who will own all of them; left out: each stays its owner's, as exported lines name them.",
            group=WHERE,
            metavar="U",
        ),
    ] = None


MaybeSessionId = Annotated[
    str | None,
    Parameter(name="SESSION_ID", help="The session, sess_…; left out: all that the flags choose.", show_default=False),
]
SessionIds = Annotated[
    tuple[str, ...],
    Parameter(
        name="SESSION_ID",
        help="Only these sessions; left out: all, newest change first.",
        show_default=False,
        negative="",
    ),
]

SessionOrNone = Annotated[
    str | None, Parameter(name="SESSION_ID", help="The session, sess_…; or --external-id.", show_default=False)
]
ExternalId = Annotated[
    str | None,
    flag("--external-id", about="The session that was given this name of your own.", metavar="NAME"),
]
RunOrNone = Annotated[str | None, Parameter(name="RUN_ID", help="The run, run_…", show_default=False)]
AnswerText = Annotated[
    str | None, Parameter(name="ANSWER", help="The answer; - is stdin.", show_default=False, allow_leading_hyphen=True)
]
AnsweredRun = Annotated[
    str | None, flag("--run", about="The run; left out: the one that has the turn.", metavar="RUN_ID")
]
QuestionName = Annotated[
    str | None, flag("--name", about="Answer only if this is the question that is pending.", metavar="NAME")
]
CancelReason = Annotated[str, flag("--reason", about="Why, for the run's stop_reason.", metavar="TEXT")]

# -- what

Json = Annotated[bool, flag("--json", about="Print JSON, and errors as JSON on stderr.")]
Reason = Annotated[str, flag("--reason", about="Why, for the lifecycle history.", metavar="TEXT")]
ExpectedVersion = Annotated[
    int | None, flag("--expected-version", about="Change nothing unless the session is at this version.", metavar="N")
]
Status = Annotated[
    Literal["ACTIVE", "CLOSED", "EXPIRED"] | None,
    flag("--status", about="Only those of this status, as it holds now.", converter=as_status, metavar="STATUS"),
]
Title = Annotated[
    str | None, flag("--title", about="Only those whose title contains this, whatever its case.", metavar="TEXT")
]
Metadata = Annotated[
    tuple[str, ...],
    flag(
        "--metadata",
        about='Only those with this in their metadata; repeat it for more. A VALUE that is JSON (3, true, null, "3")'
        " is that value, any other is text.",
        metavar="KEY=VALUE",
        converter=as_pairs,
    ),
]
UpdatedAfter = Annotated[
    datetime | None,
    flag(
        "--updated-after",
        about="Changed at this time or later; UTC unless it says otherwise.",
        converter=as_moment,
        metavar="TIME",
    ),
]
UpdatedBefore = Annotated[
    datetime | None, flag("--updated-before", about="Changed before this time.", converter=as_moment, metavar="TIME")
]
Limit = Annotated[int, flag("--limit", about="Sessions of one page, at most 1000.", metavar="N", show_default=True)]
RunsLimit = Annotated[int, flag("--limit", about="Runs of one page, at most 1000.", metavar="N", show_default=True)]
OfRunStatus = Annotated[
    RunStatus | None,
    flag("--status", about="Only those of this status.", converter=as_run_status, metavar="STATUS"),
]
Cursor = Annotated[str | None, flag("--cursor", about="Go on where a page ended: its `next`.", metavar="CURSOR")]
AllPages = Annotated[bool, flag("--all", about="All pages, one after the other.")]
Messages = Annotated[int, flag("--messages", about="How many of the newest messages.", metavar="N", show_default=True)]
Before = Annotated[
    datetime | None,
    flag("--before", about="Only those that last changed before this time.", converter=as_moment, metavar="WHEN"),
]
OlderThan = Annotated[
    str | None,
    flag("--older-than", about="Only those that have not changed for this long: 12h, 30d.", metavar="TIME"),
]
EverySession = Annotated[bool, flag("--all", about="All sessions that the other flags leave.")]
DryRun = Annotated[bool, flag("--dry-run", about="Show what would be done, and do nothing.")]
Yes = Annotated[bool, flag("--yes", "-y", about="Do not ask. Needed where there is no terminal.")]
Files = Annotated[
    tuple[str, ...],
    Parameter(
        name="FILE",
        help="One or more files of JSON lines, gzipped if the name ends in .gz; - is stdin.",
        allow_leading_hyphen=True,
    ),
]
Output = Annotated[
    str,
    flag(
        "--output",
        "-o",
        about="The file to write, gzipped if its name ends in .gz; - is stdout. What stood there stays until all is written.",
        metavar="FILE",
        allow_leading_hyphen=True,
        show_default=True,
    ),
]
After = Annotated[int | None, flag("--after", about="Begin after this seq.", metavar="SEQ")]
FromStart = Annotated[bool, flag("--all", about="Begin at the beginning.")]
Follow = Annotated[
    bool,
    flag("--follow", about="Wait for more (the default); --no-follow ends with what is there.", negative="--no-follow"),
]
OfRun = Annotated[
    str | None, flag("--run", about="Only this run's events, and end when it has ended.", metavar="RUN_ID")
]
StreamedText = Annotated[bool, flag("--text", about="Also text that is still being said.")]
Folder = Annotated[
    Path | None,
    flag("--folder", about="Where the demo keeps its files; left out: a temporary folder.", metavar="FOLDER"),
]
WorkersStore = Annotated[
    str,
    flag("--store", about="The store, for example sqlite:///agent.db; made if missing.", group=WHERE, metavar="URL"),
]
Agents = Annotated[
    tuple[str, ...],
    flag(
        "--agent",
        about="An agent to serve, [NAME=]MODULE:OBJECT; repeat it for more. NAME is what runs call it; left out: the"
        " object's own.",
        metavar="AGENT",
    ),
]
Concurrency = Annotated[int, flag("--concurrency", about="Runs at once.", metavar="N", show_default=True)]
Lease = Annotated[
    float,
    flag(
        "--lease",
        about="Seconds after which a worker that is silent is taken for dead, and its runs for lost.",
        metavar="SECONDS",
        show_default=True,
    ),
]
Grace = Annotated[
    float,
    flag(
        "--grace",
        about="Seconds for a run to return when it was cancelled, and to finish when the worker stops.",
        metavar="SECONDS",
        show_default=True,
    ),
]
DemosStore = Annotated[
    str | None,
    flag(
        "--store",
        about="A store to play on, as a tenant of the demo's own; with PostgreSQL two servers share it. Left out: a SQLite file"
        " in the demo's folder. Its variable is SATCHEL_DEMO_STORE.",
        env_var="SATCHEL_DEMO_STORE",
        metavar="URL",
    ),
]
Keep = Annotated[bool, flag("--keep", about="Leave the demo's files there.")]
ChatStore = Annotated[
    str | None,
    flag(
        "--store",
        about="The store, for example sqlite:///agent.db; made if missing. Left out: a file of your own, satchel/chat.db in"
        " XDG_DATA_HOME (~/.local/share). memory: forgets.",
        group=WHERE,
        metavar="URL",
    ),
]
ChatTenant = Annotated[str, flag("--tenant", about="The organisation.", group=WHERE, metavar="T", show_default=True)]
ChatUser = Annotated[str, flag("--user", about="Who talks.", group=WHERE, metavar="U", show_default=True)]
ChatAgent = Annotated[
    str | None,
    flag("--agent", about="An agent of your own, [NAME=]MODULE:OBJECT, as `satchel worker` takes it.", metavar="AGENT"),
]
Model = Annotated[str | None, flag("--model", about="Without --agent: the model that answers.", metavar="NAME")]
Instructions = Annotated[
    str, flag("--instructions", about="With --model: the system prompt, which is not stored.", metavar="TEXT")
]
Continue = Annotated[bool, flag("--continue", "-c", about="Go on with the session that changed last.")]
ChatSession = Annotated[str | None, flag("--session", about="Go on with this session.", metavar="SESSION_ID")]

# -- a server

ServersStore = Annotated[
    str | None,
    flag("--store", about="The store; made if missing. Left out: sqlite:///satchel.db.", group=WHERE, metavar="URL"),
]
Host = Annotated[
    str | None,
    flag("--host", about="The address to listen on. Left out: 127.0.0.1, this machine alone.", metavar="HOST"),
]
Port = Annotated[int | None, flag("--port", about="The port; 0 takes a free one. Left out: 8321.", metavar="N")]
ServedAgents = Annotated[
    tuple[str, ...],
    flag(
        "--agent",
        about="An agent to serve, [NAME=]MODULE:OBJECT; repeat it for more. The first is that of runs which name none."
        " Left out: the demo's, coding and data.",
        metavar="AGENT",
    ),
]
Traces = Annotated[
    Literal["off", "otlp", "console"] | None,
    flag(
        "--traces",
        about="Where OpenTelemetry spans of requests, runs and tool calls go: otlp (the OTEL_* variables say where), console"
        " (stderr). Left out: off.",
        metavar="WHERE",
    ),
]
NoAgents = Annotated[bool, flag("--no-agents", about="Serve requests alone; workers elsewhere execute the runs.")]
Idle = Annotated[
    str | None,
    flag("--idle", about="A session expires after this time without a change: 2s, 12h, 30d, never.", metavar="TIME"),
]
MaxLifetime = Annotated[
    str | None, flag("--max-lifetime", about="It expires this long after it began, busy or not.", metavar="TIME")
]
Retention = Annotated[
    str | None, flag("--retention", about="It is erased this long after it was closed or expired.", metavar="TIME")
]
ServedConcurrency = Annotated[int | None, flag("--concurrency", about="Runs at once. Left out: 8.", metavar="N")]
ServedLease = Annotated[
    float | None, flag("--lease", about="Seconds after which a silent worker is taken for dead.", metavar="SECONDS")
]
Drain = Annotated[
    float | None,
    flag("--drain-seconds", about="Seconds for requests and runs to finish when the server stops.", metavar="SECONDS"),
]
Workers = Annotated[int | None, flag("--workers", about="Server processes on the one port. Left out: 1.", metavar="N")]
Config = Annotated[
    Path | None, flag("--config", about="The file of settings. Left out: satchel.toml in this folder.", metavar="FILE")
]
Quiet = Annotated[bool, flag("--quiet", about="No log line for each request.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ServersSettings:
    """What `satchel serve` is set by on its command line, and `satchel config` shows."""

    store: ServersStore = None
    host: Host = None
    port: Port = None
    idle: Idle = None
    max_lifetime: MaxLifetime = None
    retention: Retention = None
    concurrency: ServedConcurrency = None
    lease: ServedLease = None
    drain_seconds: Drain = None
    workers: Workers = None
    traces: Traces = None
    config: Config = None
    quiet: Quiet = False


NO_SETTINGS = ServersSettings()


# -- keys

KeysStore = Annotated[str, flag("--store", about="The store whose server takes the keys.", group=WHERE, metavar="URL")]
KeysTenant = Annotated[
    str, flag("--tenant", about="The organisation that the key belongs to.", group=WHERE, metavar="T")
]
SomeTenant = Annotated[str | None, flag("--tenant", about="Only this organisation's keys.", group=WHERE, metavar="T")]
KeyRole = Annotated[Literal["user", "agent", "admin"], flag("--role", about="user, agent or admin.", metavar="ROLE")]
KeyUser = Annotated[
    str | None, flag("--user", about="Whom a user's key stands for; an admin's name in the log.", metavar="U")
]
ActingFor = Annotated[str | None, flag("--acting-for", about="The one user for whom an agent's key acts.", metavar="U")]
ExpiresIn = Annotated[
    str | None, flag("--expires-in", about="The key is refused after this time: 12h, 90d.", metavar="TIME")
]
KeyId = Annotated[str, Parameter(name="KEY_ID", help="The key, as `keys list` shows it.")]

# -- an operator

OperatorsStore = Annotated[
    str, flag("--store", about="The store, for example sqlite:///agent.db.", group=WHERE, metavar="URL")
]
NewStore = Annotated[
    str,
    flag("--store", about="The store, for example sqlite:///agent.db; made if missing.", group=WHERE, metavar="URL"),
]
Once = Annotated[bool, flag("--once", about="One pass, and end (the default).")]
Every = Annotated[
    str | None, flag("--every", about="A pass every so often, until SIGTERM or Ctrl-C: 5s, 1m.", metavar="TIME")
]
AllSteps = Annotated[bool, flag("--all", about="Also the steps that the database has.")]
CopyFrom = Annotated[
    str,
    flag(
        "--from",
        about="The store to copy from: nothing is changed in it but what is overdue.",
        group=WHERE,
        metavar="URL",
    ),
]
CopyTo = Annotated[str, flag("--to", about="The store to copy to; made if missing.", group=WHERE, metavar="URL")]
CopiedTenant = Annotated[
    str | None, flag("--tenant", about="Only this organisation's sessions.", group=WHERE, metavar="T")
]
WithSettings = Annotated[
    bool,
    flag("--settings", about="Also the API keys (their hashes): new ones, and the end of those that were revoked."),
]
