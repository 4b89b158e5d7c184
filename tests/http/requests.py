"""A request of each route that is well formed, and what a session must hold for it to be done.

A route that is not here fails a test: whoever adds one says who may do it.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from satchel.http.route import Route
from tests.robust.test_odd_arguments import World

Right = Literal["use", "work", "govern"]
IN_SESSION = "/v1/sessions/{session_id}"


class Request(NamedTuple):
    """``right``: whose request it is (see ``satchel.domain.rights``). ``work``: what the session must hold (World.make).
    ``run``: the one that the address names. ``as_attempt``: it comes from who executes that run."""

    right: Right = "use"
    body: Any = None
    work: str = "busy"
    run: Literal["holder", "waiting"] = "holder"
    as_attempt: bool = False
    query: str = ""


def reported(body: Any = None) -> Request:
    """By the attempt that executes the run."""
    return Request("work", body, as_attempt=True)


REQUESTS: dict[str, Request] = {
    "add_child_run": reported({"goal": "a part"}),
    "add_run": Request(body={"input": "do it"}, work="none"),
    "add_step": reported({"name": "a model"}),
    "add_text": reported({"message": 1, "offset": 0, "text": "x"}),
    "answer_run": Request(body={"answer": "yes"}, work="asking"),
    "append_message": Request(body={"content": "hello"}),
    "append_tool_history": Request("work", {"tool": "ls", "ok": True}),
    "ask_question": reported({"name": "size", "question": "How big?"}),
    "cancel_run": Request(),
    "close_session": Request(),
    "complete_run": reported(),
    "context": Request(),
    "delete_session": Request(),
    "end_cancelled_run": reported(),
    "end_text": reported({"message": 1, "answer": {"role": "assistant", "content": "x"}}),
    "events": Request(),
    "expire_session": Request("govern"),
    "fail_run": reported({"code": "agent_error"}),
    "finish_tool_call": Request("work"),
    "fork_session": Request(),
    "get_run": Request(),
    "get_session": Request(),
    "get_working_memory": Request(),
    "hand_back_run": reported(),
    "keep_waiting": Request("work", run="waiting"),
    "list_runs": Request(),
    "messages": Request(),
    "renew_run": reported(),
    "replace_working_memory": Request("work", {"goal": "g", "expected_version": 4}),
    "restore_session": Request(),
    "retract_message": Request(),
    "start_run": Request("work", work="ready"),
    "tool_history": Request(),
    "transfer_session": Request("govern", {"user_id": "bob"}),
    "update_session": Request(body={"title": "another", "metadata": {"k": 1}}),
    "update_working_memory": Request("work", {"append": {"plan": "a step"}}),
}
# These name no session in their address; what a stranger can reach by them is tested one by one.
ELSEWHERE = frozenset({"create_session", "list_sessions", "chat", "openapi", "livez", "readyz", "metrics"})


def parts_of(request: Request, world: World) -> dict[str, str]:
    """What the address names inside a session."""
    run_id = world.waiting if request.run == "waiting" else world.run
    return {"run_id": run_id or "run_none", "message_id": f"msg_{world.message}", "seq": str(world.call)}


def address(route: Route, session_id: str, parts: dict[str, str]) -> str:
    return route.path.format(session_id=session_id, **parts)


def options(request: Request, parts: dict[str, str]) -> dict[str, Any]:
    """Headers and body, for the client."""
    headers = {"X-Request-Id": "the-same"}
    if request.as_attempt:
        headers["Satchel-Attempt"] = f"{parts['run_id']}/1"
    return {"headers": headers} if request.body is None else {"headers": headers, "json": request.body}
