"""What a worker may be told: checked before a store is opened for it, and by the worker itself."""

from __future__ import annotations

from satchel.errors import InvalidInput
from satchel.runs import checked_lease

MOST_AT_ONCE = 1000
LONGEST_GRACE = 86_400.0  # seconds
# Seconds. A lease is renewed at a third of it, and the look whether a run was asked to stop comes every tenth of a second: with
# less than this one slow commit, or a pause of the process, would lose the run of a worker that is well.
LEAST_LEASE = 0.5


def check_options(*, concurrency: int, lease: float, grace: float) -> None:
    """Raises InvalidInput."""
    if type(concurrency) is not int or not 1 <= concurrency <= MOST_AT_ONCE:
        raise InvalidInput(f"must be a whole number from 1 to {MOST_AT_ONCE}", field="concurrency")
    if type(grace) not in (int, float) or not 0 <= grace <= LONGEST_GRACE:
        raise InvalidInput(f"must be seconds, from 0 to {LONGEST_GRACE:g}", field="grace")
    checked_lease(lease)
    if lease < LEAST_LEASE:
        raise InvalidInput(
            f"must be seconds, from {LEAST_LEASE:g} to 86400: it is renewed at a third of it, and one slow commit would lose"
            " the runs of a worker that is well",
            field="lease",
        )
