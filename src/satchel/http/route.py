"""The table of routes: what the service answers, in a form that OpenAPI, tests and clients can read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from satchel.http.parameters import Parameter

if TYPE_CHECKING:
    from satchel.http.asgi import App
    from satchel.http.call import Call

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[["Call"], Awaitable["App"]]


class Route(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One method of one path.

    ``name`` is the operation's id: the manager's method, where there is one. ``body`` and ``answers`` are shapes (see
    ``shapes``), by status; ``errors`` are statuses beside those that every route may answer. ``is_open``: also for who has no identity.
    ``attempt``: whether Satchel-Attempt says which run writes.
    """

    method: Method
    path: str
    name: str
    about: str
    handler: Handler
    query: tuple[Parameter, ...] = ()
    body: Any = None
    body_required: bool = True
    answers: dict[int, Any] = {}
    errors: tuple[int, ...] = ()
    is_write: bool = False
    is_open: bool = False
    attempt: Literal["may", "must"] | None = None
    media_types: tuple[str, ...] = ("application/json",)

    @property
    def takes_condition(self) -> bool:
        """Whether a write is only made at the version that the caller expects."""
        return 412 in self.errors

    @property
    def path_parameters(self) -> tuple[str, ...]:
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))
