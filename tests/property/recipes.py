"""What the state machine does next: drawn without knowing the state, and made into a call when the state is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from satchel.domain.principal import Principal
from tests.property.content_verbs import Said
from tests.property.model import SECOND, ModelPolicy, ModelSession
from tests.property.verbs import Verbs

TENANTS = ("acme", "umbrella")
USERS = ("ada", "bob")
LEASE = 30 * SECOND

MESSAGES = (
    Said(
        b'{"role":"user","content":"\xe4\xbf\xae\xe5\xa4\x8d\xe5\x90\xaf\xe5\x8a\xa8\xe5\xa4\xb1\xe8\xb4\xa5"}', "user"
    ),
    Said(b'{"role": "user", "content": "a\\u0000b \xf0\x9f\x98\x80", "n": 1.50}', "user"),
    Said(b'{"role":"assistant","content":null,"tool_calls":[{"id":"c1"}]}', "assistant", asks=("c1",)),
    Said(b'{"role":"assistant","content":"","tool_calls":[{"id":"c1"},{"id":"c2"}]}', "assistant", asks=("c1", "c2")),
    Said(b'{"role":"tool","tool_call_id":"c1","content":"done"}', "tool", answers="c1"),
    Said(b'{"role":"tool","tool_call_id":"c2","content":"done"}', "tool", answers="c2"),
    Said(b'{"role":"assistant","content":"it was requests"}', "assistant"),
    Said(b'{"role":"system","content":"be brief"}', "system"),
)

PATCHES: tuple[dict[str, Any], ...] = (
    {"append": {"completed": ["read app.py"]}},
    {"append": {"plan": ["a", "b"], "errors": ["x"]}},
    {"remove": {"completed": ["read app.py"]}},
    {"set": {"goal": "repair"}},
    {"set": {"next_action": "install"}, "append": {"important_files": ["app.py"]}},
    {"clear": ["plan", "goal"]},
    {"clear": ["completed"], "append": {"completed": ["anew"]}, "set": {"notes": {"k": 1}}},
    {},
)

MEMORIES: tuple[dict[str, Any], ...] = (
    {},
    {"goal": "g", "plan": ["p"]},
    {"completed": ["c"], "notes": {"n": [1, None]}},
)
RESULTS: tuple[Any, ...] = ("fine", {"rows": 3}, None, "")
ERRORS: tuple[Any, ...] = ("broken", {"exit": 1})
TOOLS = (("run_shell", {"command": "ls"}), ("run_shell", {"command": "pwd"}), ("read_file", {"command": "ls"}))

POLICIES = (
    ModelPolicy(idle=1_000 * SECOND),
    ModelPolicy(idle=None),
    ModelPolicy(idle=1_000 * SECOND, retention=500 * SECOND, restore_expired="admin"),
    ModelPolicy(idle=None, max_lifetime=2_000 * SECOND, restore_closed="admin"),
    ModelPolicy(idle=400 * SECOND, max_lifetime=900 * SECOND, retention=1 * SECOND, restore_expired="never"),
)

# How often each verb is drawn.
WEIGHTS = {
    "append_messages": 10,
    "retract_message": 2,
    "start_tool_call": 4,
    "append_tool_history": 3,
    "finish_tool_call": 5,
    "update_working_memory": 4,
    "replace_working_memory": 1,
    "update_session": 2,
    "close_session": 2,
    "restore_session": 3,
    "expire_session": 1,
    "delete_session": 1,
    "transfer_session": 1,
    "create_session": 3,
    "fork_session": 1,
    "add_run": 7,
    "add_child_run": 3,
    "start_run": 6,
    "renew_run": 2,
    "keep_waiting": 2,
    "add_step": 2,
    "end_run": 4,
    "cancel_run": 2,
    "ask_question": 4,
    "answer_run": 4,
}
# Verbs that answer with the session as a read after the commit finds it.
READS_AFTER = frozenset(
    {
        "create_session",
        "close_session",
        "restore_session",
        "expire_session",
        "delete_session",
        "transfer_session",
        "update_session",
        "fork_session",
    }
)


@dataclass(frozen=True)
class Recipe:
    verb: str
    session: int
    who: int
    key: str | None
    expected: str
    writer: str
    pick: int
    variant: int


recipes = st.builds(
    Recipe,
    verb=st.sampled_from([verb for verb, weight in WEIGHTS.items() for _ in range(weight)]),
    session=st.integers(0, 3),
    who=st.sampled_from([*range(10), *range(10), 10, 11]),
    key=st.sampled_from([None, None, None, None, None, "k1", "k2"]),
    expected=st.sampled_from(["none", "none", "none", "none", "right", "right", "right", "stale", "future"]),
    writer=st.sampled_from(["holder", "holder", "holder", "child", "child", "none", "none", "old"]),
    pick=st.integers(0, 11),
    variant=st.integers(0, 7),
)


@dataclass(frozen=True)
class Call:
    verb: str
    who: Principal
    session_id: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.verb}({self.who.actor}@{self.who.tenant_id}, {self.session_id[-4:]}, {self.arguments})"


def principal(tenant_id: str, owner: str, number: int) -> Principal:
    """0 to 9 reach a session of ``owner``, those who may do most most often; 10 is another user, 11 of another tenant."""
    other_user = USERS[1 - USERS.index(owner)]
    other_tenant = TENANTS[1 - TENANTS.index(tenant_id)]
    if number <= 3:
        return Principal.agent("shop", tenant_id=tenant_id)
    if number <= 6:
        return Principal.agent("shop", tenant_id=tenant_id, acting_for=owner)
    if number <= 7:
        return Principal.user(owner, tenant_id=tenant_id)
    if number <= 9:
        return Principal.admin("root", tenant_id=tenant_id)
    if number == 10:
        return Principal.agent("shop", tenant_id=tenant_id, acting_for=other_user)
    return Principal.admin("root", tenant_id=other_tenant)


def cook(recipe: Recipe, model: Verbs) -> Call:
    """The call that a recipe means in this state."""
    sessions = list(model.sessions.values())
    if recipe.verb == "create_session" or not sessions:
        return _create(recipe)
    alive = [session for session in sessions if session.status != "DELETED"]
    active = [session for session in alive if session.status == "ACTIVE"]
    if alive and recipe.pick < 11:
        sessions = alive
    if active and recipe.pick < 9 and recipe.verb != "restore_session":
        sessions = active
    session = sessions[recipe.session % len(sessions)]
    recipe = _where_it_makes_sense(recipe, session)
    who = principal(session.tenant_id, session.user_id, recipe.who)
    expected = {
        "none": None,
        "right": session.version,
        "stale": max(0, session.version - 1 - recipe.pick % 3),
        "future": session.version + 1,
    }[recipe.expected]
    options: dict[str, Any] = {"key": recipe.key, "expected": expected}
    arguments = _arguments(recipe, session, options)
    return Call(recipe.verb, who, session.session_id, arguments)


def _where_it_makes_sense(recipe: Recipe, session: ModelSession) -> Recipe:
    """Mostly: what a verb needs is begun first, if it is not there."""
    if recipe.pick >= 10:
        return recipe
    verb = recipe.verb
    if verb == "finish_tool_call" and not session.open_calls():
        verb = "start_tool_call"
    elif verb == "answer_run" and session.asked_until is None:
        verb = "ask_question"
    if (
        verb in ("renew_run", "add_step", "end_run", "cancel_run", "ask_question", "add_child_run")
        and not session.is_busy
    ):
        verb = "start_run"
    if verb == "start_run" and session.asked_until is not None:
        verb = "answer_run"
    if verb == "start_run" and (session.turn is None or session.is_busy):
        verb = "add_run"
    return replace(recipe, verb=verb)


def _create(recipe: Recipe) -> Call:
    tenant_id = TENANTS[recipe.session % 2]
    owner = USERS[recipe.session // 2]
    who = principal(tenant_id, owner, min(recipe.who, 9))
    arguments = {
        "owner": owner,
        "title": ("", "Flask", "广告收入")[recipe.variant % 3],
        "external_id": None if recipe.pick % 3 else f"chat-{recipe.pick}",
        "if_exists": "raise" if recipe.variant == 7 else "return",
        "metadata": {} if recipe.variant % 2 else {"k": "v", "n": 1},
        "policy": POLICIES[recipe.pick % len(POLICIES)],
        "key": recipe.key,
    }
    return Call("create_session", who, "", arguments)


def _writer(recipe: Recipe, session: ModelSession) -> tuple[str, int] | None:
    if session.turn is None or recipe.writer == "none":
        return None
    if recipe.writer == "child" and session.children:
        return session.children[recipe.pick % len(session.children)], 1
    attempt = session.runs[session.turn].attempt
    return session.turn, attempt if recipe.writer != "old" else attempt - 1


def _run_id(recipe: Recipe, session: ModelSession) -> str:
    if session.children and recipe.pick < 3:
        return session.children[0]
    if session.turn is not None and recipe.pick < 8:
        return session.turn
    ids = list(session.runs)
    return ids[recipe.pick % len(ids)] if ids else "run_unknown"


def _arguments(recipe: Recipe, session: ModelSession, options: dict[str, Any]) -> dict[str, Any]:
    own = _OF_MESSAGES | _OF_RUNS | _OF_SESSIONS
    arguments: dict[str, Any] = own[recipe.verb](recipe, session)
    without_version = ("fork_session", "start_run", "add_step", "end_run", "ask_question")
    if recipe.verb in without_version:
        return arguments | {"key": options["key"]}
    return arguments if recipe.verb in ("renew_run", "keep_waiting") else arguments | options


Cook = Callable[[Recipe, ModelSession], dict[str, Any]]


def _messages(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    chosen = [MESSAGES[recipe.variant]]
    if recipe.pick >= 8:
        chosen.append(MESSAGES[recipe.pick % 8])
    status = "interrupted" if recipe.pick == 3 else "complete"
    return {"messages": chosen, "status": status, "writer": _writer(recipe, session)}


def _retraction(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    messages = session.messages()
    there = bool(messages) and recipe.pick < 10
    seq = messages[recipe.pick % len(messages)].seq if there else recipe.pick + 1
    return {"seq": seq, "reason": _reason(recipe)}


def _reason(recipe: Recipe) -> str:
    return ("", "done")[recipe.variant % 2]


def _new_call(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    tool, arguments = TOOLS[recipe.variant % 3]
    label = (None, None, "c1", "c2")[recipe.pick % 4]
    return {"tool": tool, "arguments": arguments, "label": label, "writer": _writer(recipe, session)}


def _recorded_call(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    ok = recipe.variant < 5
    value = RESULTS[recipe.variant % 4] if ok else ERRORS[recipe.variant % 2]
    return {**_new_call(recipe, session), "ok": ok, "value": value}


def _finished_call(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    pick = recipe.pick
    open_calls = session.open_calls()
    seq = open_calls[pick % len(open_calls)].seq if open_calls and pick < 10 else pick + 1
    how = ("succeeded", "succeeded", "failed", "cancelled")[recipe.variant % 4]
    value = {"succeeded": RESULTS[pick % 4], "failed": ERRORS[pick % 2], "cancelled": None}[how]
    return {"seq": seq, "how": how, "value": value, "writer": _writer(recipe, session)}


def _update(recipe: Recipe, _: ModelSession) -> dict[str, Any]:
    title = None if recipe.variant % 3 == 0 else ("Flask", "再来", "")[recipe.pick % 3]
    metadata = None if recipe.variant % 2 == 0 else ({"k": None}, {"n": 2}, {"deep": {"a": 1}})[recipe.pick % 3]
    return {"title": title, "metadata": metadata}


def _new_run(recipe: Recipe, _: ModelSession) -> dict[str, Any]:
    return {
        "goal": ("", "find out why")[recipe.pick % 2],
        "input": (None, "go on", "继续")[recipe.variant % 3],
        "on_busy": ("reject", "queue", "queue", "cancel")[recipe.pick % 4],
        "memory": "run" if recipe.variant % 2 else "session",
        "max_attempts": 2 if recipe.variant % 4 == 3 else 1,
        "start": recipe.pick >= 6,
        "lease": LEASE,
    }


def _run_writer(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    return {"writer": _writer(recipe, session) or (_run_id(recipe, session), 1)}


def _reasoned(recipe: Recipe, _: ModelSession) -> dict[str, Any]:
    return {"reason": _reason(recipe)}


def _end(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    status = ("COMPLETED", "COMPLETED", "FAILED", "CANCELLED")[recipe.variant % 4]
    return {"status": status, **_run_writer(recipe, session)}


def _ask(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    return {
        "name": ("size", "colour", "pay")[recipe.pick % 3],
        "wants": ("", "integer")[recipe.variant % 2],
        "expires_in": (50 * SECOND, 700 * SECOND, 5_000 * SECOND, 5_000 * SECOND)[recipe.variant % 4],
        "here": recipe.pick % 4 == 3,
        **_run_writer(recipe, session),
    }


def _answer(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    return {
        "run_id": _run_id(recipe, session),
        "answer": (7, "seven", 8)[recipe.variant % 3],
        "name": ("size", "colour")[recipe.variant % 2] if recipe.pick >= 7 else None,
    }


def _cancel(recipe: Recipe, session: ModelSession) -> dict[str, Any]:
    return {"run_id": _run_id(recipe, session), "reason": ("cancelled", "no more")[recipe.variant % 2]}


_OF_MESSAGES: dict[str, Cook] = {
    "append_messages": _messages,
    "retract_message": _retraction,
    "start_tool_call": _new_call,
    "append_tool_history": _recorded_call,
    "finish_tool_call": _finished_call,
    "update_working_memory": lambda r, s: {"patch": PATCHES[r.variant], "writer": _writer(r, s)},
    "replace_working_memory": lambda r, s: {"memory": MEMORIES[r.variant % 3], "writer": _writer(r, s)},
}
_OF_RUNS: dict[str, Cook] = {
    "add_run": _new_run,
    "add_child_run": lambda r, s: {"goal": ("", "a part")[r.pick % 2], **_run_writer(r, s)},
    "start_run": lambda r, s: {"run_id": _run_id(r, s), "lease": LEASE},
    "renew_run": _run_writer,
    "keep_waiting": lambda r, s: {"run_id": s.queue[0] if s.queue and r.pick < 8 else _run_id(r, s)},
    "add_step": lambda r, s: {"tokens": r.variant, **_run_writer(r, s)},
    "end_run": _end,
    "cancel_run": _cancel,
    "ask_question": _ask,
    "answer_run": _answer,
}
_OF_SESSIONS: dict[str, Cook] = {
    "update_session": _update,
    "close_session": _reasoned,
    "restore_session": _reasoned,
    "expire_session": _reasoned,
    "delete_session": _reasoned,
    "transfer_session": lambda r, _: {"to": USERS[r.variant % 2]},
    "fork_session": lambda r, _: {"title": (None, "Fork")[r.variant % 2]},
}
