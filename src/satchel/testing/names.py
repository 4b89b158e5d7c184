"""What an ``external_id`` names: one session at a time, however often it was deleted, and whoever creates and deletes at once."""

from __future__ import annotations

import asyncio

from satchel.errors import SessionDeleted
from satchel.testing.stage import ADA, BOB, Stage
from satchel.testing.suite import StoreSuite

DELETIONS = 20
ROUNDS = 8


class NameSuite(StoreSuite):
    async def test_a_name_goes_on_behind_all_its_deletions(self, stage: Stage) -> None:
        sessions = stage.sessions()
        for generation in range(DELETIONS):
            made = await sessions.create_session(external_id="chat-1", title=str(generation))
            assert (made.existed, made.title) == (False, str(generation))
            assert (await stage.record(made.session_id)).generation == generation
            found = await sessions.create_session(external_id="chat-1")
            assert (found.existed, found.session_id) == (True, made.session_id)
            await sessions.delete_session(made.session_id)
        await stage.sessions(BOB).create_session(external_id="chat-1")  # another's name

    async def test_rivals_that_create_and_delete_one_name_leave_no_gap_and_one_session(
        self, stage: Stage, second: Stage
    ) -> None:
        seen: set[str] = set()

        async def create(door: Stage) -> None:
            for _ in range(ROUNDS):
                try:
                    made = await door.sessions(ADA).create_session(external_id="chat-1")
                except SessionDeleted:  # found, and deleted before it was read
                    continue
                assert made.external_id == "chat-1"
                seen.add(made.session_id)

        async def delete(door: Stage) -> None:
            for _ in range(ROUNDS):
                for session_id in list(seen):
                    await door.sessions(ADA).delete_session(session_id)
                await asyncio.sleep(0)

        await asyncio.gather(*(work(door) for door in (stage, second) for work in (create, create, delete)))
        last = await stage.sessions(ADA).create_session(external_id="chat-1")
        records = [await stage.record(session_id) for session_id in seen | {last.session_id}]
        alive = [record.session_id for record in records if record.status != "DELETED"]
        assert alive == [last.session_id]
        generations = sorted(record.generation for record in records)
        assert generations[-1] == (await stage.record(last.session_id)).generation
        assert len(set(generations)) == len(generations)
