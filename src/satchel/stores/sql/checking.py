"""Findings that are the same on every server."""

from __future__ import annotations

from satchel.store import Finding

APART = 1.0  # seconds that two clocks may differ


def clock_finding(ahead: float, *, uncertain: float) -> Finding:
    """``ahead``: seconds of the server's clock before ours."""
    what = f"clock difference={ahead:+.3f} s"
    if abs(ahead) > APART + uncertain:
        return Finding(
            what=what,
            why="expiry and leases go by the server's clock; API keys and tokens expire by this machine's, too early or late",
            mend="timedatectl set-ntp true  (on both machines)",
        )
    return Finding(
        is_ok=True, what=what, why="keys, tokens and logs of this machine mean the time that the store means"
    )
