"""``satchel.connect(url, key)``: a service by its address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.domain.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    import httpx

    from satchel.client.connection import Connection

TIMEOUT = 30.0  # seconds for one try of one request
PATIENCE = 30.0  # seconds of tries for one call


def connect(
    url: str,
    key: str,
    *,
    acting_for: str | None = None,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float = TIMEOUT,
    patience: float = PATIENCE,
    http: httpx.AsyncClient | None = None,
) -> Connection:
    """The service at ``url``, as ``sessions`` and ``runs``: a SessionManager and a RunManager with the methods, results and
    errors of those on a store. To be used by ``async with``, or closed by ``await connection.close()``.

    ``key``: an API key, or a token of the identity provider that the service knows. ``acting_for``: the user to whom the key
    of an agent is narrowed. ``limits``: where the service's differ from the default; what exceeds them is refused here.

    A call is tried again when the connection breaks or the service asks for it (429, 502, 503, 504), for at most ``patience``
    seconds, each try within ``timeout`` seconds; every write carries an idempotency key, so it is done once.
    ``http``: a client of one's own, for proxies and certificates; it stays its opener's to close.

    Raises InvalidInput, ExtraMissing (the extra ``client``).
    """
    from satchel.client.connection import Connection

    return Connection(url, key, acting_for=acting_for, limits=limits, timeout=timeout, patience=patience, http=http)
