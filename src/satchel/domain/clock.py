"""Times are integer microseconds since the Unix epoch inside, RFC 3339 in UTC outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

SECOND = 1_000_000
DAY = 86_400 * SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(at: int) -> datetime:
    """Microseconds since the epoch as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=at)


def from_datetime(moment: datetime) -> int:
    """An aware datetime as microseconds since the epoch, exactly."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def rfc3339(at: int) -> str:
    """`2026-01-31T08:30:00.000001Z`: always six decimals, so that text sorts as time does."""
    second, micros = divmod(at, SECOND)
    return f"{_second(second)}.{micros:06}Z"


@lru_cache(256)  # a page of messages was mostly said in few
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]


def parse_rfc3339(text: str) -> int:
    """The inverse of :func:`rfc3339`; any offset is accepted. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time needs an offset, for example Z")
    return from_datetime(moment)
