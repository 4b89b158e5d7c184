"""The state machine: every call twice, through the public door and in the plain model.

Two open stores on the same data stand for two processes. Each step is one call, two at once (one by each process; some
order of the two must explain both answers and what is stored), or one with a rival's call or a clock step between its
load and its commit.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from satchel.domain.ids import SessionRef
from satchel.domain.principal import Principal
from satchel.errors import SatchelError
from satchel.opened import OpenStore
from satchel.store import Store
from satchel.sweeper import Sweeper
from satchel.testing.clock import SettableClock
from satchel.testing.wrappers import RivalStore, UnknownStore, YieldingStore
from tests.property.compare import Difference, differences
from tests.property.door import Answer, Door
from tests.property.model import Facts, ModelSession, Refused
from tests.property.recipes import READS_AFTER, TENANTS, USERS, Call, Recipe, cook, principal, recipes
from tests.property.verbs import Verbs

WRAPPINGS = ("plain", "yielding", "rival", "unknown")

MAKES_IDS = {
    "create_session": "session_id",
    "fork_session": "session_id",
    "add_run": "run_id",
    "add_child_run": "run_id",
}


def patient(url: str) -> str:
    """For a disk that others keep busy: a server that answers late is no difference between a store and the model."""
    return f"{url}{'&' if '?' in url else '?'}connect_timeout=60"


def settings_for(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=os.environ.get("CI") == "true",
        print_blob=True,
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


class Machine(RuleBasedStateMachine):
    """A subclass says how two stores on the same, new data are made."""

    def make_stores(self, clock: SettableClock) -> tuple[Store, Store]:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.loop = self.runner.get_loop()
        self.clock = SettableClock()
        self.model = Verbs(self.clock)
        self.seen: dict[tuple[str, str], tuple[int, int, int]] = {}
        self.looks = 0
        self.found_equal: dict[
            tuple[str, str], tuple[int | None, bytes]
        ] = {}  # the record's revision, and the model's session

    @initialize(first=st.sampled_from(WRAPPINGS), second=st.sampled_from(WRAPPINGS), seed=st.integers(0, 1 << 16))
    def open_stores(self, first: str, second: str, seed: int) -> None:
        self.bare, other = self.make_stores(self.clock)
        self.wrappings = (first, second)
        self.stores = (self._wrap(self.bare, first, seed), self._wrap(other, second, seed + 1))
        self.doors = tuple(Door(OpenStore(store)) for store in self.stores)
        for store in {id(store): store for store in (self.bare, other)}.values():
            self.run(store.open())
        self.opened = (self.bare, other)

    def _wrap(self, store: Store, wrapping: str, seed: int) -> Store:
        if wrapping == "yielding":
            return YieldingStore(store)
        if wrapping == "rival":
            return RivalStore(store)
        if wrapping == "unknown":
            return UnknownStore(store, seed=seed)
        return store

    def run(self, awaitable: Any) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(awaitable, 60)

        return self.loop.run_until_complete(bounded())  # the runner would see to signals for each call

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            for door in self.doors:
                self.run(door.opened.committer.close())
            for store in {id(store): store for store in self.opened}.values():
                self.run(store.close())
        self.runner.close()

    # -- one call

    @rule(chosen=st.lists(recipes, min_size=1, max_size=5), door=st.integers(0, 1))
    def one_after_another(self, chosen: list[Recipe], door: int) -> None:
        for recipe in chosen:
            self.one(recipe, door)

    def one(self, recipe: Recipe, door: int) -> None:
        call = cook(recipe, self.model)
        answer = self.run(self.doors[door].do(call))
        self.explain([lambda model: [(call, answer, self.apply(model, call, answer))]], [door])

    # -- two at once

    @rule(first=recipes, second=recipes, same_session=st.booleans(), doors=st.sampled_from([(0, 0), (0, 1), (1, 0)]))
    def two_at_once(self, first: Recipe, second: Recipe, same_session: bool, doors: tuple[int, int]) -> None:
        if same_session:
            second = replace(second, session=first.session)
        calls = [cook(first, self.model), cook(second, self.model)]

        async def both() -> list[Answer]:
            return list(
                await asyncio.gather(*(self.doors[door].do(call) for door, call in zip(doors, calls, strict=True)))
            )

        answers = self.run(both())

        def in_order(order: Sequence[int]) -> Callable[[Verbs], list[Any]]:
            return lambda model: [(calls[i], answers[i], self.apply(model, calls[i], answers[i])) for i in order]

        self.explain([in_order(order) for order in itertools.permutations(range(2))], doors, crowded=True)

    @rule(recipe=recipes, doors=st.sampled_from([(0, 0), (0, 1)]))
    def the_same_call_twice_at_once(self, recipe: Recipe, doors: tuple[int, int]) -> None:
        """As when a caller lost patience: with a key, at most one of the two is new."""
        call = cook(recipe, self.model)
        if call.verb == "fork_session":
            return

        async def both() -> list[Answer]:
            return list(await asyncio.gather(*(self.doors[door].do(call) for door in doors)))

        answers = self.run(both())

        def in_order(order: Sequence[int]) -> Callable[[Verbs], list[Any]]:
            return lambda model: [(call, answers[i], self.apply(model, call, answers[i])) for i in order]

        self.explain([in_order(order) for order in itertools.permutations(range(2))], doors, crowded=True)

    # -- a rival between load and commit

    @precondition(lambda self: "rival" in self.wrappings)
    @rule(recipe=recipes, rival=recipes)
    def with_a_rival(self, recipe: Recipe, rival: Recipe) -> None:
        door = self.wrappings.index("rival")
        store = self.stores[door]
        assert isinstance(store, RivalStore)
        rival = replace(rival, session=recipe.session)
        call, other = cook(recipe, self.model), cook(rival, self.model)
        met: list[Answer] = []

        async def interfere() -> None:
            met.append(await self.doors[1 - door].do(other))

        store.rival = interfere
        answer = self.run(self.doors[door].do(call))
        store.rival = None

        def explained(model: Verbs) -> list[Any]:
            before = [(other, met[0], self.apply(model, other, met[0]))] if met else []
            return [*before, (call, answer, self.apply(model, call, answer))]

        def forked_before(model: Verbs) -> list[Any]:
            return [(one, said, self.apply(model, one, said)) for one, said in [(call, answer), (other, met[0])]]

        # A fork reads first and writes another session: the rival's commit is no part of it.
        stories = [explained, forked_before] if met and call.verb == "fork_session" else [explained]
        self.explain(stories, (0, 1), crowded=bool(met))

    @precondition(lambda self: "rival" in self.wrappings)
    @rule(recipe=recipes, how=st.integers(0, 5))
    def with_time_passing_before_the_commit(self, recipe: Recipe, how: int) -> None:
        door = self.wrappings.index("rival")
        store = self.stores[door]
        assert isinstance(store, RivalStore)
        call = cook(recipe, self.model)
        if call.verb in READS_AFTER:
            return
        before = (self.clock.now, self.clock.lease_now)
        overdue_from = {
            place: min((at for at in (session.expires, session.erases) if at is not None), default=None)
            for place, session in self.model.sessions.items()
        }

        async def interfere() -> None:
            self.move_clock(how)

        store.rival = interfere
        answer = self.run(self.doors[door].do(call))
        store.rival = None
        after = (self.clock.now, self.clock.lease_now)

        def decided_after(model: Verbs) -> list[Any]:
            return [(call, answer, self.apply(model, call, answer))]

        def decided_before(model: Verbs) -> list[Any]:
            bound = overdue_from.get((call.who.tenant_id, call.session_id))
            if bound is not None and before[0] < bound <= after[0]:
                return [(call, answer, ("decided before the expiry, and committed after it", {}))]
            self.clock.now, self.clock.lease_now = before
            try:
                return [(call, answer, self.apply(model, call, answer))]
            finally:
                self.clock.now, self.clock.lease_now = after

        self.explain([decided_after, decided_before], (door,))

    # -- moving

    @rule(session=st.integers(0, 3), door=st.integers(0, 1))
    def export_and_import(self, session: int, door: int) -> None:
        """To the user of the same name in the other tenant, by the operator's hand."""
        alive = [one for one in self.model.sessions.values() if one.status != "DELETED"]
        if not alive:
            return
        source = alive[session % len(alive)]
        other = TENANTS[1 - TENANTS.index(source.tenant_id)]
        here = Principal.operator(tenant_id=source.tenant_id, acting_for=source.user_id)
        there = Principal.operator(tenant_id=other, acting_for=source.user_id)

        async def move() -> Answer:
            try:
                pieces = [piece async for piece in self.doors[door].sessions(here).export_sessions([source.session_id])]
            except SatchelError as refused:
                return refused.code, {}
            reports = self.doors[1 - door].sessions(there).import_sessions([b"".join(pieces)])
            (report,) = [one async for one in reports]
            return "ok", {"session_id": report.session_id, "result": report.result}

        answer = self.run(move())
        model = self.model.copy()
        expected: Answer
        try:
            exported = model.read(here, source.session_id)
            expected = "ok", model.import_session(exported, other, fresh=answer[1].get("session_id", "none"))
        except Refused as refused:
            expected = refused.code, refused.facts
        assert answer == expected, "an export and its import"
        found = self.run(self._differences(model))
        assert found == [], "after an import: " + show(found)
        self.model = model

    # -- reading

    @rule(session=st.integers(0, 3), who=st.integers(0, 11), door=st.integers(0, 1))
    def read(self, session: int, who: int, door: int) -> None:
        sessions = list(self.model.sessions.values())
        if not sessions:
            return
        chosen = sessions[session % len(sessions)]
        reader = principal(chosen.tenant_id, chosen.user_id, who)

        async def get() -> Answer:
            try:
                got = await self.doors[door].sessions(reader).get_session(chosen.session_id)
            except SatchelError as refused:
                return refused.code, {}
            shown = {
                "status": got.status,
                "version": got.version,
                "title": got.title,
                "messages": [message.seq for message in got.messages],
                "tool_history": [call.seq for call in got.tool_history],
                "runs": [run.run_id for run in got.runs],
            }
            return "ok", shown

        answer = self.run(get())
        expected: Answer
        try:
            expected = "ok", self._shown(self.model.read(reader, chosen.session_id))
        except Refused as refused:
            expected = refused.code, refused.facts
        assert answer == expected, f"read by {reader.actor}"

    def _shown(self, held: ModelSession) -> Facts:
        unretracted = [entry.seq for entry in held.messages() if entry.seq not in held.taken_back]
        return {
            "status": held.status,
            "version": held.version,
            "title": held.title,
            "messages": unretracted[-50:],
            "tool_history": sorted(held.calls)[-50:],
            "runs": list(held.runs)[-50:],
        }

    @rule(
        tenant=st.sampled_from(TENANTS),
        owner=st.sampled_from(USERS),
        who=st.integers(0, 10),
        status=st.sampled_from([None, "ACTIVE", "CLOSED", "EXPIRED"]),
        limit=st.sampled_from([1, 2, 50]),
        door=st.integers(0, 1),
    )
    def list_all(self, tenant: str, owner: str, who: int, status: Any, limit: int, door: int) -> None:
        caller = principal(tenant, owner, who)

        async def pages() -> list[str]:
            manager = self.doors[door].sessions(caller)
            found: list[str] = []
            cursor: str | None = None
            while True:
                page = await manager.list_sessions(status=status, limit=limit, cursor=cursor)
                found += [session.session_id for session in page]
                if page.next is None:
                    return found
                cursor = page.next

        assert self.run(pages()) == self.model.listed(caller, status)

    # -- time

    @rule(how=st.integers(0, 9))
    def time_passes(self, how: int) -> None:
        self.move_clock(how)

    def move_clock(self, how: int) -> None:
        """Small steps, steps back, a lease's length, and exactly to the next instant that matters, or just short of it."""
        instants = [
            at
            for session in self.model.sessions.values()
            for at in (session.expires, session.erases, session.asked_until)
            if at is not None and at > self.clock.now
        ]
        leases = [
            lease.until
            for session in self.model.sessions.values()
            for lease in session.leases.values()
            if lease.until > self.clock.lease_now
        ]
        match how:
            case 0 if instants:
                self.clock.now = min(instants)
            case 1 if instants:
                self.clock.now = min(instants) - 1
            case 2:
                self.clock.step_wall(-700)
            case 3 if leases:
                self.clock.lease_now = min(leases)
            case 4 if leases:
                self.clock.lease_now = min(leases) - 1
            case 5:
                self.clock.pass_time(350)
            case 6:
                self.clock.reboot()
            case _:
                self.clock.pass_time(0.000001 * how)

    @rule(door=st.integers(0, 1))
    def sweep(self, door: int) -> None:
        self.run(Sweeper(self.doors[door].opened).sweep_once())
        self.model.sweep()
        found = self.run(self._differences(self.model))
        assert found == [], "after a sweep: " + show(found)

    # -- comparing

    def apply(self, model: Verbs, call: Call, answer: Answer) -> Answer:
        """What the model says to the call. Ids that Satchel drew are taken from its answer."""
        arguments = dict(call.arguments)
        if call.verb in MAKES_IDS:
            arguments["fresh"] = answer[1].get(MAKES_IDS[call.verb], "none")
        who = [call.who] if call.verb == "create_session" else [call.who, call.session_id]
        try:
            return "ok", getattr(model, call.verb)(*who, **arguments)
        except Refused as refused:
            return refused.code, refused.facts

    def explain(
        self, stories: Iterable[Callable[[Verbs], list[Any]]], doors: Iterable[int], *, crowded: bool = False
    ) -> None:
        """The first story that agrees with all answers and with what is stored becomes the model."""
        unknown = any(self.wrappings[door] == "unknown" for door in doors)
        failures: list[str] = []
        for story in stories:
            model = self.model.copy()
            told = story(model)
            wrong = [one for one in told if not agree(*one, crowded=crowded, unknown=unknown)]
            if wrong:
                failures += [
                    f"{call}\n    answered {answer}\n    expected {expected}" for call, answer, expected in wrong
                ]
                continue
            found = self.run(self._differences(model))
            if not found:
                self.model = model
                return
            calls = "; ".join(str(call) for call, _, _ in told)
            failures.append(f"after {calls}: {show(found)}")
        raise AssertionError("no order of the calls explains what happened:\n" + "\n".join(failures))

    async def _differences(self, model: Verbs) -> list[Difference]:
        """Of the sessions that moved, here or there, since they were last found equal; now and then of all."""
        self.looks += 1
        if self.looks % 8 == 0:
            self.found_equal.clear()
        found: list[Difference] = []
        for place, session in model.sessions.items():
            record = (await self.bare.snapshot(SessionRef(*place), working_memory=False, metadata=False)).record
            now = (None if record is None else record.revision, pickle.dumps(session))
            if self.found_equal.get(place) == now:
                continue
            met = await differences(self.bare, session)
            if not met:
                self.found_equal[place] = now
            found += met
        return found

    @invariant()
    def versions_and_times_go_forward(self) -> None:
        for place, session in self.model.sessions.items():
            now = (session.version, session.last_seq, session.updated)
            before = self.seen.get(place, (0, 0, 0))
            assert all(one >= other for one, other in zip(now, before, strict=True)), f"{before} became {now}"
            self.seen[place] = now


