"""Settings of a server: from satchel.toml, then SATCHEL_* variables, then flags; the later wins."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from satchel.domain.clock import DAY, SECOND
from satchel.domain.limits import MIB, Limits
from satchel.domain.policy import DEFAULT_POLICY, Policy
from satchel.errors import InvalidInput
from satchel.http.setting_errors import Said, in_words, near_to
from satchel.traces import Exporter
from satchel.worker.options import LEAST_LEASE, MOST_AT_ONCE

FILE = "satchel.toml"
VARIABLE = "SATCHEL_"
LOOPBACK = "127.0.0.1"
PORT = 8321
LONGEST_WAIT = 600.0  # seconds that a request to POST /v1/chat may wait

Whole = Annotated[int, Meta(ge=1)]
WholeOrNone = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=86_400)]

MILLISECOND = SECOND // 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}


class JwtSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens of an identity provider. ``jwks`` is a file or an https URL of its public keys. The claims name where a token
    says tenant, user and role; ``roles`` maps what it says there to ours."""

    issuer: str
    audience: str
    jwks: str
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    role_claim: str = "role"
    acting_for_claim: str = "acting_for"
    roles: dict[str, str] = msgspec.field(default_factory=lambda: {"user": "user", "agent": "agent", "admin": "admin"})
    default_role: str | None = None  # of a token without the claim; None: it is refused
    leeway: float = 10.0  # seconds between two clocks


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes in bytes, times in seconds. Limits hold for each server process by itself."""

    host: str = LOOPBACK
    port: Annotated[int, Meta(ge=0, le=65_535)] = PORT  # 0: a free one
    store: str = "sqlite:///satchel.db"
    workers: Annotated[int, Meta(ge=1, le=256)] = 1  # processes on one port
    concurrency: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] = 8  # runs at once, in each process
    lease: Annotated[float, Meta(ge=LEAST_LEASE, le=86_400)] = 30.0
    body: Whole = 8 * MIB
    body_seconds: Seconds = 30.0
    header_seconds: Seconds = 10.0
    header_bytes: Whole = 64 * 1024
    keep_alive_seconds: SecondsOrNone = 75.0
    drain_seconds: SecondsOrNone = 20.0
    requests_per_second: Annotated[float, Meta(ge=0)] = 1000.0  # of one principal, over a while; 0: no limit
    burst: Whole = 2000  # of one principal, at once
    streams_per_user: Whole = 64
    runs_per_user: WholeOrNone = 64  # open runs that a user's requests added here; 0: no limit
    sessions_per_user: WholeOrNone = 0  # that are in the user's list; 0: no limit
    heartbeat_seconds: Seconds = 15.0
    stream_bytes: Whole = 8 * MIB  # of events that wait for a slow reader
    chat_seconds: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 60.0  # that POST /v1/chat waits for the run's end
    access_log: bool = True
    log_texts: bool = False  # of exceptions: an agent's own may hold what was said
    metrics_need_key: bool = False  # also for a client on this machine
    traces: Exporter = "off"  # otlp, console


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    server: ServerSettings = ServerSettings()
    limits: Limits = Limits()
    policy: dict[str, Any] = msgspec.field(default_factory=dict)
    jwt: JwtSettings | None = None

    def session_policy(self) -> Policy:
        return policy_from(self.policy)


def duration(written: object, *, field: str) -> timedelta | None:
    """``2s``, ``1.5h``, ``30d``, a number of seconds; ``never`` is None. Raises InvalidInput."""
    if written is None or written == "never":
        return None
    found = _DURATION.fullmatch(str(written).strip()) if not isinstance(written, bool) else None
    if found is None:
        raise InvalidInput("must be a duration, for example 2s, 90m, 12h, 30d, or never", field=field)
    try:
        return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    except OverflowError:
        raise InvalidInput("is too long; never is longer", field=field) from None


def as_duration(micros: int | None) -> str:
    """As ``duration`` reads it: ``30d``, ``90m``, ``1.5s``, ``never``."""
    if micros is None:
        return "never"
    for letter, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND)):
        if micros and micros % size == 0:
            return f"{micros // size}{letter}"
    return f"{micros / SECOND:.6f}s"


def policy_from(written: Mapping[str, Any]) -> Policy:
    """``idle``, ``max_lifetime``, ``retention`` as durations; ``restore_closed``, ``restore_expired``, ``context_window``,
    ``context_share``."""
    known: dict[str, Any] = {}
    for name, value in written.items():
        if name in ("idle", "max_lifetime", "retention"):
            known[name] = duration(value, field=f"policy.{name}")
        elif name in ("restore_closed", "restore_expired", "context_window", "context_share"):
            known[name] = value
        else:
            names = [name for name, _ in _POLICY]
            likely = near_to(name, names) or f"; known: {', '.join(names)}"
            raise InvalidInput(f"is unknown{likely}", field=f"policy.{name}")
    return Policy(**known)


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """``flags``: values by dotted name (``server.port``), None where a flag was not given. ``path``: the file; left out, the
    satchel.toml of this folder, if there is one. Raises InvalidInput, which names the setting and where it was said."""
    said = Said(str(FILE if path is None else path))
    found = _from_file(path)
    given = os.environ if environment is None else environment
    for name, kind in _names():
        variable = _variable(name)
        if variable in given:
            _put(found, name, _read(given[variable], kind, variable), said)
            said.by(name, f"by the variable {variable}")
    for name, value in (flags or {}).items():
        if value is not None:
            _put(found, name, value, said)
            said.by(name, f"by --{name.rpartition('.')[2].replace('_', '-')}")
    try:
        settings = msgspec.convert(found, Settings)
    except msgspec.ValidationError as wrong:
        raise said.misshapen(wrong, [*Settings.__struct_fields__, *(name for name, _ in _names())]) from None
    for name, most in msgspec.structs.asdict(settings.limits).items():
        if most < 1:
            raise said.wrong(f"limits.{name}", "must be 1 or more")
    try:
        settings.session_policy().over(DEFAULT_POLICY)
    except InvalidInput as wrong:
        raise said.wrong(wrong.field, wrong.reason) from None
    return settings


def _from_file(path: Path | None) -> dict[str, Any]:
    chosen = Path(FILE) if path is None else path
    try:
        return tomllib.loads(chosen.read_text("utf-8"))
    except FileNotFoundError:
        if path is None:
            return {}
        raise InvalidInput(f"there is no file {path}", field="config") from None
    except (OSError, ValueError) as wrong:
        raise InvalidInput(f"{chosen} cannot be read: {wrong}", field="config") from None


_POLICY: tuple[tuple[str, Any], ...] = (
    ("idle", str),
    ("max_lifetime", str),
    ("retention", str),
    ("restore_closed", str),
    ("restore_expired", str),
    ("context_window", int),
    ("context_share", float),
)


def _names() -> list[tuple[str, Any]]:
    """Every setting that a variable may set, and its type."""
    names: list[tuple[str, Any]] = []
    for group, kind in (("server", ServerSettings), ("limits", Limits), ("jwt", JwtSettings)):
        names += [(f"{group}.{field.name}", field.type) for field in msgspec.structs.fields(kind)]
    return names + [(f"policy.{name}", kind) for name, kind in _POLICY]


def variables() -> dict[str, str]:
    """The name of each setting, and the variable that sets it."""
    return {name: _variable(name) for name, _ in _names()}


def _variable(name: str) -> str:
    """``server.port`` is SATCHEL_PORT, ``limits.depth`` SATCHEL_LIMITS_DEPTH."""
    return VARIABLE + name.removeprefix("server.").removeprefix("policy.").replace(".", "_").upper()


def _read(text: str, kind: Any, variable: str) -> Any:
    try:
        if kind == dict[str, str]:
            return msgspec.json.decode(text, type=kind)
        if kind == tuple[str, ...]:
            return tuple(part.strip() for part in text.split(",") if part.strip())
        return msgspec.convert(text, kind, strict=False)
    except (msgspec.ValidationError, msgspec.DecodeError) as wrong:
        raise InvalidInput(in_words(str(wrong).partition(" - ")[0]), field=variable) from None


def _put(found: dict[str, Any], name: str, value: Any, said: Said) -> None:
    group, _, rest = name.partition(".")
    members = found.setdefault(group, {})
    if type(members) is not dict:
        raise said.wrong(group, "must be a table")
    members[rest] = value


def shown(settings: Settings) -> dict[str, Any]:
    """All of them as they hold, with what is left to the default, as JSON and TOML know them. There are no secrets among
    them; the store's address may hold a password."""
    document: dict[str, Any] = msgspec.to_builtins(settings)
    policy = settings.session_policy().over(DEFAULT_POLICY)
    document["policy"] = {
        name: as_duration(getattr(policy, name))
        if name in ("idle", "max_lifetime", "retention")
        else getattr(policy, name)
        for name, _ in _POLICY
    }
    if document["jwt"] is None:
        del document["jwt"]
    return document
