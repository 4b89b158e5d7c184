"""An import that breaks off: hidden until it is whole, gone on with, or removed."""

from __future__ import annotations

import pytest

from satchel.domain.clock import DAY
from satchel.domain.ids import SessionRef
from satchel.errors import SatchelError, SessionNotFound, StoreBusy, StoreUnavailable
from satchel.testing.stage import ADMIN, AGENT, Stage, said
from satchel.testing.suite import StoreSuite
from satchel.testing.transfer import AS_ADA, FailingStore, conversation, imported, innermost
from satchel.testing.wrappers import UnknownStore


class InterruptedImportSuite(StoreSuite):
    async def test_an_interrupted_import_is_hidden_until_whole_and_goes_on(self, stage: Stage) -> None:
        line = conversation("long", *(said(str(n)) for n in range(950)))
        failing = FailingStore(innermost(stage.store))
        failing.good = 2
        with pytest.raises(StoreUnavailable):
            await imported(Stage(failing, stage.clock), AS_ADA, [line])
        assert len(await stage.sessions().list_sessions()) == 0
        sid = await self.hidden_id(stage)
        assert (await stage.record(sid)).last_seq == 400
        for read in (stage.sessions().get_session(sid), stage.sessions(ADMIN).messages(sid)):
            with pytest.raises(SessionNotFound):
                await read
        with pytest.raises(SessionNotFound):
            await stage.sessions(AGENT).append_message(sid, said("x"))
        with pytest.raises(StoreBusy):
            await stage.sessions().create_session(external_id="long")
        (report,) = await imported(stage, AS_ADA, [line])
        assert (report.session_id, report.result, report.messages) == (sid, "imported", 950)
        log = await stage.log(sid)
        assert [event.data["content"] for event in log] == [str(n) for n in range(950)]

    async def test_another_conversation_under_the_same_name_does_not_go_on_in_it(self, stage: Stage) -> None:
        failing = FailingStore(innermost(stage.store))
        failing.good = 1
        with pytest.raises(StoreUnavailable):
            await imported(
                Stage(failing, stage.clock), AS_ADA, [conversation("long", *(said(str(n)) for n in range(450)))]
            )
        other = conversation("long", *(said(f"other {n}") for n in range(450)))
        (report,) = await imported(stage, AS_ADA, [other])
        assert (report.result, report.messages) == ("imported", 450)
        assert (await stage.log(report.session_id))[0].data["content"] == "other 0"

    async def hidden_id(self, stage: Stage) -> str:
        stage.clock.step_wall(DAY / 1_000_000)
        (ref,) = await stage.store.due("sweep", limit=10)
        stage.clock.step_wall(-DAY / 1_000_000)
        return ref.session_id

    async def test_what_an_import_left_for_a_day_is_removed_by_the_sweeper(self, stage: Stage) -> None:
        failing = FailingStore(innermost(stage.store))
        failing.good = 1
        line = conversation("long", *(said(str(n)) for n in range(450)))
        with pytest.raises(StoreUnavailable):
            await imported(Stage(failing, stage.clock), AS_ADA, [line])
        sid = await self.hidden_id(stage)
        stage.clock.pass_time(DAY / 1_000_000 - 1)
        assert (await stage.sweep()).visited == 0
        stage.clock.pass_time(1)
        assert (await stage.sweep()).rows_erased >= 200
        assert (await stage.record(sid)).status == "DELETED"
        assert await stage.log(sid) == ()
        (report,) = await imported(stage, AS_ADA, [line])
        assert (report.result, report.messages) == ("imported", 450)

    @pytest.mark.parametrize("seed", range(4))
    async def test_an_import_over_unknown_outcomes_writes_every_chunk_once(self, stage: Stage, seed: int) -> None:
        door = Stage(UnknownStore(stage.store, seed=seed, share=0.7), stage.clock)
        line = conversation("long", *(said(str(n)) for n in range(700)))
        (report,) = await imported(door, AS_ADA, [line])
        assert (report.result, report.messages, report.events) == ("imported", 700, 700)
        assert [event.data["content"] for event in await stage.log(report.session_id)] == [str(n) for n in range(700)]

    async def test_nothing_of_a_hidden_session_is_swept_while_it_grows(self, stage: Stage) -> None:
        failing = FailingStore(innermost(stage.store))
        failing.good = 1
        line = conversation("long", *(said(str(n)) for n in range(450)))
        with pytest.raises(SatchelError):
            await imported(Stage(failing, stage.clock), AS_ADA, [line])
        stage.clock.pass_time(DAY / 1_000_000 - 10)
        failing.good = 1
        with pytest.raises(SatchelError):
            await imported(Stage(failing, stage.clock), AS_ADA, [line])
        stage.clock.pass_time(60)
        assert (await stage.sweep()).visited == 0
        (report,) = await imported(stage, AS_ADA, [line])
        assert report.messages == 450
        snapshot = await stage.store.snapshot(SessionRef("acme", report.session_id))
        assert snapshot.record is not None
        assert snapshot.record.hidden is False