def agree(call: Call, answer: Answer, expected: Answer, *, crowded: bool, unknown: bool) -> bool:
    """Whether the door said what the model says."""
    (code, facts), (expected_code, expected_facts) = answer, expected
    if crowded and call.verb in READS_AFTER and code in ("session_deleted", "session_not_found"):
        return True  # the commit was its own; the session it reads for its answer was gone by then
    if crowded and unknown and code == "session_deleted" and expected_code == "ok":
        return True  # its commit landed and was erased with the session before its caller could be told
    if expected_code == "session_deleted" and code == "ok" and facts.get("replayed"):
        return True  # a tombstone whose idempotency records are not erased yet: what was done is not denied
    if call.verb == "retract_message" and (code, expected_code) == ("not_allowed", "session_deleted"):
        return True  # a tombstone whose message is not erased yet
    if expected_code == "session_deleted" and (facts.get("replayed") or code == "idempotency_mismatch"):
        return True  # what was done is not denied while the rows of a tombstone are there
    if code != expected_code:
        return False
    ignored = set()
    if crowded and unknown:
        ignored.add("replayed")  # of two calls under one key each may take what it finds for its own
    if facts.get("replayed") and call.verb in ("update_working_memory", "replace_working_memory"):
        ignored |= {"memory", "version"}  # a replayed answer holds the memory as it is now
    return {k: v for k, v in facts.items() if k not in ignored} == {
        k: v for k, v in expected_facts.items() if k not in ignored
    }


def show(found: list[Difference]) -> str:
    return "\n".join(f"  {what}\n    model {said}\n    store {held}" for what, said, held in found[:6])
