"""A child run in progress: a block inside its parent's, which ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from satchel.calling import begun, to_its_end
from satchel.errors import RunFenced, SatchelError, SessionNotActive
from satchel.failing import failure_of

if TYPE_CHECKING:
    from satchel.domain.run import Run
    from satchel.runs import RunManager
    from satchel.working import RunInProgress


@asynccontextmanager
async def child_of(
    parent: RunInProgress, runs: RunManager, goal: str, *, agent: str, metadata: Mapping[str, Any] | None
) -> AsyncIterator[RunInProgress]:
    """Add a child run, and end it with the block: COMPLETED; CANCELLED, if it was told to stop or the block was cancelled;
    FAILED, if the block raises. Its parent's lease is its lease."""

    async def end(run: Run) -> None:
        left = parent.begin_child(run)
        await _end_cancelled(runs, left)
        parent.end_child(left)

    adding = runs.add_child_run(parent.session_id, parent.attempt, goal=goal, agent=agent, metadata=metadata)
    ctx = parent.begin_child(await begun(adding, end))
    try:
        yield ctx
    except asyncio.CancelledError:
        await to_its_end(_end_cancelled(runs, ctx))
        raise
    except RunFenced:
        await to_its_end(_end_cancelled(runs, ctx))  # whose write it was that was refused is not said
        raise
    except Exception as error:
        with contextlib.suppress(SatchelError):
            failure = failure_of(error)
            await to_its_end(runs.fail_run(ctx.session_id, ctx.attempt, code=failure.code, message=failure.message))
        raise
    else:
        with contextlib.suppress(SessionNotActive):  # closed in the block: that ended the run already
            if ctx.is_cancelled:
                await to_its_end(runs.end_cancelled_run(ctx.session_id, ctx.attempt))
            else:
                await to_its_end(runs.complete_run(ctx.session_id, ctx.attempt, stop_reason=ctx.stop_reason))
    finally:
        parent.end_child(ctx)


async def _end_cancelled(runs: RunManager, ctx: RunInProgress) -> None:
    with contextlib.suppress(SatchelError):
        await runs.end_cancelled_run(ctx.session_id, ctx.attempt)
