"""An accepted change in the making: how the parts of a session change together.

Every decision that is accepted writes through an Edit, so that counters, part versions, labels, the turn and the queue
are kept in one place.
"""

from satchel.domain.edit.leases import needed_sweep, new_lease, with_entries
from satchel.domain.edit.outcomes import outcome_body, outcome_tokens, said_outcome
from satchel.domain.edit.whole import OPERATOR, Edit

__all__ = [
    "OPERATOR",
    "Edit",
    "needed_sweep",
    "new_lease",
    "outcome_body",
    "outcome_tokens",
    "said_outcome",
    "with_entries",
]
