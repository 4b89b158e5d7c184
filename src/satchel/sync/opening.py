"""``satchel.sync.open(url)``: a store for blocking code."""

from __future__ import annotations

from typing import overload

from satchel import opening
from satchel.domain.limits import DEFAULT_LIMITS, Limits
from satchel.domain.policy import Policy, SessionPolicy
from satchel.domain.tokens import TokenCounter
from satchel.errors import InvalidInput
from satchel.opened import OpenStore as AsyncOpenStore
from satchel.sync.background import BackgroundLoop, background


class OpenStore:
    """A store whose work is done on the background thread. Use it by ``with``, or ``open`` and ``close``.

    ``opened`` is the async side of it: ``OpenStore(satchel.OpenStore(MyStore()))`` brings a store of one's own.
    """

    def __init__(self, opened: AsyncOpenStore) -> None:
        self.opened = opened
        self.loop = background()

    @property
    def limits(self) -> Limits:
        return self.opened.limits

    @property
    def policy(self) -> SessionPolicy:
        return self.opened.policy

    def open(self) -> OpenStore:
        self.loop.call(self.opened.open())
        return self

    def close(self) -> None:
        """Finish what waits, and close. In a process that was forked since, nothing: the store is the parent's."""
        if not self.loop.is_inherited:
            self.loop.call(self.opened.close())

    def __enter__(self) -> OpenStore:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()


def open(
    url: str,
    *,
    limits: Limits = DEFAULT_LIMITS,
    policy: Policy | None = None,
    count_tokens: TokenCounter | None = None,
) -> OpenStore:
    """The store at ``url``, to be opened by ``with`` (or ``store.open()``). Addresses and options as ``satchel.open``;
    ``count_tokens`` is called on the background thread."""
    return OpenStore(opening.open(url, limits=limits, policy=policy, count_tokens=count_tokens))


@overload
def async_side(store: OpenStore) -> AsyncOpenStore: ...


@overload
def async_side(store: OpenStore | None) -> AsyncOpenStore | None: ...


def async_side(store: OpenStore | None) -> AsyncOpenStore | None:
    """What the async managers work on. Raises InvalidInput for a store that is on another event loop."""
    if store is None:
        return None
    if not isinstance(store, OpenStore):
        raise InvalidInput(
            f"must be opened by satchel.sync.open, not {type(store).__module__}.{type(store).__name__}", field="store"
        )
    return store.opened


def loop_of(store: OpenStore | None) -> BackgroundLoop:
    return background() if store is None else store.loop
