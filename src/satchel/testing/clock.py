"""Time that stands still until somebody moves it."""

from __future__ import annotations

from satchel.domain.clock import SECOND
from satchel.domain.state import Clock

START = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z


class SettableClock:
    """Both of a store's clocks. Pass the object itself as a store's ``clock``: each call reads it.

    Wall time may be stepped back, as it can be on a real machine; the lease clock only goes forward.
    """

    def __init__(self, *, now: int = START, lease_now: int = 1_000 * SECOND, lease_clock: str = "boot-1") -> None:
        self.now = now
        self.lease_now = lease_now
        self.lease_clock = lease_clock

    def __call__(self) -> Clock:
        return Clock(self.now, self.lease_now, self.lease_clock)

    def pass_time(self, seconds: float) -> None:
        """Both clocks go forward, as when somebody waits."""
        self.step_wall(seconds)
        self.pass_lease_time(seconds)

    def step_wall(self, seconds: float) -> None:
        """Wall time alone, in either direction."""
        self.now += round(seconds * SECOND)

    def pass_lease_time(self, seconds: float) -> None:
        """The lease clock alone."""
        if seconds < 0:
            raise ValueError("the lease clock does not go back")
        self.lease_now += round(seconds * SECOND)

    def reboot(self) -> None:
        """Another boot: every lease that was given before it is over."""
        self.lease_clock += "+"
        self.lease_now = 0
