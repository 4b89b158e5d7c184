"""``satchel.sync.connect(url, key)``: a service for blocking code."""

from __future__ import annotations

from satchel import client, runs, sessions
from satchel.client.connecting import PATIENCE, TIMEOUT
from satchel.client.connection import Connection as AsyncConnection
from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.sync.background import BackgroundLoop, background
from satchel.sync.runs import RunManager
from satchel.sync.sessions import SessionManager


class _Sessions(SessionManager):
    def __init__(self, remote: sessions.SessionManager, loop: BackgroundLoop) -> None:
        self._async = remote
        self._loop = loop


class _Runs(RunManager):
    def __init__(self, remote: runs.RunManager, loop: BackgroundLoop) -> None:
        self._async = remote
        self._loop = loop


class Connection:
    """``sessions`` and ``runs``: the managers of whom the key belongs to. Use it by ``with``, or ``close`` it."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._loop = background()
        self.sessions: SessionManager = _Sessions(connection.sessions, self._loop)
        self.runs: RunManager = _Runs(connection.runs, self._loop)

    @property
    def url(self) -> str:
        return self._connection.url

    @property
    def limits(self) -> Limits:
        return self._connection.limits

    def close(self) -> None:
        """Twice is fine. In a process that was forked since, nothing: the connections are the parent's."""
        if not self._loop.is_inherited:
            self._loop.call(self._connection.close())

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect(
    url: str,
    key: str,
    *,
    acting_for: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float = TIMEOUT,
    patience: float = PATIENCE,
) -> Connection:
    """The service at ``url``, as ``sessions`` and ``runs``: the blocking managers. To be used by ``with``. Arguments and errors
    as ``satchel.connect``."""
    return Connection(
        client.connect(url, key, acting_for=acting_for, limits=limits, timeout=timeout, patience=patience)
    )
