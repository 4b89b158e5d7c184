"""How many requests a caller may make: a bucket for each, which fills with time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable

from satchel.http.answers import Header
from satchel.http.problems import TooManyRequests

MOST_CALLERS = 100_000


class Rates:
    """``per_second`` requests over a while, ``burst`` at once. 0 per second: no limit."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(1, burst)
        self._clock = clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # what was left, and when

    def take(self, caller: Hashable) -> Header | None:
        """One request. The header says what is left. Raises TooManyRequests."""
        if self._per_second <= 0:
            return None
        now = self._clock()
        left, then = self._buckets.get(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - then) * self._per_second)
        if left < 1:
            self._buckets[caller] = (left, now)
            wait = math.ceil((1 - left) / self._per_second)
            raise TooManyRequests(
                "too many requests; wait a little", headers=(self.policy, self._state(0, wait)), retry_after=wait
            )
        if len(self._buckets) >= MOST_CALLERS and caller not in self._buckets:
            self._forget(now)
        self._buckets[caller] = (left - 1, now)
        return self._state(int(left - 1), math.ceil((self._burst - left + 1) / self._per_second))

    @property
    def policy(self) -> Header:
        window = math.ceil(self._burst / self._per_second)
        return b"ratelimit-policy", b'"requests";q=%d;w=%d' % (self._burst, window)

    def _state(self, left: int, seconds: int) -> Header:
        """``t``: seconds until all of it is there again."""
        return b"ratelimit", b'"requests";r=%d;t=%d' % (left, seconds)

    def _forget(self, now: float) -> None:
        """Who has a full bucket by now is as good as new."""
        full = self._burst / self._per_second
        for caller, (_, then) in list(self._buckets.items()):
            if now - then >= full:
                del self._buckets[caller]
