"""What becomes of those who wait when the event loop ends: all its tasks are cancelled, in whatever turn of it."""

from __future__ import annotations

import asyncio

from satchel.domain.ids import SessionRef
from satchel.testing.stage import ADA, TENANT, Stage, said
from satchel.testing.suite import StoreSuite

ALONE = 20  # writes one after another, after which the next is handed to the store in the turn that brings it
TURNS = 6
PATIENCE = 20.0


class LoopEndSuite(StoreSuite):
    async def test_a_store_closes_in_whatever_turn_of_a_write_all_tasks_are_cancelled(self, stage: Stage) -> None:
        for alone in (0, ALONE):
            for turns in range(TURNS):
                sid = await stage.session()
                for index in range(alone):
                    await stage.sessions(ADA).append_message(sid, said(f"{index}"))
                mine = asyncio.all_tasks()
                writing = asyncio.create_task(stage.sessions(ADA).append_message(sid, said("the last words")))
                for _ in range(turns):
                    await asyncio.sleep(0)
                for task in asyncio.all_tasks() - mine:
                    task.cancel()
                async with asyncio.timeout(PATIENCE):
                    await asyncio.wait((writing,))
                    await stage.opened.committer.close()
                await stage.opened.open()
                kept = await stage.store.snapshot(SessionRef(TENANT, sid), messages=50)
                assert kept.record is not None
                assert kept.record.last_seq in (alone, alone + 1)
                assert len(kept.messages) == kept.record.last_seq
