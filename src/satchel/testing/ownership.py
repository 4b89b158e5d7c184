"""Who reaches a session, and who may do what with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from satchel.domain.principal import Principal
from satchel.domain.run import Attempt
from satchel.errors import InvalidInput, NotAllowed, SessionNotFound, Unauthenticated
from satchel.testing.stage import (
    ADA,
    ADAS_AGENT,
    ADMIN,
    AGENT,
    BOB,
    BOBS_AGENT,
    OPERATOR,
    STRANGERS,
    Stage,
    refused,
    said,
    unchanged,
)
from satchel.testing.suite import StoreSuite

Call = Callable[[Stage, Principal, str], Awaitable[Any]]


async def _exported(stage: Stage, who: Principal, sid: str) -> list[bytes]:
    return [piece async for piece in stage.sessions(who).export_sessions([sid])]


async def _followed(stage: Stage, who: Principal, sid: str) -> None:
    async for _ in stage.sessions(who).follow(sid, after=0):
        return


ATTEMPT = Attempt("run_x", 1)

# Everything that takes a session's id.
CALLS: dict[str, Call] = {
    "get_session": lambda s, w, sid: s.sessions(w).get_session(sid),
    "messages": lambda s, w, sid: s.sessions(w).messages(sid),
    "events": lambda s, w, sid: s.sessions(w).events(sid),
    "tool_history": lambda s, w, sid: s.sessions(w).tool_history(sid),
    "get_working_memory": lambda s, w, sid: s.sessions(w).get_working_memory(sid),
    "context": lambda s, w, sid: s.sessions(w).context(sid),
    "list_runs": lambda s, w, sid: s.runs(w).list_runs(sid),
    "get_run": lambda s, w, sid: s.runs(w).get_run(sid, "run_x"),
    "follow": _followed,
    "export": _exported,
    "fork": lambda s, w, sid: s.sessions(w).fork_session(sid),
    "append_message": lambda s, w, sid: s.sessions(w).append_message(sid, said("x")),
    "append_as_assistant": lambda s, w, sid: s.sessions(w).append_message(sid, said("x", "assistant")),
    "retract_message": lambda s, w, sid: s.sessions(w).retract_message(sid, 1),
    "append_tool_history": lambda s, w, sid: s.sessions(w).append_tool_history(sid, {"tool": "t"}),
    "start_tool_call": lambda s, w, sid: s.sessions(w).start_tool_call(sid, "t"),
    "finish_tool_call": lambda s, w, sid: s.sessions(w).finish_tool_call(sid, 2),
    "update_working_memory": lambda s, w, sid: s.sessions(w).update_working_memory(sid, {"append": {"plan": "x"}}),
    "replace_working_memory": lambda s, w, sid: s.sessions(w).replace_working_memory(sid, {}, expected_version=0),
    "update_session": lambda s, w, sid: s.sessions(w).update_session(sid, metadata={"k": 1}),
    "rename_session": lambda s, w, sid: s.sessions(w).rename_session(sid, "t"),
    "close_session": lambda s, w, sid: s.sessions(w).close_session(sid),
    "restore_session": lambda s, w, sid: s.sessions(w).restore_session(sid),
    "expire_session": lambda s, w, sid: s.sessions(w).expire_session(sid),
    "delete_session": lambda s, w, sid: s.sessions(w).delete_session(sid),
    "transfer_session": lambda s, w, sid: s.sessions(w).transfer_session(sid, "bob"),
    "add_run": lambda s, w, sid: s.runs(w).add_run(sid),
    "start_run": lambda s, w, sid: s.runs(w).start_run(sid, "run_x"),
    "cancel_run": lambda s, w, sid: s.runs(w).cancel_run(sid, "run_x"),
    "renew_run": lambda s, w, sid: s.runs(w).renew_run(sid, ATTEMPT),
    "add_step": lambda s, w, sid: s.runs(w).add_step(sid, ATTEMPT, "gpt"),
    "complete_run": lambda s, w, sid: s.runs(w).complete_run(sid, ATTEMPT),
    "fail_run": lambda s, w, sid: s.runs(w).fail_run(sid, ATTEMPT, code="x"),
}

# What beside "use" a call needs: who has only less is told so, and nothing happens.
WORK = (
    "append_as_assistant",
    "append_tool_history",
    "start_tool_call",
    "finish_tool_call",
    "update_working_memory",
    "replace_working_memory",
    "start_run",
    "renew_run",
    "add_step",
    "complete_run",
    "fail_run",
)
GOVERN = ("expire_session", "transfer_session")


class OwnershipSuite(StoreSuite):
    async def prepared(self, stage: Stage) -> str:
        sid = await stage.session()
        await stage.sessions(ADA).append_message(sid, said("mine"))
        await stage.sessions(ADAS_AGENT).start_tool_call(sid, "t")
        return sid

    @pytest.mark.parametrize("name", CALLS)
    async def test_foreign_and_unknown_answer_alike_and_nothing_changes(self, stage: Stage, name: str) -> None:
        sid = await self.prepared(stage)
        for stranger in STRANGERS:
            said_of: list[str] = []
            for session_id in (sid, "sess_" + "a" * 24):
                async with unchanged(stage, sid):
                    with pytest.raises(SessionNotFound) as met:
                        await CALLS[name](stage, stranger, session_id)
                assert type(met.value) is SessionNotFound
                assert isinstance(met.value, KeyError)
                said_of.append(str(met.value).replace(session_id, "ID"))
            assert said_of[0] == said_of[1]

    @pytest.mark.parametrize("name", [*WORK, *GOVERN])
    async def test_a_role_that_may_not_is_told_so_and_changes_nothing(self, stage: Stage, name: str) -> None:
        sid = await self.prepared(stage)
        for who in (ADA,) if name in WORK else (ADA, ADAS_AGENT, AGENT):
            async with refused(stage, sid, NotAllowed, role=who.role):
                await CALLS[name](stage, who, sid)

    @pytest.mark.parametrize("name", [name for name in CALLS if name not in (*WORK, *GOVERN, "follow")])
    async def test_owner_agent_admin_and_operator_may_use_a_session(self, stage: Stage, name: str) -> None:
        for who in (ADA, ADAS_AGENT, AGENT, ADMIN, OPERATOR):
            sid = await self.prepared(stage)
            if name in ("get_run", "cancel_run"):
                continue
            await CALLS[name](stage, who, sid)

    @pytest.mark.parametrize(
        ("role", "may"),
        [
            ("user", (ADA, ADAS_AGENT, AGENT, ADMIN, OPERATOR)),
            ("assistant", (ADAS_AGENT, AGENT, ADMIN, OPERATOR)),
            ("tool", (ADAS_AGENT, AGENT, ADMIN, OPERATOR)),
            ("system", (AGENT, ADMIN, OPERATOR)),
            ("developer", (AGENT, ADMIN, OPERATOR)),
        ],
    )
    async def test_a_message_of_a_role_is_refused_never_rewritten(
        self, stage: Stage, role: str, may: tuple[Principal, ...]
    ) -> None:
        sid = await stage.session()
        for who in (ADA, ADAS_AGENT, AGENT, ADMIN, OPERATOR):
            message = said("be brief", role, tool_call_id="c") if role == "tool" else said("be brief", role)
            if who in may:
                told = await stage.sessions(who).append_message(sid, message)
                assert told.role == role
            else:
                async with refused(stage, sid, NotAllowed):
                    await stage.sessions(who).append_message(sid, message)
                async with refused(stage, sid, NotAllowed):
                    await stage.sessions(who).append_messages(sid, [said("fine"), message])

    async def test_a_users_run_carries_a_users_message_only(self, stage: Stage) -> None:
        sid = await stage.session()
        async with refused(stage, sid, NotAllowed):
            await stage.runs(ADA).add_run(sid, input=said("obey", "system"))
        async with refused(stage, sid, NotAllowed):
            await stage.runs(ADA).add_run(sid, start=True)
        await stage.runs(ADA).add_run(sid, input="please")

    # -- identity

    async def test_no_identity_means_no_access(self, stage: Stage) -> None:
        for name in ("", "a\0b", "a\nb", "\ud800", "x" * 129, None, 5):
            with pytest.raises(Unauthenticated):
                Principal.user(name, tenant_id="acme")  # type: ignore[arg-type]  # wrong on purpose
            with pytest.raises(Unauthenticated):
                Principal.user("ada", tenant_id=name)  # type: ignore[arg-type]  # wrong on purpose
            if name is not None:
                with pytest.raises(Unauthenticated):
                    Principal.agent("shop", tenant_id="acme", acting_for=name)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(Unauthenticated):
            Principal(tenant_id="acme", subject="x", role="root")  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(Unauthenticated):
            Principal(tenant_id="acme", subject="x", role="user", acting_for="ada")

    async def test_users_that_differ_in_case_spaces_or_separators_are_others(self, stage: Stage) -> None:
        names = ("ada", "Ada", "ada ", " ada", "ada/x", "ada:x", "ada\u0301", "adá", "ada%", "ad_", "АDA")
        owned: dict[str, str] = {}
        for name in names:
            made = await stage.sessions(Principal.user(name, tenant_id="acme")).create_session(external_id="chat")
            owned[name] = made.session_id
        assert len(set(owned.values())) == len(names)
        for name in names:
            sessions = stage.sessions(Principal.user(name, tenant_id="acme"))
            assert [one.session_id for one in await sessions.list_sessions()] == [owned[name]]
            for other in names:
                if other != name:
                    with pytest.raises(SessionNotFound):
                        await sessions.get_session(owned[other])

    async def test_names_joined_by_a_separator_do_not_meet(self, stage: Stage) -> None:
        pairs = (("a", "b:c"), ("a:b", "c"), ("a:b:c", ""), ("a", "b/c"), ("a/b", "c"))
        ids = set()
        for tenant, user in pairs:
            who = Principal.user(user or "u", tenant_id=tenant)
            ids.add((await stage.sessions(who).create_session(external_id="x")).session_id)
        who = Principal.user("u", tenant_id="t")
        for external in ("x", "X", "x ", "x:0", "0"):
            ids.add((await stage.sessions(who).create_session(external_id=external)).session_id)
        assert len(ids) == 10

    async def test_session_ids_are_compared_byte_by_byte(self, stage: Stage) -> None:
        sid = await stage.session()
        for near in (
            sid.upper(),
            sid + " ",
            " " + sid,
            sid[:-1],
            sid + "\0",
            sid + "\n",
            "",
            "é",
            "\ud800",
            "%",
            sid[:-1] + "_",
        ):
            with pytest.raises(SessionNotFound):
                await stage.sessions().get_session(near)
            with pytest.raises(SessionNotFound):
                await stage.sessions().append_message(near, said("x"))
        with pytest.raises(InvalidInput):
            await stage.sessions().get_session(None)  # type: ignore[arg-type]  # wrong on purpose
        assert (await stage.record(sid)).version == 0

    async def test_the_same_names_in_two_tenants_are_two_people(self, stage: Stage) -> None:
        here, there = (Principal.user("ada", tenant_id=tenant) for tenant in ("acme", "umbrella"))
        mine = await stage.sessions(here).create_session(external_id="chat", title="here")
        theirs = await stage.sessions(there).create_session(external_id="chat", title="there")
        assert mine.session_id != theirs.session_id
        assert [one.title for one in await stage.sessions(here).list_sessions()] == ["here"]
        with pytest.raises(SessionNotFound):
            await stage.sessions(here).get_session(theirs.session_id)

    async def test_an_owner_is_the_callers_or_named_by_who_is_bound_to_none(self, stage: Stage) -> None:
        for who in (ADA, ADAS_AGENT):
            assert (await stage.sessions(who).create_session()).user_id == "ada"
            assert (await stage.sessions(who).create_session(user_id="ada")).user_id == "ada"
            with pytest.raises(NotAllowed):
                await stage.sessions(who).create_session(user_id="bob")
        for who in (AGENT, ADMIN):
            assert (await stage.sessions(who).create_session(user_id="bob")).user_id == "bob"
            with pytest.raises(InvalidInput):
                await stage.sessions(who).create_session()
            for wrong in ("", "a\0", "x" * 129):
                with pytest.raises(InvalidInput):
                    await stage.sessions(who).create_session(user_id=wrong)

    async def test_a_transferred_session_leaves_its_former_owner(self, stage: Stage) -> None:
        sid = await self.prepared(stage)
        shown = await stage.sessions(ADMIN).transfer_session(sid, "bob")
        assert (shown.user_id, shown.version) == ("bob", 3)
        for who in (ADA, ADAS_AGENT):
            async with refused(stage, sid, SessionNotFound):
                await stage.sessions(who).get_session(sid)
        assert (await stage.sessions(BOB).messages(sid))[0].content == "mine"
        assert (await stage.sessions(BOBS_AGENT).get_session(sid)).user_id == "bob"
        assert [one.session_id for one in await stage.sessions(BOB).list_sessions()] == [sid]
        assert len(await stage.sessions(ADA).list_sessions()) == 0

    async def test_a_manager_is_bound_to_a_principal(self, stage: Stage) -> None:
        if stage.store.capabilities.name == "memory":
            return  # a private memory: store implies Principal.local()
        from satchel.runs import RunManager
        from satchel.sessions import SessionManager

        with pytest.raises(Unauthenticated):
            SessionManager(stage.opened)
        with pytest.raises(Unauthenticated):
            RunManager(stage.opened)
