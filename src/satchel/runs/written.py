"""What a verb of runs answers."""

from __future__ import annotations

from satchel.access import Access
from satchel.answered.runs import run_as_answered
from satchel.domain.decisions.decision import Decision
from satchel.domain.run import Run


async def run_written(access: Access, decision: Decision[Run]) -> Run:
    """The run after this decision; of one that is repeated, as it was first answered."""
    return await run_as_answered(access, decision.ref, await access.submit(decision))
