"""A block that holds a run: its lease is renewed behind it, and the run ends with the block."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from satchel.calling import to_its_end
from satchel.domain.run import Attempt, Run
from satchel.errors import CancelRequested, NotFound, RunFenced, SatchelError, SessionNotActive, StoreError
from satchel.failing import failure_of
from satchel.runs import RunManager
from satchel.working import RunInProgress

if TYPE_CHECKING:
    from satchel.sessions import SessionManager

_log = logging.getLogger("satchel.runs")


@asynccontextmanager
async def working(
    sessions: SessionManager, runs: RunManager, run: Run, *, lease: float
) -> AsyncIterator[RunInProgress]:
    """Hold a run that is RUNNING: renew its lease, complete it at the end, fail it when the block raises."""
    ctx = RunInProgress(sessions, runs, run, lease=lease)
    renewal = asyncio.create_task(_renew(runs, ctx, lease))
    try:
        yield ctx
    except asyncio.CancelledError:
        await _end_quietly(runs, ctx, cancelled=True)
        raise
    except CancelRequested:
        await _end_quietly(runs, ctx, cancelled=True)
        raise
    except Exception as error:  # also RunFenced: it may be another run's, and an end of what is lost is refused
        await _end_quietly(runs, ctx, error=error)
        raise
    else:
        try:
            with contextlib.suppress(SessionNotActive):  # closed in the block: that ended the run already
                await to_its_end(_end(runs, ctx))
        except RunFenced:
            if ctx.is_asking:  # the block left the wait for an answer, by a timeout say
                await _end_quietly(runs, ctx, cancelled=True)
            raise
    finally:
        renewal.cancel()
        await asyncio.wait((renewal,))  # not the task itself: a cancellation of its own looks like one of this caller
        if not renewal.cancelled():
            renewal.result()


async def _renew(runs: RunManager, ctx: RunInProgress, lease: float) -> None:
    while True:
        await asyncio.sleep(lease / 3)
        try:
            if ctx.is_asking:
                await runs.keep_waiting(ctx.session_id, ctx.run.run_id)
            elif await runs.renew_run(ctx.session_id, ctx.attempt):
                ctx.notice_cancel()
            await ctx.look_after_children()
        except (RunFenced, SessionNotActive, NotFound):
            if ctx.is_asking:
                continue  # whoever waits in place hears how it ended
            ctx.notice_cancel()
            return
        except StoreError:
            continue  # away for a while: the lease has two more tries
        except Exception:  # noqa: BLE001  # a service's 500, say: so it has whatever is raised
            _log.warning("the lease of run %s was not renewed; it is tried again", ctx.run.run_id, exc_info=True)


async def _end(runs: RunManager, ctx: RunInProgress) -> None:
    if ctx.is_cancelled:
        await runs.end_cancelled_run(ctx.session_id, ctx.attempt)
    else:
        await runs.complete_run(ctx.session_id, ctx.attempt, stop_reason=ctx.stop_reason)


async def _end_quietly(
    runs: RunManager, ctx: RunInProgress, *, cancelled: bool = False, error: Exception | None = None
) -> None:
    """End the run for a block that is leaving with its own exception, which is the one to be heard."""
    with contextlib.suppress(SatchelError):
        if ctx.is_asking:
            await to_its_end(_withdraw_question(runs, ctx))
        elif cancelled or error is None:
            await to_its_end(runs.end_cancelled_run(ctx.session_id, ctx.attempt))
        else:
            failure = failure_of(error)
            await to_its_end(runs.fail_run(ctx.session_id, ctx.attempt, code=failure.code, message=failure.message))


async def _withdraw_question(runs: RunManager, ctx: RunInProgress) -> None:
    """Nobody waits for the answer any more: the run ends, wherever it was on its way."""
    run = await runs.cancel_run(ctx.session_id, ctx.run.run_id)
    if run.status == "RUNNING":
        await runs.end_cancelled_run(ctx.session_id, Attempt(run.run_id, run.attempt))
