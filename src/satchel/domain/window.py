"""How full a model's window is: the event that says that a session's messages passed a share of it."""

from __future__ import annotations

import msgspec

from satchel.domain.policy import SessionPolicy

_encode = msgspec.json.Encoder().encode


def passing(before: int, after: int, policy: SessionPolicy) -> bytes | None:
    """The body of a ``context_threshold``, if a change from ``before`` to ``after`` tokens passes the share of the window.

    What takes messages back may bring a session under it again; whoever then passes it says so anew.
    """
    window, share = policy.context_window, policy.context_share
    if window is None or not before < share * window <= after:
        return None
    return _encode({"tokens": after, "window": window, "share": share})
